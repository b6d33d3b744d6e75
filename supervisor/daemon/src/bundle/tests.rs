//! Secrets are planted wherever an operator or a component may have put them; none is in the bundle.

use super::{BundleError, Entry, Told, collect, write};
use crate::doctor::{Asked, Place, Seen};
use socialweb_wire::Report;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Each is planted in one place; most turn up in the logs too.
const PLANTED: [&str; 9] = [
    "hunter2-in-env",
    "hunter2-in-argv",
    "hunter2-after-flag",
    "hunter2-in-comment",
    "hunter2 in a key file of its own",
    "VGhpcyBpcyBub3QgYSByZWFsIGtleTE5",
    "hunter2-in-url",
    "hunter2-in-event",
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl",
];

/// What a line of a component's log begins with.
const TIME: &str = "2026-11-30T23:42:46.123Z 7 6";

/// A word in a line of its own is a secret only to who has seen it elsewhere, or knows its looks.
fn can_be_known(secret: &str) -> bool {
    !["comment", "url", "event"].iter().any(|place| secret.ends_with(place))
}

fn put(root: &Path, name: &str, text: &str, mode: u32) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn plant(root: &Path) {
    put(root, "supervisor.toml", "state_dir = \"state\" # hunter2-in-comment\n", 0o600);
    let cluster = "kind = \"exec\"\n[[component]]\nname = \"web\"\n\
                   argv = [\"web\", \"--token=hunter2-in-argv\", \"--password\", \"hunter2-after-flag\"]\n\
                   env = { KEY = \"hunter2-in-env\" }\n";
    put(root, "clusters.d/web.toml", cluster, 0o600);
    put(root, "clusters.d/broken.toml", "password = hunter2-in-comment", 0o600);
    let group = "state/groups/web";
    put(root, &format!("{group}/record.json"), r#"{"schema":1,"name":"web","ports":{"https":61000}}"#, 0o600);
    put(root, &format!("{group}/receipts/1-1.json"), r#"{"group":"web","removed":true}"#, 0o600);
    let event = r#"{"at":1,"event":"declared","spec":{"launch":{"argv":["web"],"env":{"K":"hunter2-in-event"}}}}"#;
    put(root, &format!("{group}/events.jsonl"), &format!("{event}\n"), 0o600);
    put(root, &format!("{group}/openbao/seal.key"), "hunter2 in a key file of its own\n", 0o600);
    let pem = "-----BEGIN PRIVATE KEY-----\nVGhpcyBpcyBub3QgYSByZWFsIGtleTE5\n-----END PRIVATE KEY-----\n";
    put(root, &format!("{group}/pki/ca.key"), pem, 0o600);
    put(
        root,
        &format!("{group}/credentials/operator.kubeconfig"),
        &format!("users:\n- token: {}\n", PLANTED[8]),
        0o600,
    );
    let mut log = format!("{TIME} the web listens on 127.0.0.1:61000\n");
    PLANTED
        .iter()
        .filter(|secret| can_be_known(secret))
        .for_each(|secret| log += &format!("{TIME} leaking {secret} here\n"));
    log += &format!("{TIME} postgres://bob:hunter2-in-url@db/x\n{pem}");
    put(root, &format!("{group}/logs/web.log"), &log, 0o600);
    std::os::unix::fs::symlink("/etc/passwd", root.join(format!("{group}/logs/link.log"))).unwrap();
    nix::unistd::mkfifo(&root.join(format!("{group}/logs/fifo.log")), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn bundle(root: &Path, state: Option<PathBuf>, told: &Told) -> Vec<Entry> {
    let asked = Asked {
        seen: Seen::Absent,
        socket: "/none".into(),
        config: Some(root.join("supervisor.toml")),
        state_dir: state,
    };
    collect(&Place::find(asked), told, &Report::new("nobody", vec![]), 1000)
}

#[test]
fn no_planted_secret_is_in_the_bundle_and_what_helps_is() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    let mut told = Told::default();
    told.files.push(("status.json".into(), r#"{"groups":[{"name":"web","reason":"token=hunter2-in-argv"}]}"#.into()));
    told.files.push(("metrics.txt".into(), "socialweb_groups 1\n".into()));
    told.logs.insert("web".into(), format!("1 web {}\n1 web listening\n", PLANTED[0]));
    let entries = bundle(dir.path(), None, &told);
    for entry in &entries {
        for secret in PLANTED.iter().chain(&["hunter2", "PRIVATE KEY", "root:"]) {
            assert!(!entry.text.contains(secret), "{secret:?} is in {}:\n{}", entry.name, entry.text);
        }
    }
    let text = |name: &str| &entries.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("no {name}")).text;
    assert!(text("state/groups/web/logs/web.log").contains("the web listens on 127.0.0.1:61000"));
    assert!(
        text("config/clusters.d/web.toml").contains("name = \"web\"")
            && text("config/clusters.d/web.toml").contains("KEY")
    );
    assert!(text("state/groups/web/record.json").contains("61000"));
    assert!(text("state/groups/web/events.jsonl").contains("declared"));
    assert!(text("logs/web.txt").contains("listening"));
    assert!(text("README.txt").contains("state/groups/web/receipts/1-1.json"));
    for name in ["link.log", "fifo.log", "ca.key", "seal.key", "operator.kubeconfig"] {
        assert!(!entries.iter().any(|e| e.name.ends_with(name)), "{name} is not taken");
    }
}

#[test]
fn a_bundle_is_private_whole_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, entries) = (dir.path().join("b.tar"), [Entry { name: "a/b.txt".into(), text: "hello\n".into() }]);
    let written = write(&file, &entries).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        (written.bytes, written.entries.as_slice()),
        (fs::metadata(&file).unwrap().len(), &["a/b.txt".to_string()][..])
    );
    let mut archive = tar::Archive::new(fs::File::open(&file).unwrap());
    let names: Vec<_> = archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().into_owned()).collect();
    assert_eq!(names, [Path::new("socialweb-bundle/a/b.txt")]);
    let again = write(&file, &entries).unwrap_err();
    assert!(matches!(again, BundleError::Exists { .. }), "{again}");
    let nowhere = write(&dir.path().join("no/b.tar"), &entries).unwrap_err();
    assert!(nowhere.to_string().contains("no/b.tar"), "{nowhere}");
}

#[test]
fn without_state_and_configuration_there_is_a_bundle_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> =
        bundle(dir.path(), Some(dir.path().join("none")), &Told::default()).into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["versions.txt", "doctor.json", "README.txt"]);
}
