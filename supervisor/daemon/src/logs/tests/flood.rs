//! Floods: nobody waits for one, and every line is counted.

use super::*;

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
fn a_follower_that_is_gone_is_forgotten_with_the_next_line() {
    let mut room = Room::files();
    let (gone, stays) = (room.logs.follow(group("demo"), None, 3), room.logs.follow(group("other"), None, 3));
    drop(gone);
    let (mut child, _) = room.attach("kine");
    child.write_all(b"1\n").unwrap();
    room.drain();
    assert_eq!(room.logs.shared.lock().followers(), 1);
    drop(stays);
}

/// As much as the pipe holds: past 1,024 pipes of one account that is two pages.
fn fill(pipe: &fs::File) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut pipe = pipe;
    while pipe.write(b"x\nx\n").is_ok() {}
}

#[test]
fn a_turn_reads_a_bounded_amount_and_the_turns_go_round_all_pipes() {
    let mut room = Room::files();
    let names: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    let pipes: Vec<_> = names.iter().map(|name| room.attach(name)).collect();
    pipes.iter().for_each(|(pipe, _)| fill(pipe));
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
    room.settle();
    let counters = room.counters("flood");
    assert_eq!(counters.bytes_in, TOTAL);
    assert_eq!((counters.lines_in, counters.lines_waiting), (50_000, 0));
    assert_eq!(counters.lines_written + counters.lines_dropped, 50_000);
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

/// The thread that keeps lines is not woken for each read of a flood; nobody's line waits for the flood's end because of that.
#[test]
fn a_line_beside_a_flood_is_kept_while_the_flood_goes_on() {
    let mut room = Room::files();
    let floods: Vec<_> = (0..12).map(|n| room.attach(&format!("c{n}"))).collect();
    // Exactly what a pipe holds; all of them together are more than ten turns read.
    let full = format!("{}\n", "x".repeat(127)).repeat(512);
    for (pipe, _) in &floods {
        let mut pipe = pipe;
        pipe.write_all(full.as_bytes()).unwrap();
    }
    let (mut quiet, _) = room.attach("quiet");
    writeln!(quiet, "hello").unwrap();
    for _ in 0..10 {
        assert_eq!(room.pump.turn(), Turn::Busy, "an idle turn would wake the thread by itself");
    }
    wait_until("the line is kept", || room.counters("quiet").lines_written == 1);
}
