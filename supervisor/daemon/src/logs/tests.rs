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
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

mod files;
mod flood;
mod journal;

/// Generous: a test ends when its state is there.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

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
        self.settle();
    }

    /// Until all that was read is kept or dropped.
    fn settle(&self) {
        assert!(self.logs.settle(PATIENCE), "the thread that keeps lines does not get through");
    }

    fn texts(&self, component: &str, n: usize) -> Vec<String> {
        texts(&self.logs, component, &self.folder(), n)
    }

    fn counters(&self, component: &str) -> Counters {
        self.logs.counters(&source(component))
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
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
    // Not read by any turn.
    stray.write_all(b" line\nlast").unwrap();
    room.logs.finish(id);
    assert_eq!(room.texts("sh", 9), ["leader", "stray", "unfinished line", "last"]);
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

#[test]
fn a_thousand_idle_components_hold_no_ring_and_a_few_hundred_bytes_each() {
    let room = Room::files();
    let pipes: Vec<(OwnedFd, PipeId)> =
        (0..200).map(|n| room.logs.attach(source(&format!("c{n}")), Birth(1), room.folder(), None).unwrap()).collect();
    assert_eq!(room.logs.shared.lock().ring_capacity(), 0);
    const { assert!(State::idle_cost() <= 448) };
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
