//! The state folder on real disks: full, read-only, in memory, taken, corrupt.
#![allow(clippy::unwrap_used)]

use super::testing::{SmallDisk, group};
use super::*;
use serde_json::json;
use socialweb_core::event::Why;
use socialweb_core::{Receipt, Time};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Home {
        Home { dir: TempDir::new().unwrap() }
    }
    fn path(&self) -> PathBuf {
        self.dir.path().join("state")
    }
    fn open(&self) -> StateDir {
        StateDir::open(&self.path(), Tmpfs::Allow).unwrap()
    }
}

#[test]
fn the_folder_is_made_closed_and_an_open_one_is_closed_with_a_warning() {
    let home = Home::new();
    let state = home.open();
    assert_eq!((mode(&home.path()), state.warnings().len()), (0o700, 0));
    assert_eq!(mode(&state.layout().lock()), 0o600);
    drop(state);
    fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    let state = home.open();
    assert_eq!(mode(&home.path()), 0o700);
    assert!(state.warnings()[0].contains("755"), "{:?}", state.warnings());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_is_named() {
    let home = Home::new();
    let first = home.open();
    let refused = StateDir::open(&home.path(), Tmpfs::Allow).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
    assert!(refused.contains("supervisor.lock"), "{refused}");
    drop(first);
    home.open();
}

#[test]
fn a_folder_in_memory_is_refused_with_the_way_out_and_left_alone() {
    let Some(disk) = SmallDisk::mount("a_folder_in_memory_is_refused", 64) else { return };
    let path = disk.path().join("a").join("state");
    let refused = StateDir::open(&path, Tmpfs::Refuse).unwrap_err().to_string();
    for word in ["tmpfs", "-state-dir", "--allow-tmpfs", "TMPDIR"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert!(names(disk.path()).is_empty());
    StateDir::open(&path, Tmpfs::Allow).unwrap();
}

#[test]
fn a_read_only_folder_is_refused_by_that_name() {
    let Some(disk) = SmallDisk::mount("a_read_only_folder_is_refused", 64) else { return };
    disk.remount_read_only();
    let refused = StateDir::open(disk.path(), Tmpfs::Allow).unwrap_err();
    assert!(matches!(refused, StateError::ReadOnly { .. }), "{refused}");
}

#[test]
fn a_folder_of_another_account_is_refused() {
    let home = Home::new();
    fs::create_dir(home.path()).unwrap();
    if std::os::unix::fs::chown(home.path(), Some(4711), None).is_err() {
        println!("SKIP: a_folder_of_another_account_is_refused: root: only root can chown");
        return;
    }
    let refused = StateDir::open(&home.path(), Tmpfs::Allow).unwrap_err();
    assert!(matches!(refused, StateError::NotOurs { owner: 4711, .. }), "{refused}");
    assert!(names(&home.path()).is_empty());
}

#[test]
fn a_file_in_the_place_of_the_folder_is_refused() {
    let home = Home::new();
    fs::write(home.path(), "x").unwrap();
    let refused = StateDir::open(&home.path(), Tmpfs::Allow).unwrap_err();
    assert!(matches!(refused, StateError::NotAFolder { .. }), "{refused}");
}

#[test]
fn a_write_replaces_a_file_as_a_whole_with_its_mode_and_leaves_no_other() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("x");
    write_atomic(&path, b"old", 0o644, Fsync::No).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    write_atomic(&path, b"new", 0o600, Fsync::Yes).unwrap();
    assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode, "written in place: a crash would tear it");
    assert_eq!(names(home.path()), ["x"]);
}

#[test]
fn a_file_is_closed_to_others_from_its_creation() {
    let home = TempDir::new().unwrap();
    let (temp, _file) = file::create_temp(home.path(), &home.path().join("secret")).unwrap();
    assert_eq!(mode(&temp), 0o600);
}

