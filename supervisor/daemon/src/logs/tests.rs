//! The room as others use it: real pipes, real children, turns by hand where order matters.
#![allow(clippy::unwrap_used)]

use super::store::State;
use super::*;
use crate::state::testing::{SmallDisk, group};
use socialweb_core::{Birth, ComponentName};
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

fn source(component: &str) -> Source {
    Source { group: group("demo"), component: ComponentName::new(component).unwrap() }
}

fn options(sink: Sink) -> Options {
    Options { sink, ..Options::default() }
}

struct Room {
    logs: Logs,
    pump: Pump,
    home: TempDir,
}

impl Room {
    fn new(options: Options) -> Room {
        let (logs, pump) = Logs::new(options).unwrap();
        Room { logs, pump, home: TempDir::new().unwrap() }
    }

    fn files() -> Room {
        Room::new(options(Sink::Files))
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join("logs")
    }

    fn attach(&self, component: &str) -> (fs::File, PipeId) {
        let (fd, id) = self.logs.attach(source(component), Birth(7), self.folder(), None).unwrap();
        (fs::File::from(fd), id)
    }

    fn drain(&mut self) {
        while self.pump.turn() == Turn::Busy {}
    }

    fn texts(&self, component: &str, n: usize) -> Vec<String> {
        texts(&self.logs, component, &self.folder(), n)
    }

    fn counters(&self, component: &str) -> Counters {
        self.logs.counters(&source(component))
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never: {what}");
}

fn texts(logs: &Logs, component: &str, folder: &Path, n: usize) -> Vec<String> {
    logs.tail(&source(component), folder, n).unwrap().lines.iter().map(|l| l.text.clone()).collect()
}

#[test]
fn a_line_is_kept_in_memory_and_in_the_file_with_its_time_birth_and_priority() {
    let mut room = Room::files();
    let (mut child, _) = room.attach("kine");
    child.write_all(b"<4>careful\nfine\n").unwrap();
    room.drain();
    let tail = room.logs.tail(&source("kine"), &room.folder(), 10).unwrap();
    let seen: Vec<_> = tail.lines.iter().map(|l| (l.text.as_str(), l.priority.number(), l.birth)).collect();
    assert_eq!(seen, [("careful", 4, Birth(7)), ("fine", 6, Birth(7))]);
    let text = fs::read_to_string(room.folder().join("kine.log")).unwrap();
    let lines: Vec<_> = text.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, ["7 4 careful", "7 6 fine"]);
    assert_eq!(tail.more, room.folder().join("kine.log").display().to_string());
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
    assert_eq!(counters, Counters { lines_in: 3, bytes_in: 6, lines_written: 0, lines_dropped: 3 });
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
    assert_eq!(text.lines().count() as u64, counters.lines_written);
    assert_eq!(counters.lines_in, 2000);
    assert_eq!(counters.lines_written + counters.lines_dropped, 2000);
    assert!(counters.lines_dropped > 0);
}

#[test]
fn a_pipe_outlives_its_leader_until_it_is_finished() {
    let mut room = Room::files();
    let (fd, id) = room.attach("sh");
    let mut stray = fd.try_clone().unwrap();
    let leader = Command::new("sh").args(["-c", "echo leader"]).stdout(Stdio::from(fd)).status().unwrap();
    assert!(leader.success());
    room.drain();
    stray.write_all(b"stray\nunfinished").unwrap();
    room.drain();
    assert_eq!(room.texts("sh", 9), ["leader", "stray"]);
    room.logs.finish(id);
    assert_eq!(room.texts("sh", 9), ["leader", "stray", "unfinished"]);
    // A test's child between fork and exec may hold a copy of the read end for a moment.
    wait_until("the read end is closed", || stray.write_all(b"x").is_err());
    assert_eq!(room.pump.turn(), Turn::Idle);
}

#[test]
fn the_end_of_the_stream_closes_the_pipe_and_finishes_the_last_line() {
    let mut room = Room::files();
    let (mut child, id) = room.attach("sh");
    child.write_all(b"last words").unwrap();
    drop(child);
    wait_until("the pipe is gone", || {
        room.drain();
        room.logs.shared.lock().pipes.is_empty()
    });
    assert_eq!(room.texts("sh", 9), ["last words"]);
    room.logs.finish(id);
    assert_eq!(room.counters("sh").lines_in, 1);
}

