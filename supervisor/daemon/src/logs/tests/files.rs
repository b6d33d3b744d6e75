//! Rotated files: bounded, made anew, full.

use super::*;

/// How a note of dropped lines reads.
const DROPPED: &str = " lines were dropped here";

/// The number in such a note.
fn dropped(note: &str) -> u64 {
    let (before, _) = note.split_once(DROPPED).unwrap();
    before.rsplit('(').next().unwrap().parse().unwrap()
}

#[test]
fn a_later_daemon_reads_the_tail_from_the_files_across_a_rotation() {
    let small = Options { max_file_bytes: 400, ..options(Sink::Files) };
    let mut room = Room::new(small.clone());
    let (mut child, _) = room.attach("kine");
    for n in 0..20 {
        writeln!(child, "line {n}").unwrap();
        room.drain();
    }
    let (later, _pump) = Logs::new(small).unwrap();
    let got = texts(&later, "kine", &room.folder(), 12);
    let want: Vec<String> = (8..20).map(|n| format!("line {n}")).collect();
    assert_eq!(got, want);
}

#[test]
fn rotated_files_are_bounded_in_size_and_number() {
    let mut room = Room::new(Options { max_file_bytes: 300, keep_files: 2, ..options(Sink::Files) });
    let (mut child, _) = room.attach("kine");
    for n in 0..100 {
        writeln!(child, "line {n}").unwrap();
        room.drain();
    }
    let mut files: Vec<_> = fs::read_dir(room.folder()).unwrap().map(|e| e.unwrap()).collect();
    files.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = files.iter().map(|e| e.file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["kine.log", "kine.log.1", "kine.log.2"]);
    assert!(files.iter().all(|e| e.metadata().unwrap().len() <= 300));
}

#[test]
fn a_log_file_that_somebody_deleted_or_moved_away_is_made_anew() {
    let mut room = Room::files();
    let (mut child, _) = room.attach("kine");
    let path = room.folder().join("kine.log");
    let mut write = |text: &[u8], room: &mut Room| {
        child.write_all(text).unwrap();
        room.drain();
    };
    write(b"one\n", &mut room);
    fs::remove_file(&path).unwrap();
    write(b"two\n", &mut room);
    assert!(fs::read_to_string(&path).unwrap().ends_with(" two\n"));
    fs::remove_dir_all(room.folder()).unwrap();
    write(b"three\n", &mut room);
    assert!(fs::read_to_string(&path).unwrap().ends_with(" three\n"));
    assert_eq!(room.counters("kine").lines_dropped, 0);
}

#[test]
fn a_deleted_group_does_not_come_back_through_its_log_and_each_dropped_line_is_counted() {
    let mut room = Room::files();
    let folder = room.home.path().join("gone").join("logs");
    let (fd, _) = room.logs.attach(source("kine"), Birth(1), folder.clone(), None).unwrap();
    let mut child = fs::File::from(fd);
    child.write_all(b"a\nb\nc\n").unwrap();
    room.drain();
    let counters = room.counters("kine");
    assert_eq!(counters, Counters { lines_in: 3, bytes_in: 6, lines_dropped: 3, ..Counters::default() });
    assert!(!folder.parent().unwrap().exists());
    assert_eq!(texts(&room.logs, "kine", &folder, 9), ["a", "b", "c"], "the ring has them all the same");
}

#[test]
fn a_full_disk_drops_and_counts_exactly_and_keeps_whole_lines() {
    let Some(disk) = SmallDisk::mount("a_full_disk_drops_and_counts_exactly", 64) else { return };
    let mut room = Room::files();
    let folder = disk.path().join("logs");
    let (fd, _) = room.logs.attach(source("kine"), Birth(1), folder.clone(), None).unwrap();
    let mut child = fs::File::from(fd);
    for n in 0..2000 {
        writeln!(child, "line {n} {}", "x".repeat(60)).unwrap();
        room.drain();
    }
    let counters = room.counters("kine");
    let text = fs::read_to_string(folder.join("kine.log")).unwrap();
    assert!(text.ends_with('\n'));
    let (notes, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.contains(DROPPED));
    assert_eq!(lines.len() as u64, counters.lines_written);
    assert!(notes.into_iter().map(dropped).sum::<u64>() <= counters.lines_dropped);
    assert_eq!(counters.lines_in, 2000);
    assert_eq!(counters.lines_written + counters.lines_dropped, 2000);
    assert!(counters.lines_dropped > 0);
}

