//! What is not as it should be: no files, links, a folder that was moved away, a full disk at the start.

use super::*;

/// Puts something that is no file where a file is expected.
fn put_no_file(kind: &str, path: &Path) {
    match kind {
        "fifo" => nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap(),
        "folder" => fs::create_dir(path).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        _ => std::os::unix::fs::symlink(path, path).unwrap(),
    }
}

const NO_FILES: [&str; 4] = ["fifo", "folder", "socket", "link to itself"];

#[test]
fn what_is_no_file_in_a_records_place_is_moved_aside_and_holds_nobody_up() {
    for kind in NO_FILES {
        let home = TempDir::new().unwrap();
        let path = home.path().join("record.json");
        put_no_file(kind, &path);
        let loaded = load_record::<GroupRecord>(&path).unwrap();
        let Loaded::SetAside(aside) = loaded else { panic!("{kind}: {loaded:?}") };
        assert!(aside.moved_to.symlink_metadata().is_ok() && path.symlink_metadata().is_err(), "{kind}");
        assert!(aside.to_string().contains("no regular file"), "{aside}");
    }
}

#[test]
fn a_record_without_end_is_moved_aside_and_not_read_whole() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("record.json");
    fs::File::create(&path).unwrap().set_len(1 << 35).unwrap();
    let loaded = load_record::<GroupRecord>(&path).unwrap();
    let Loaded::SetAside(aside) = loaded else { panic!("{loaded:?}") };
    assert!(aside.to_string().contains("larger than") && !path.exists(), "{aside}");
}

#[test]
fn receipts_are_neither_kept_nor_let_go_through_a_link() {
    let home = TempDir::new().unwrap();
    let (others, link) = (home.path().join("others"), home.path().join("receipts"));
    for generation in 1..=u64::try_from(receipts::KEEP).unwrap() {
        Receipts::new(&others).save(&super::receipt(generation)).unwrap();
    }
    let before = names(&others);
    std::os::unix::fs::symlink(&others, &link).unwrap();
    let refused = Receipts::new(&link).save(&super::receipt(99)).unwrap_err();
    assert!(crate::chain::chain(&refused).contains("is a link or no folder; move it away"), "{refused}");
    Receipts::new(&link).list().unwrap_err();
    assert_eq!(names(&others), before);
}

#[test]
fn what_is_no_file_in_the_locks_place_is_refused_and_holds_nobody_up() {
    for kind in NO_FILES {
        let home = Home::new();
        drop(home.open());
        let path = home.path().join("supervisor.lock");
        fs::remove_file(&path).unwrap();
        put_no_file(kind, &path);
        // As a first daemon that has it locked.
        let _held = (kind == "fifo").then(|| {
            let fifo = fs::File::options().read(true).write(true).open(&path).unwrap();
            nix::fcntl::Flock::lock(fifo, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap()
        });
        let refused = StateDir::open(&home.path(), Tmpfs::Allow).unwrap_err();
        assert!(matches!(refused, StateError::LockFile { .. }), "{kind}: {refused}");
    }
}

#[test]
fn a_group_below_which_something_is_mounted_is_not_deleted() {
    let Some(disk) = SmallDisk::mount("a_group_below_which_something_is_mounted_is_not_deleted", 64) else { return };
    let home = Home { dir: TempDir::new_in(disk.path()).unwrap() };
    let state = home.open();
    let folder = state.ensure_group(&group("demo")).unwrap();
    let inner = folder.join("inner");
    fs::create_dir(&inner).unwrap();
    let bind = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some(disk.path()), &inner, None::<&str>, bind, None::<&str>).unwrap();
    let refused = state.trash_group(&group("demo"));
    let in_trash = empty_trash(&folder);
    nix::mount::umount(&inner).unwrap();
    let refused = crate::chain::chain(&refused.unwrap_err());
    assert!(refused.contains("unmount it") && refused.contains("inner"), "{refused}");
    in_trash.unwrap_err();
    assert!(inner.is_dir() && home.path().is_dir(), "nothing is removed, least of all through the mount");
    state.trash_group(&group("demo")).unwrap().unwrap();
}

#[test]
fn a_link_to_a_folder_is_a_group_and_anything_else_in_its_place_is_named() {
    let home = Home::new();
    let state = home.open();
    let elsewhere = TempDir::new().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), state.layout().group(&group("linked"))).unwrap();
    for (n, kind) in NO_FILES.iter().enumerate().filter(|(_, kind)| **kind != "folder") {
        let name = group(&format!("odd{n}"));
        put_no_file(kind, &state.layout().group(&name));
        let refused = state.ensure_group(&name).unwrap_err();
        assert!(matches!(refused, StateError::InTheWay { .. }), "{kind}: {refused}");
    }
    state.ensure_group(&group("linked")).unwrap();
    let layout = state.layout().clone();
    drop(state);
    let state = home.open();
    assert_eq!(state.layout().list_groups().unwrap(), [group("linked")]);
    let mut record = GroupRecord::new(group("linked"));
    let (mut leases, warnings) = Leases::open(&layout, few_ports()).unwrap();
    assert_eq!(
        warnings,
        ["no record and no lease tells the ports of group linked; it gets new ones when it starts"; 0]
    );
    leases.ensure(&mut record, &roles()).unwrap();
    let trash = state.trash_group(&group("linked")).unwrap().unwrap();
    empty_trash(&trash).unwrap();
    drop_trash(&trash).unwrap();
    assert_eq!(names(elsewhere.path()), ["record.json"], "what a link leads to is not removed through it");
}

#[test]
fn a_folder_that_is_moved_away_is_noticed() {
    let home = Home::new();
    let state = home.open();
    assert!(state.is_in_place());
    let away = home.dir.path().join("away");
    fs::rename(home.path(), &away).unwrap();
    assert!(!state.is_in_place());
    fs::create_dir(home.path()).unwrap();
    assert!(!state.is_in_place(), "another folder of the same name is not it");
    fs::remove_dir(home.path()).unwrap();
    fs::rename(&away, home.path()).unwrap();
    assert!(state.is_in_place());
}

#[test]
fn a_full_disk_keeps_no_daemon_from_coming_up() {
    let Some(disk) = SmallDisk::mount("a_full_disk_keeps_no_daemon_from_coming_up", 256) else { return };
    let state = StateDir::open(disk.path(), Tmpfs::Allow).unwrap();
    state.ensure_group(&group("demo")).unwrap();
    let layout = state.layout().clone();
    let mut record = GroupRecord::new(group("demo"));
    let (mut leases, _) = Leases::open(&layout, few_ports()).unwrap();
    leases.ensure(&mut record, &roles()).unwrap();
    drop((state, leases));
    disk.fill();
    let state = StateDir::open(disk.path(), Tmpfs::Allow).unwrap();
    let (leases, warnings) = Leases::open(&layout, few_ports()).unwrap();
    assert_eq!((leases.of(&group("demo")), warnings.len()), (record.ports, 1), "{warnings:?}");
    assert!(warnings[0].contains("free some space"), "{warnings:?}");
    drop(state);
}