#[test]
fn an_overlong_line_is_kept_in_pieces_that_say_so() {
    let mut room = Room::files();
    let (mut child, _) = room.attach("kine");
    child.write_all(&[b"<3>", &vec![b'x'; 2 * MAX_LINE][..], b"\n"].concat()).unwrap();
    room.drain();
    let tail = room.logs.tail(&source("kine"), &room.folder(), 9).unwrap();
    let seen: Vec<_> = tail.lines.iter().map(|l| (l.text.len(), l.continues, l.priority.number())).collect();
    assert_eq!(seen, [(MAX_LINE - 3, true, 3), (MAX_LINE, true, 3), (3, false, 3)]);
    let (later, _pump) = Logs::new(options(Sink::Files)).unwrap();
    assert_eq!(later.tail(&source("kine"), &room.folder(), 9).unwrap().lines.len(), 3);
}

#[test]
fn a_watcher_sees_every_line_of_its_run_until_it_breaks() {
    let mut room = Room::files();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (logs, list) = (room.logs.clone(), Arc::clone(&seen));
    let watch: Watch = Box::new(move |line| {
        // Using the handle from inside a watcher must not deadlock.
        assert!(logs.counters(&line.source).lines_in > 0);
        list.lock().unwrap().push(line.text.clone());
        if line.text.contains("ready") { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let (fd, _) = room.logs.attach(source("kine"), Birth(1), room.folder(), Some(watch)).unwrap();
    let mut child = fs::File::from(fd);
    for text in ["starting", "ready now", "later"] {
        writeln!(child, "{text}").unwrap();
        room.drain();
    }
    assert_eq!(*seen.lock().unwrap(), ["starting", "ready now"]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_slow_follower_is_told_how_many_lines_it_missed_and_where() {
    let mut room = Room::files();
    let mut follower = room.logs.follow(group("demo"), None, 3);
    let mut other = room.logs.follow(group("other"), None, 3);
    let (mut child, _) = room.attach("kine");
    child.write_all(b"1\n2\n3\n4\n5\n").unwrap();
    room.drain();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(follower.next().await.unwrap());
    }
    child.write_all(b"6\n").unwrap();
    room.drain();
    got.push(follower.next().await.unwrap());
    let shown: Vec<String> = got
        .iter()
        .map(|f| match f {
            Followed::Line(line) => line.text.clone(),
            Followed::Missed(n) => format!("missed {n}"),
        })
        .collect();
    assert_eq!(shown, ["1", "2", "3", "missed 2", "6"]);
    child.write_all(b"1\n2\n3\n4\n5\n").unwrap();
    room.drain();
    assert!(matches!(follower.next().await, Some(Followed::Line(_))));
    assert!(matches!(follower.next().await, Some(Followed::Line(_))));
    child.write_all(b"6\n").unwrap();
    room.drain();
    assert!(matches!(follower.next().await, Some(Followed::Line(line)) if line.text == "3"));
    assert_eq!(follower.next().await, Some(Followed::Missed(2)), "told before what comes after");
    assert!(matches!(follower.next().await, Some(Followed::Line(line)) if line.text == "6"));
    drop(room);
    assert_eq!(other.next().await, None);
}

#[test]
fn a_thousand_idle_components_hold_no_ring_and_a_few_hundred_bytes_each() {
    let room = Room::files();
    let pipes: Vec<(OwnedFd, PipeId)> =
        (0..200).map(|n| room.logs.attach(source(&format!("c{n}")), Birth(1), room.folder(), None).unwrap()).collect();
    assert_eq!(room.logs.shared.lock().ring_capacity(), 0);
    const { assert!(State::idle_cost() <= 320) };
    assert!(!room.folder().exists(), "no file before the first line");
    drop(pipes);
}

#[test]
fn the_ring_is_bounded_in_lines_and_in_bytes() {
    let mut room = Room::new(Options { ring_lines: 5, ring_bytes: 4000, keep_files: 0, ..options(Sink::Files) });
    let (mut child, _) = room.attach("kine");
    child.write_all(b"1\n2\n3\n4\n5\n6\n7\n").unwrap();
    room.drain();
    assert_eq!(room.texts("kine", 5), ["3", "4", "5", "6", "7"]);
    writeln!(child, "{}", "x".repeat(3600)).unwrap();
    room.drain();
    let held = room.logs.tail(&source("kine"), Path::new("/nonexistent"), 5).unwrap().lines;
    assert!(held.len() < 5 && held.last().unwrap().text.len() == 3600, "{}", held.len());
}

#[test]
fn a_turn_reads_a_bounded_amount_and_the_turns_go_round_all_pipes() {
    let mut room = Room::files();
    let names: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    let full = "x\n".repeat(32 * 1024);
    let pipes: Vec<_> = names.iter().map(|name| room.attach(name)).collect();
    for (pipe, _) in &pipes {
        // Exactly what a pipe holds, so that each stays ready throughout.
        let mut pipe = pipe;
        pipe.write_all(full.as_bytes()).unwrap();
    }
    let served = |room: &Room| names.iter().filter(|n| room.counters(n).bytes_in > 0).count();
    room.pump.turn();
    assert_eq!(served(&room), PIPES_PER_TURN);
    assert!(names.iter().all(|n| room.counters(n).bytes_in <= READ as u64));
    room.pump.turn();
    room.pump.turn();
    assert_eq!(served(&room), names.len());
}

/// A flood of 50 MB by one child: another's line is served in the very next turn, and all is counted.
#[test]
fn a_flood_does_not_delay_another_component() {
    const TOTAL: u64 = 50_000_000;
    let mut room = Room::new(Options { max_file_bytes: 1 << 20, keep_files: 1, ..options(Sink::Files) });
    let (fd, _) = room.attach("flood");
    let script = format!("yes \"$(printf %0999d 0)\" | head -c {TOTAL}");
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::from(fd)).spawn().unwrap();
    let (mut quiet, _) = room.attach("quiet");
    while room.counters("flood").bytes_in < 1 << 20 {
        room.pump.turn();
    }
    quiet.write_all(b"hello\n").unwrap();
    room.pump.turn();
    assert_eq!(room.counters("quiet").lines_in, 1);
    let at_hello = room.counters("flood").bytes_in;
    assert!(at_hello < TOTAL, "the flood was over before the question was put");
    let before = room.counters("flood").bytes_in;
    room.pump.turn();
    assert!(room.counters("flood").bytes_in - before <= READ as u64, "a turn reads a bounded amount");
    while room.logs.shared.lock().pipes.len() > 1 {
        room.pump.turn();
    }
    assert!(child.wait().unwrap().success());
    let counters = room.counters("flood");
    assert_eq!(counters.bytes_in, TOTAL);
    assert_eq!(counters, Counters { lines_in: 50_000, bytes_in: TOTAL, lines_written: 50_000, lines_dropped: 0 });
}

/// The same through the task: the daemon's own loop goes round while a child floods.
#[tokio::test(flavor = "current_thread")]
async fn the_loop_goes_round_while_a_child_floods() {
    let room = Room::new(Options { max_file_bytes: 1 << 20, keep_files: 0, ..options(Sink::Files) });
    let (fd, _) = room.attach("flood");
    let mut child = Command::new("yes").arg("x".repeat(500)).stdout(Stdio::from(fd)).spawn().unwrap();
    let (mut quiet, _) = room.attach("quiet");
    let mut follower = room.logs.follow(group("demo"), Some(source("quiet").component), 8);
    let task = tokio::spawn(room.pump.run());
    for n in 0..20 {
        let before = room.logs.counters(&source("flood")).bytes_in;
        while room.logs.counters(&source("flood")).bytes_in <= before {
            tokio::task::yield_now().await;
        }
        writeln!(quiet, "line {n}").unwrap();
        match follower.next().await {
            Some(Followed::Line(line)) => assert_eq!(line.text, format!("line {n}")),
            other => panic!("{other:?}"),
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    task.abort();
}

struct FakeJournal {
    socket: UnixDatagram,
    home: TempDir,
}

impl FakeJournal {
    fn new() -> FakeJournal {
        let home = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(home.path().join("journal")).unwrap();
        socket.set_nonblocking(true).unwrap();
        FakeJournal { socket, home }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("journal")
    }

    fn receive(&self) -> Option<String> {
        let mut buffer = vec![0; 100_000];
        self.socket.recv(&mut buffer).ok().map(|n| String::from_utf8(buffer[..n].to_vec()).unwrap())
    }
}

#[test]
fn the_journal_gets_the_native_fields() {
    let journal = FakeJournal::new();
    let mut room = Room::new(options(Sink::Journal(journal.path())));
    let (mut child, _) = room.attach("kine");
    child.write_all(b"<3>broken=yes\n").unwrap();
    room.drain();
    assert_eq!(
        journal.receive().unwrap(),
        "PRIORITY=3\nSYSLOG_IDENTIFIER=demo/kine\nSOCIALWEB_CLUSTER=demo\nSOCIALWEB_COMPONENT=kine\n\
         SOCIALWEB_BIRTH=7\nMESSAGE=broken=yes\n"
    );
    assert!(!room.folder().exists());
    assert!(room.logs.tail(&source("kine"), &room.folder(), 1).unwrap().more.starts_with("journalctl "));
}

#[test]
fn a_journal_that_does_not_read_costs_lines_never_time_and_the_count_is_exact() {
    let journal = FakeJournal::new();
    let mut room = Room::new(options(Sink::Journal(journal.path())));
    let (mut child, _) = room.attach("kine");
    for _ in 0..3 {
        child.write_all("line\n".repeat(2000).as_bytes()).unwrap();
        room.drain();
    }
    let counters = room.counters("kine");
    let received = std::iter::from_fn(|| journal.receive()).count() as u64;
    assert_eq!(counters.lines_written, received);
    assert_eq!(counters.lines_written + counters.lines_dropped, 6000);
    assert!(counters.lines_dropped > 0 && received > 0);
}

#[test]
fn where_no_journal_listens_any_more_lines_go_to_the_file() {
    let journal = FakeJournal::new();
    let mut room = Room::new(options(Sink::Journal(journal.path())));
    drop(journal);
    let (mut child, _) = room.attach("kine");
    child.write_all(b"kept\n").unwrap();
    room.drain();
    assert!(fs::read_to_string(room.folder().join("kine.log")).unwrap().ends_with(" kept\n"));
    assert_eq!(room.counters("kine").lines_written, 1);
}

#[test]
fn a_line_too_large_for_a_datagram_goes_as_a_sealed_file() {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::SndBuf};
    use std::os::fd::AsRawFd;
    let fake = FakeJournal::new();
    let journal = journal::Journal::new(&fake.path()).unwrap();
    setsockopt(journal.socket(), SndBuf, &4096).unwrap();
    let text = "x".repeat(MAX_LINE);
    let line = LogLine {
        source: Arc::new(source("kine")),
        birth: Birth(1),
        at: std::time::SystemTime::now(),
        priority: Priority::INFO,
        continues: false,
        text: text.clone(),
    };
    journal.send(&line).unwrap();
    let mut space = nix::cmsg_space!([i32; 1]);
    let got = recvmsg::<()>(fake.socket.as_raw_fd(), &mut [], Some(&mut space), MsgFlags::empty()).unwrap();
    let Some(ControlMessageOwned::ScmRights(fds)) = got.cmsgs().unwrap().next() else { panic!("no descriptor came") };
    let content = fs::read(format!("/proc/self/fd/{}", fds[0])).unwrap();
    assert!(String::from_utf8(content).unwrap().ends_with(&format!("MESSAGE={text}\n")));
    nix::unistd::close(fds[0]).unwrap();
}

#[test]
fn a_forgotten_group_holds_nothing() {
    let mut room = Room::files();
    let (mut child, id) = room.attach("kine");
    child.write_all(b"x\n").unwrap();
    room.drain();
    room.logs.finish(id);
    room.logs.forget(&group("demo"));
    assert_eq!(room.counters("kine"), Counters::default());
    assert!(room.logs.all_counters().is_empty());
}