#[test]
fn when_there_is_room_again_the_file_says_how_many_lines_are_missing() {
    let Some(disk) = SmallDisk::mount("when_there_is_room_again", 64) else { return };
    let mut room = Room::files();
    let folder = disk.path().join("logs");
    let (fd, _) = room.logs.attach(source("kine"), Birth(1), folder.clone(), None).unwrap();
    let mut child = fs::File::from(fd);
    writeln!(child, "first").unwrap();
    room.drain();
    disk.fill();
    for n in 0..200 {
        writeln!(child, "line {n} {}", "x".repeat(60)).unwrap();
        room.drain();
    }
    fs::remove_file(disk.path().join("filler")).unwrap();
    writeln!(child, "last").unwrap();
    room.drain();
    let counters = room.counters("kine");
    assert_eq!((counters.lines_in, counters.lines_waiting), (202, 0));
    assert_eq!(counters.lines_written + counters.lines_dropped, 202);
    let text = fs::read_to_string(folder.join("kine.log")).unwrap();
    let told: u64 = text.lines().filter(|l| l.contains(DROPPED)).map(dropped).sum();
    assert_eq!(told, counters.lines_dropped, "{text}");
    assert!(told > 0 && text.lines().last().unwrap().ends_with(" last"), "{text}");
}

/// Supervisor/supervisor 240: a log file that is gone, or no file at all, must not stop the draining.
#[test]
fn a_link_or_a_fifo_in_place_of_a_log_costs_its_lines_and_nobodys_time() {
    let mut room = Room::files();
    fs::create_dir(room.folder()).unwrap();
    let (mut linked, _) = room.attach("linked");
    let (mut piped, _) = room.attach("piped");
    let elsewhere = room.home.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, room.folder().join("linked.log")).unwrap();
    nix::unistd::mkfifo(&room.folder().join("piped.log"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    for child in [&mut linked, &mut piped] {
        child.write_all(b"a\nb\n").unwrap();
    }
    room.drain();
    for name in ["linked", "piped"] {
        assert_eq!((room.counters(name).lines_written, room.counters(name).lines_dropped), (0, 2), "{name}");
        assert_eq!(room.texts(name, 2), ["a", "b"], "memory has them all the same");
        fs::remove_file(room.folder().join(format!("{name}.log"))).unwrap();
    }
    assert!(!elsewhere.exists(), "a link is not followed");
    for child in [&mut linked, &mut piped] {
        child.write_all(b"c\n").unwrap();
    }
    room.drain();
    for name in ["linked", "piped"] {
        let text = fs::read_to_string(room.folder().join(format!("{name}.log"))).unwrap();
        assert_eq!(text.lines().filter(|l| l.contains(DROPPED)).map(dropped).sum::<u64>(), 2, "{text}");
        assert!(text.ends_with(" c\n"), "{text}");
    }
}

#[test]
fn a_log_that_a_component_made_larger_than_memory_is_read_from_its_end() {
    let mut room = Room::new(Options { max_file_bytes: 1 << 40, ..options(Sink::Files) });
    let (mut child, _) = room.attach("kine");
    fs::create_dir(room.folder()).unwrap();
    fs::File::create(room.folder().join("kine.log")).unwrap().set_len(1 << 35).unwrap();
    for n in 0..3 {
        writeln!(child, "line {n}").unwrap();
        room.drain();
    }
    // Its limit is what bounds the look; another daemon's ring is empty.
    let (later, _pump) = Logs::new(Options { max_file_bytes: 400, ..options(Sink::Files) }).unwrap();
    // The first one has no line end before it.
    assert_eq!(texts(&later, "kine", &room.folder(), 12), ["line 1", "line 2"]);
}

#[test]
fn nothing_is_logged_through_a_link_in_the_place_of_the_folder() {
    let mut room = Room::files();
    let elsewhere = TempDir::new().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), room.folder()).unwrap();
    let (mut child, _) = room.attach("kine");
    writeln!(child, "line").unwrap();
    room.drain();
    assert_eq!((room.counters("kine").lines_dropped, fs::read_dir(elsewhere.path()).unwrap().count()), (1, 0));
    assert_eq!(texts(&room.logs, "kine", &room.folder(), 1), ["line"], "it is in memory all the same");
}
