//! Wrong files and the exact words that answer them.

use super::*;

fn messages(error: &ConfigError) -> Vec<String> {
    error.findings.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check_cluster(text: &str, expect: &[&str]) {
    assert_eq!(messages(&cluster(text).unwrap_err()), expect, "in:\n{text}");
}

#[track_caller]
fn check_daemon(text: &str, expect: &[&str]) {
    let site = Site::new(text, &[]);
    let base = format!("{}/", site.folder.path().display());
    let got: Vec<String> = messages(&site.load(&[]).unwrap_err()).iter().map(|m| m.replace(&base, "")).collect();
    assert_eq!(got, expect, "in:\n{text}");
}

/// An exec group with one component that has these further keys.
fn with(keys: &str) -> String {
    format!("kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"/bin/a\"]\n{keys}\n")
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_a_suggestion() {
    check_daemon(
        "# a\n\nstat_dir = \"/x\"\n",
        &["supervisor.toml:3:1: unknown key \"stat_dir\"; did you mean \"state_dir\"?"],
    );
    check_daemon(
        "[log]\n  journl = \"auto\"\n",
        &["supervisor.toml:2:3: unknown key \"journl\" in \"log\"; did you mean \"journal\"?"],
    );
    check_daemon(
        "[log]\nqqq = 1\n",
        &["supervisor.toml:2:1: unknown key \"qqq\" in \"log\"; the keys are journal, max_file_bytes, keep_files"],
    );
    check_cluster("acount = \"demo\"", &["web.toml:1:1: unknown key \"acount\"; did you mean \"account\"?"]);
    check_cluster(
        &with("stop = { signl = \"TERM\" }"),
        &["web.toml:5:10: unknown key \"signl\" in \"component.stop\"; did you mean \"signal\"?"],
    );
}

#[test]
fn every_error_of_a_file_is_reported_and_not_only_the_first() {
    check_daemon(
        "stat_dir = \"/x\"\nallow_tmpfs = 3\n[log]\nkeep_files = -1\n[budgets]\nrestart_burts = 1\n",
        &[
            "supervisor.toml:1:1: unknown key \"stat_dir\"; did you mean \"state_dir\"?",
            "supervisor.toml:2:15: \"allow_tmpfs\" must be a boolean, not integer `3`",
            "supervisor.toml:4:14: \"log.keep_files\" must be a whole number, 0 or more, not integer `-1`",
            "supervisor.toml:6:1: unknown key \"restart_burts\" in \"budgets\"; did you mean \"restart_burst\"?",
        ],
    );
    check_cluster(
        "kind = \"exec\"\n[[component]]\nname = \"A\"\nargv = [\"/a\"]\n[[component]]\nargv = [\"/b\"]\n[[component]]\nname = \"c\"\nargv = \"x\"\n",
        &[
            "web.toml:3:8: \"component.name\": the name \"A\" is not a DNS label: use lower-case letters, digits and '-', begin with a letter and do not end with '-'",
            "web.toml:5:1: key \"name\" is missing in \"component\"; add it",
            "web.toml:9:8: \"component.argv\" must be an array, not string \"x\"",
        ],
    );
}

#[test]
fn broken_toml_and_double_keys_have_a_place() {
    check_daemon(
        "state_dir = \"/a\"\nstate_dir = \"/b\"\n",
        &["supervisor.toml:2:1: key \"state_dir\" is given twice; remove one"],
    );
    check_cluster("account = \"demo\"\n[kine]\n[kine]\n", &["web.toml:3:2: key \"kine\" is given twice; remove one"]);
    check_cluster("account = \n", &["web.toml:1:11: not TOML: string values must be quoted, expected literal string"]);
}

#[test]
fn values_say_how_they_are_written() {
    check_daemon(
        "[ports]\nranges = [\"61000\"]\n",
        &[
            "supervisor.toml:2:11: \"ports.ranges\": \"61000\" is no range; write a range of ports in quotes such as \"61000-65535\"",
        ],
    );
    check_daemon(
        "[ports]\nranges = [\"2000-3000\", \"2500-2600\"]\n",
        &["supervisor.toml:2:24: the ranges 2500-2600 and 2000-3000 overlap; make them distinct"],
    );
    check_daemon(
        "[ports]\nranges = []\n",
        &["supervisor.toml:2:10: \"ports.ranges\" is empty; name at least one range"],
    );
    check_daemon(
        "[budgets]\nmax_concurrent_starts = \"none\"\n",
        &[
            "supervisor.toml:2:25: \"budgets.max_concurrent_starts\": \"none\" is no limit; write a whole number of at least 1, or \"off\"",
        ],
    );
    check_daemon(
        "[budgets]\nrestarts_per_minute = 0\n",
        &[
            "supervisor.toml:2:23: \"budgets.restarts_per_minute\" must be a whole number of at least 1, or \"off\", not integer `0`",
        ],
    );
    check_daemon(
        "[log]\nmax_file_bytes = \"10 MB\"\n",
        &[
            "supervisor.toml:2:18: \"log.max_file_bytes\": \"10 MB\" is no size; write a number of bytes, or a size in quotes such as \"10MiB\"",
        ],
    );
    check_daemon(
        "watchdog = \"of\"\n",
        &["supervisor.toml:1:12: \"watchdog\" cannot be \"of\"; it is one of auto, never"],
    );
    check_cluster(
        &with("stop = { grace = 30, signal = \"TREM\" }"),
        &[
            "web.toml:5:18: \"component.stop.grace\" must be a duration in quotes such as \"30s\" or \"2m\", not integer `30`",
            "web.toml:5:31: \"component.stop.signal\": \"TREM\" is no signal; write the name of a signal in quotes such as \"TERM\"",
        ],
    );
    check_cluster(
        &with("stop = { signal = \"STOP\" }"),
        &[
            "web.toml:5:19: \"component.stop.signal\": \"STOP\" pauses or resumes and ends nothing; write TERM, INT, QUIT or KILL",
        ],
    );
    check_cluster(
        &with("restart = \"alon\""),
        &["web.toml:5:11: \"component.restart\" cannot be \"alon\"; did you mean \"alone\"?"],
    );
}

#[test]
fn tenants_and_exec_groups_are_kept_apart() {
    check_cluster(
        "",
        &[
            "web.toml:1:1: a tenant needs \"account\", such as account = \"demo\"; a group of your own programs alone needs kind = \"exec\"",
        ],
    );
    check_cluster("account = \" \"", &["web.toml:1:11: \"account\" must name somebody, in printable characters"]);
    check_cluster(
        "kind = \"exec\"\naccount = \"demo\"\n",
        &[
            "web.toml:1:1: an exec group needs at least one [[component]] with name and argv",
            "web.toml:2:11: \"account\" is for tenants and has no effect with kind = \"exec\"; remove it",
        ],
    );
    check_cluster(
        "account = \"a\"\nname = \"wep\"\n",
        &["web.toml:2:8: \"name\" is \"wep\" but the file is named after \"web\"; make them the same"],
    );
    check_cluster(
        "account = \"a\"\n[timeouts.k3s]\ndeadline = \"2m\"\ncap = \"1m\"\n",
        &["web.toml:4:7: \"timeouts.k3s.cap\" must not be below the deadline beside it"],
    );
    check_cluster(
        "account = \"a\"\n[timeouts.k3]\n",
        &["web.toml:2:11: unknown key \"k3\" in \"timeouts\"; did you mean \"k3s\"?"],
    );
}

#[test]
fn a_graph_that_cannot_be_ordered_is_refused_at_the_component() {
    let two = |a: &str, b: &str| {
        format!(
            "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"/a\"]\n{a}\n[[component]]\nname = \"b\"\nargv = [\"/b\"]\n{b}\n"
        )
    };
    check_cluster(
        &two("needs = [\"b\"]", "needs = [\"a\"]"),
        &["web.toml:5:9: the needs form a circle: a -> b -> a; remove one of them"],
    );
    check_cluster(
        &two("", "needs = [\"x\"]"),
        &["web.toml:9:9: component b needs x, which is not a component of this group; add it or remove the need"],
    );
    check_cluster(
        &two("rank = 4", "needs = [\"a\"]\nrank = 4"),
        &[
            "web.toml:10:8: component b of rank 4 needs a of rank 4; a need must have a lower rank: it starts earlier and stops later",
        ],
    );
    check_cluster(&two("", "").replace("\"b\"", "\"a\""), &["web.toml:7:8: two components are named a; rename one"]);
    check_cluster(
        "account = \"d\"\n[[component]]\nname = \"kine\"\nargv = [\"/a\"]\n",
        &["web.toml:3:8: two components are named kine; rename one"],
    );
}

#[test]
fn ports_are_named_once_and_not_like_the_tenants_own() {
    check_cluster(
        &with("ports = [\"web\", \"web\"]"),
        &[
            "web.toml:5:17: the port \"web\" is listed twice in this group; list it once, every component may use {port.web}",
        ],
    );
    check_cluster(
        "account = \"d\"\n[[component]]\nname = \"x\"\nargv = [\"/a\"]\nports = [\"https\"]\n",
        &["web.toml:5:10: the port \"https\" is one of the tenant's own; choose another role"],
    );
    check_cluster(
        &with("env = { A = \"{port.web}\" }"),
        &[
            "web.toml:5:13: component a: no component of this group has the port \"web\"; add it to a component's \"ports\"",
        ],
    );
}

#[test]
fn probes_take_only_the_keys_of_their_kind() {
    let check = |keys: &str, expect: &str| check_cluster(&with(keys), &[&format!("web.toml:{expect}")]);
    check("readiness = { kind = \"http\" }", "5:1: component a: readiness of kind \"http\" needs \"url\"; add it");
    check(
        "readiness = { kind = \"tcp\", address = \"localhost\" }",
        "5:39: component a: \"localhost\" is no address; write HOST:PORT, such as 127.0.0.1:{port.web}",
    );
    check(
        "readiness = { kind = \"running\", url = \"http://x\" }",
        "5:39: component a: \"readiness.url\" has no effect with kind \"running\"; remove it",
    );
    check(
        "readiness = { kind = \"http\", url = \"localhost:80\" }",
        "5:36: component a: \"localhost:80\" is no URL; write http://HOST:PORT/PATH or https://HOST:PORT/PATH, without name and password",
    );
    check(
        "readiness = { kind = \"http\", url = \"https://localhost/\" }",
        "5:36: component a: an https:// URL needs \"readiness.ca\": the PEM file of the certificates to trust; add it",
    );
    check(
        "readiness = { kind = \"unix\", path = \"x.sock\" }",
        "5:37: component a: \"x.sock\" must be an absolute path; begin it with {dir} or {runtime}",
    );
    check(
        "readiness = { deadline = \"2m\", cap = \"1m\" }",
        "5:38: component a: \"readiness.cap\" must not be below \"readiness.deadline\"",
    );
    check(
        "liveness = { kind = \"log-line\", contains = \"x\" }",
        "5:21: component a: liveness needs a probe that can be asked again: notify, http, tcp, unix or exec",
    );
    check(
        "readiness = { kind = \"notification-fd\", fd = 1 }",
        "5:46: component a: \"readiness.fd\" must be between 3 and 255",
    );
    check(
        "kind = \"one-shot\"\nliveness = { kind = \"notify\" }",
        "6:1: component a: a one-shot has no liveness: its end is its proof; remove this",
    );
    check(
        "stop = { grace = \"18446744073709551615s\" }",
        "5:18: \"component.stop.grace\": \"18446744073709551615s\" is too long; write at most \"366d\"",
    );
    check("readiness = { interval = \"1ms\" }", "5:26: component a: is too short; write at least \"10ms\"");
}

#[test]
fn a_program_is_named_in_a_way_that_finds_it() {
    check_cluster(
        "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = []\n",
        &[
            "web.toml:4:8: component a: names no program; write its absolute path, or its bare name, as the first element",
        ],
    );
    check_cluster(
        "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"./a\"]\n",
        &[
            "web.toml:4:8: component a: the program \"./a\" must be an absolute path or a bare name; begin it with / or {dir}",
        ],
    );
    check_cluster(&with("env = { \"A=B\" = \"\" }"), &["web.toml:5:17: component a: \"A=B\" is no name of a variable"]);
    check_cluster(
        &with("cwd = \"x\""),
        &["web.toml:5:7: component a: \"x\" must be an absolute path; begin it with {dir} or {runtime}"],
    );
}

#[test]
fn a_socket_path_that_the_kernel_would_refuse_is_refused_first() {
    let long = format!("/{}", "x".repeat(100));
    let site = Site::new(&format!("runtime_dir = \"{long}\"\n"), &[]);
    let message = site.load(&[]).unwrap_err().to_string();
    assert!(message.contains(":1:15: the socket path /xxx"), "{message}");
    assert!(message.contains("has 113 bytes and the kernel takes 107; set a shorter runtime_dir"), "{message}");
}

#[test]
fn a_daemon_without_a_place_for_state_says_where_to_name_one() {
    let site = Site::new("", &[]);
    let load = |env: &Env, flags: &Overrides| load_daemon(&site.path("supervisor.toml"), env, flags);
    let message = load(&Env::default(), &Overrides::default()).unwrap_err().to_string();
    assert!(
        message.ends_with(
            "there is no place for state: set state_dir here, give -state-dir, or set XDG_STATE_HOME or HOME"
        )
    );
    let home = load(&env(&[("HOME", "/home/x")]), &Overrides::default()).unwrap();
    assert_eq!(home.state_dir, PathBuf::from("/home/x/.local/state/socialweb-computer"));
    assert_eq!(home.runtime_dir, home.state_dir.join("run"));
    let relative = env(&[("XDG_STATE_HOME", "rel"), ("HOME", "/h"), ("XDG_RUNTIME_DIR", "/r")]);
    let daemon = load(&relative, &Overrides { state_dir: Some("/flag".into()), ..Overrides::default() }).unwrap();
    assert_eq!((daemon.state_dir, daemon.runtime_dir), ("/flag".into(), "/r/socialweb-computer".into()));
}
