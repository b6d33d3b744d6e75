use super::*;
use clap::Parser;
use std::path::Path;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    let argv = argv::normalise(line.split(' ').map(OsString::from), &mut Cli::command());
    Cli::try_parse_from(argv)
}

fn code(line: &str) -> u8 {
    main_with(line.split(' ').map(OsString::from)).code()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn run_takes_its_flags_with_one_dash_or_two() {
    for line in [
        "sc run -config a.toml -state-dir /s -runtime-dir /r -allow-tmpfs -cgroup /c -log debug",
        "sc run --config=a.toml --state-dir /s --runtime-dir=/r --allow-tmpfs --cgroup /c --log debug",
    ] {
        let Command::Run(args) = parse(line).unwrap().command else { panic!("{line}") };
        assert_eq!((args.config.as_path(), args.state_dir.as_deref()), (Path::new("a.toml"), Some(Path::new("/s"))));
        assert_eq!(
            (args.runtime_dir.as_deref(), args.cgroup.as_deref()),
            (Some(Path::new("/r")), Some(Path::new("/c")))
        );
        assert_eq!((args.allow_tmpfs, args.log.as_deref()), (true, Some("debug")));
    }
}

#[test]
fn ctl_keeps_its_short_flags() {
    use socialweb_ctl::args::{Format, Verb};
    let Command::Ctl(ctl) = parse("sc ctl logs demo/kine -f -n 5 -ojson -socket /a").unwrap().command else { panic!() };
    let Verb::Logs(logs) = ctl.verb else { panic!() };
    assert_eq!((logs.follow, logs.lines, ctl.output), (true, 5, Format::Json));
    assert_eq!(ctl.socket.as_deref(), Some(Path::new("/a")));
}

/// Each recipe's own argv must be one that this program understands.
#[test]
fn every_argv_that_a_recipe_builds_is_understood() {
    use socialweb_openbao::OpenBao;
    let (program, group_dir) = (std::path::PathBuf::from("/opt/sc"), std::path::PathBuf::from("/s/groups/demo"));
    let credentials =
        socialweb_credentials::Credentials { program: program.clone(), group_dir: group_dir.clone() }.component();
    let openbao = OpenBao {
        binary: "/opt/bao".into(),
        program: program.clone(),
        group_dir: group_dir.clone(),
        ports: socialweb_openbao::Ports { api: 61_003, cluster: 61_004 },
    }
    .component();
    let bring_up = socialweb_k3s::BringUp {
        program: program.clone(),
        group_dir: group_dir.clone(),
        cluster: "demo".into(),
        https_port: 61_000,
        openbao_port: 61_003,
    }
    .component();
    let kine = socialweb_kine::Kine {
        binary: "/opt/kine".into(),
        group_dir,
        runtime_dir: "/r/demo".into(),
        endpoint: socialweb_kine::Endpoint::Dsn { file: "/s/dsn".into(), program },
    }
    .component();
    let launches = [credentials.launch, openbao.pre[0].launch.clone(), bring_up.launch, kine.launch];
    for launch in launches {
        let line = launch.argv.join(" ");
        let parsed = parse(&line);
        assert!(matches!(parsed, Ok(Cli { command: Command::Internal { .. } })), "{line}: {:?}", parsed.err());
    }
    for line in [
        "/opt/sc internal drill-child fork-bomb --token 0123456789abcdef --role hidden",
        "sc internal drill-child stopped --token 01234567 --cgroup /cg",
    ] {
        assert!(matches!(parse(line), Ok(Cli { command: Command::Internal { .. } })), "{line}");
    }
    assert!(parse("sc internal drill-child nonsense --token 01234567").is_err());
    let Command::Internal { task: args::Internal::KineExec { argv, .. } } =
        parse("sc internal kine-exec --dsn-file /f -- /opt/kine --config x").unwrap().command
    else {
        panic!()
    };
    assert_eq!(argv, ["/opt/kine", "--config", "x"]);
}

#[test]
fn server_and_client_agree_on_where_the_admin_socket_is() {
    use socialweb_daemon::config::Env;
    for vars in [&[("XDG_RUNTIME_DIR", "/r"), ("HOME", "/h")][..], &[("HOME", "/h")], &[("XDG_STATE_HOME", "/x")]] {
        let env: Env = vars.iter().copied().collect();
        let state = env.default_state_dir().unwrap();
        let served = env.default_runtime_dir(&state).join(socialweb_wire::place::SOCKET_NAME);
        let lookup = |name: &str| env.var(name).map(OsString::from);
        assert_eq!(socialweb_wire::place::socket_candidates(None, None, &lookup)[0], served);
    }
}

#[test]
fn exit_codes_tell_usage_help_and_failure_apart() {
    assert_eq!(code("sc ctl status --nonsense"), 2);
    assert_eq!(code("sc ctl start"), 2);
    assert_eq!(code("sc --help"), 0);
    assert_eq!(code("sc version"), 0);
    assert_eq!(code("sc internal replay /nowhere"), 1);
    assert_eq!(code("sc internal kine-exec --dsn-file /nowhere -- kine"), 1);
    assert_eq!(code("sc config check -config /nowhere/supervisor.toml"), 1);
    assert_eq!(code("sc config schema cluster"), 0);
    assert_eq!(code("sc ctl -socket /nowhere/admin.sock status"), 3);
    assert_eq!(code("sc ctl -socket /nowhere/admin.sock drill"), 3);
    assert_eq!(code("sc ctl -socket /nowhere/admin.sock bundle /nowhere/b.tar"), 1);
}

#[test]
fn pages_are_generated_for_every_sub_command() {
    let dir = tempfile::tempdir().unwrap();
    pages::man(Some(dir.path())).unwrap();
    for page in [
        "socialweb-computer.1",
        "socialweb-computer-run.1",
        "socialweb-computer-ctl-status.1",
        "socialweb-computer-ctl-drill.1",
    ] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert_eq!(code(&format!("sc completions {shell}")), 0);
    }
}

#[test]
fn other_programs_flag_for_json_is_answered_with_ours() {
    let tip = |flag: &str| {
        let error = Cli::command().try_get_matches_from(["sc", "ctl", "status", flag]).unwrap_err();
        crate::format_tip(&error)
    };
    assert!(tip("--json").is_some_and(|tip| tip.contains("`-o json`")));
    assert_eq!(tip("--jason"), None);
}