#[test]
fn a_full_disk_leaves_the_old_content_at_every_write() {
    let Some(disk) = SmallDisk::mount("a_full_disk_leaves_the_old_content", 256) else { return };
    let state = StateDir::open(disk.path(), Tmpfs::Allow).unwrap();
    let layout = state.layout();
    let demo = group("demo");
    state.ensure_group(&demo).unwrap();
    let (mut leases, _) = Leases::open(layout, few_ports()).unwrap();
    let mut record = GroupRecord::new(demo.clone());
    leases.ensure(&mut record, &roles()).unwrap();
    leases.flush_now().unwrap();
    let receipts = Receipts::new(layout.receipts(&demo));
    receipts.save(&receipt(1)).unwrap();
    let mut events = EventLog::new(layout.events(&demo));
    assert_eq!(events.append(&json!({"n": 1})), Logged::Written);
    let old = (fs::read(layout.record(&demo)).unwrap(), fs::read(layout.leases()).unwrap());
    disk.fill();
    let before = names(&layout.group(&demo));

    let bigger = GroupRecord { account: Some("x".repeat(8192)), ..record.clone() };
    let error = bigger.save(layout, Fsync::Yes).unwrap_err();
    assert!(!error.is_visible() && error.to_string().contains("free some space"), "{error}");
    let more = [PortRole::Single("y".repeat(8192))];
    assert!(matches!(leases.ensure(&mut record, &more), Err(LeaseError::Write(_))));
    assert_eq!(record.ports, leases.of(&demo));
    assert_eq!(record.ports.len(), 3);
    assert!(receipts.save(&Receipt { why: Why::GaveUp("z".repeat(8192)), ..receipt(2) }).is_err());
    assert_eq!(receipts.latest().unwrap().unwrap().generation, 1);
    let long = json!({"n": "x".repeat(8192)});
    assert_eq!((events.append(&long), events.lost()), (Logged::Waiting, 0));

    let now = (fs::read(layout.record(&demo)).unwrap(), fs::read(layout.leases()).unwrap());
    assert_eq!(now, old);
    assert_eq!(names(&layout.group(&demo)), before, "a temporary file was left");
    let log = fs::read_to_string(layout.events(&demo)).unwrap();
    assert_eq!(log.lines().collect::<Vec<_>>(), [r#"{"n":1}"#]);
    fs::remove_file(disk.path().join("filler")).unwrap();
    assert_eq!(events.append(&json!({"n": 3})), Logged::Written);
    let log = fs::read_to_string(layout.events(&demo)).unwrap();
    assert_eq!(log.lines().collect::<Vec<_>>(), [r#"{"n":1}"#, &long.to_string(), r#"{"n":3}"#], "nothing is lost");
}

/// What loading a record with this content says.
fn aside(content: &str) -> String {
    let home = TempDir::new().unwrap();
    let path = home.path().join("record.json");
    fs::write(&path, content).unwrap();
    let Loaded::SetAside(aside) = load_record::<GroupRecord>(&path).unwrap() else { panic!("accepted {content:?}") };
    assert_eq!(fs::read_to_string(&aside.moved_to).unwrap(), content);
    assert!(!path.exists());
    let name = aside.moved_to.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("record.json.corrupt-") && name.ends_with("-1"), "{name}");
    aside.to_string()
}

#[test]
fn a_record_that_cannot_be_used_is_kept_aside_and_named() {
    assert!(aside("").contains("not JSON"));
    assert!(aside("{\"schema\": 1, \"na").contains("not JSON"));
    assert!(aside("{}").contains("no schema number"));
    assert!(aside("{\"schema\": 99}").contains("schema 99"));
    assert!(aside("{\"schema\": 1, \"name\": \"../x\"}").contains("DNS label"));
}

#[test]
fn two_corrupt_records_in_one_second_are_both_kept() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("record.json");
    for content in ["a", "b", "c"] {
        fs::write(&path, content).unwrap();
        load_record::<GroupRecord>(&path).unwrap();
    }
    let mut kept: Vec<_> =
        names(home.path()).iter().map(|n| fs::read_to_string(home.path().join(n)).unwrap()).collect();
    kept.sort();
    assert_eq!(kept, ["a", "b", "c"]);
}

#[test]
fn a_record_that_cannot_be_read_is_an_error_and_not_absence() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    let path = home.path().join("file/record.json");
    assert!(matches!(load_record::<GroupRecord>(&path), Err(LoadError::Read { .. })));
    assert!(matches!(load_record::<GroupRecord>(&home.path().join("none")), Ok(Loaded::Absent)));
}

#[test]
fn a_record_survives_its_own_writing() {
    let home = Home::new();
    let state = home.open();
    let demo = group("demo");
    state.ensure_group(&demo).unwrap();
    let record = GroupRecord {
        ports: [("https".to_string(), 61000)].into(),
        generation: 7,
        desired: Desired::ParkedByOperator,
        account: Some("demo".into()),
        ..GroupRecord::new(demo.clone())
    };
    record.save(state.layout(), Fsync::Yes).unwrap();
    assert_eq!(GroupRecord::load(state.layout(), &demo).unwrap().found().unwrap(), record);
    assert_eq!(mode(&state.layout().record(&demo)), 0o600);
}

#[test]
fn a_delete_takes_all_of_a_group_and_nothing_else() {
    let home = Home::new();
    let state = home.open();
    for name in ["demo", "other"] {
        state.ensure_group(&group(name)).unwrap();
        fs::write(state.layout().group(&group(name)).join("data"), "x").unwrap();
    }
    let trash = state.trash_group(&group("demo")).unwrap().unwrap();
    assert!(state.trash_group(&group("demo")).unwrap().is_none());
    assert_eq!(state.layout().list_groups().unwrap(), [group("other")]);
    empty_trash(&trash).unwrap();
    assert_eq!(names(&trash), Vec::<String>::new());
    drop_trash(&trash).unwrap();
    drop_trash(&trash).unwrap();
    assert_eq!(names(&state.layout().groups()), ["other"]);
    assert_eq!(state.layout().list_groups().unwrap(), [group("other")]);
}

#[test]
fn what_a_kill_left_in_the_middle_of_a_delete_or_a_write_is_settled_at_the_next_open() {
    let home = Home::new();
    let state = home.open();
    let (mut leases, _) = Leases::open(state.layout(), few_ports()).unwrap();
    for name in ["demo", "other"] {
        state.ensure_group(&group(name)).unwrap();
        leases.ensure(&mut GroupRecord::new(group(name)), &roles()).unwrap();
    }
    leases.flush_now().unwrap();
    let layout = state.layout().clone();
    drop((state, leases));
    fs::rename(layout.group(&group("demo")), layout.groups().join(".trash-1700000000-1-demo")).unwrap();
    fs::write(layout.group(&group("other")).join(".record.json.tmp-77-3"), "half").unwrap();
    fs::write(layout.root().join(".leases.json.tmp-77-4"), "half").unwrap();

    let state = home.open();
    assert_eq!(names(&layout.groups()), ["other"]);
    assert_eq!(names(&layout.group(&group("other"))), ["record.json"]);
    assert_eq!(names(layout.root()), ["groups", "leases.json", "supervisor.lock"]);
    let (leases, warnings) = Leases::open(state.layout(), few_ports()).unwrap();
    assert!(leases.of(&group("demo")).is_empty());
    assert_eq!(leases.of(&group("other")).len(), 3);
    assert_eq!(warnings, Vec::<String>::new());
}

fn receipt(generation: u64) -> Receipt {
    Receipt {
        schema: socialweb_core::receipt::SCHEMA,
        group: group("demo"),
        generation,
        why: Why::Operator,
        began: Time(1),
        ended: Time(2),
        elapsed_ms: 1,
        path_shut: true,
        components: Vec::new(),
        strays: Vec::new(),
        removed: true,
    }
}

#[test]
fn the_last_twenty_receipts_are_kept_in_their_order_even_when_generations_begin_anew() {
    let home = TempDir::new().unwrap();
    let receipts = Receipts::new(home.path().join("receipts"));
    assert!(receipts.latest().unwrap().is_none());
    for generation in (1..=22).chain([1, 2]) {
        receipts.save(&receipt(generation)).unwrap();
    }
    let kept: Vec<u64> = receipts.list().unwrap().iter().map(|r| r.generation).collect();
    assert_eq!(kept, (5..=22).chain([1, 2]).collect::<Vec<_>>());
    assert_eq!(receipts.latest().unwrap().unwrap(), receipt(2));
    assert!(home.path().join("receipts/2-24.json").exists());
    assert_eq!(names(&home.path().join("receipts")).len(), receipts::KEEP);
    fs::write(home.path().join("receipts/2-24.json"), "{").unwrap();
    assert_eq!(receipts.latest().unwrap().unwrap(), receipt(1));
    assert!(names(&home.path().join("receipts")).iter().any(|n| n.starts_with("2-24.json.corrupt-")));
}

#[test]
fn an_event_log_is_bounded_and_says_when_a_new_file_begins() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("events.jsonl");
    let mut log = EventLog::with_limit(&path, 100);
    let said: Vec<Logged> = (0..30).map(|n| log.append(&json!({ "n": n }))).collect();
    assert!(said.contains(&Logged::WrittenToNewFile));
    assert_eq!(names(home.path()), ["events.jsonl", "events.jsonl.1"]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.len() <= 100 && text.ends_with("{\"n\":29}\n"));
}

#[test]
fn an_event_log_that_cannot_be_written_waits_up_to_a_bound_and_then_counts() {
    let mut log = EventLog::new("/dev/full");
    assert_eq!((log.append(&1), log.append(&2), log.lost()), (Logged::Waiting, Logged::Waiting, 0));
    let large = "x".repeat(200 << 10);
    assert_eq!((log.append(&large), log.append(&large), log.lost()), (Logged::Waiting, Logged::Lost, 1));
    assert_eq!((log.append(&3), log.lost()), (Logged::Waiting, 1), "what fits still waits");
}

#[test]
fn an_event_ring_tells_what_a_late_reader_missed() {
    let mut ring = EventRing::new(3);
    assert_eq!((0..5).map(|n| ring.push(n * 10)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let (missed, rest) = ring.since(1);
    assert_eq!((missed, rest.collect::<Vec<_>>()), (1, vec![(2, &20), (3, &30), (4, &40)]));
    let (missed, rest) = ring.since(4);
    assert_eq!((missed, rest.collect::<Vec<_>>()), (0, vec![(4, &40)]));
    assert_eq!(ring.since(9).1.count(), 0);
    assert_eq!(ring.next_number(), 5);
}

fn roles() -> [PortRole; 2] {
    [PortRole::Pair("https".into(), "https-inner".into()), PortRole::Single("ccm".into())]
}

fn few_ports() -> LeaseOptions {
    LeaseOptions {
        ranges: vec![61000..=61009, 20000..=20003],
        ephemeral: PortSet::default(),
        is_bound: Box::new(|_| false),
    }
}

mod leases;
mod odd;
mod properties;
