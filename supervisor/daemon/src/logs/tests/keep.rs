//! The queues and their thread, with a disk that moves when it is told to.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::logs::Priority;
use socialweb_core::{Birth, ComponentName};
use std::sync::mpsc;
use std::time::SystemTime;

const PATIENCE: Duration = Duration::from_secs(120);

fn source(component: &str) -> Arc<Source> {
    let group = GroupName::new("demo").unwrap();
    Arc::new(Source { group, component: ComponentName::new(component).unwrap() })
}

fn lines(of: &Arc<Source>, n: usize, bytes: usize) -> Vec<Arc<LogLine>> {
    let line = |n| LogLine {
        source: Arc::clone(of),
        birth: Birth(1),
        at: SystemTime::UNIX_EPOCH,
        priority: Priority::INFO,
        continues: false,
        text: format!("{n} {}", "x".repeat(bytes)),
    };
    (0..n).map(|n| Arc::new(line(n))).collect()
}

/// What a disk was given: per batch the component, its lines and the sum of its holes.
type Written = mpsc::Receiver<(String, u64, u64)>;

/// A keeper whose disk does one turn for each permit, and goes on alone once the permits' sender is gone.
fn slow() -> (Keep, mpsc::Sender<()>, Written) {
    let (permit, permits) = mpsc::channel();
    let (tell, written) = mpsc::channel();
    let keep = Keep::start(move |source, batch| {
        let _ = permits.recv();
        let count = batch.items.iter().filter(|i| matches!(i, Item::Line(_))).count() as u64;
        let _ = tell.send((source.component.to_string(), count, batch.holes()));
        Done { written: count, told: batch.holes(), trouble: None }
    });
    (keep, permit, written)
}

#[test]
fn a_disk_that_stands_still_holds_nobody_and_every_dropped_line_is_told() {
    let (keep, permit, written) = slow();
    let (loud, quiet) = (source("loud"), source("quiet"));
    keep.add(&loud, "/loud".into());
    keep.add(&quiet, "/quiet".into());
    let flood = lines(&loud, 10_000, 1000);
    // Three times what may wait; the disk has not moved.
    keep.offer(&loud, &flood);
    keep.offer(&loud, &flood);
    keep.offer(&quiet, &lines(&quiet, 3, 10));
    let counts = keep.counts(&loud);
    assert_eq!((counts.written, counts.waiting + counts.dropped), (0, 20_000));
    assert!(counts.dropped > 10_000 && counts.waiting > 1_000, "{counts:?}");
    assert_eq!(keep.counts(&quiet), Kept { waiting: 3, ..Kept::default() }, "another one's room is its own");
    assert!(!keep.settle(Duration::from_millis(1)));
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    let turns: Vec<String> = (0..2).map(|_| written.recv_timeout(PATIENCE).unwrap().0).collect();
    assert_eq!(turns, ["loud", "quiet"], "they take turns");
    drop(permit);
    assert!(keep.settle(PATIENCE));
    let counts = keep.counts(&loud);
    assert_eq!((counts.written + counts.dropped, counts.waiting), (20_000, 0));
    drop(keep);
    let told: u64 = written.iter().map(|(_, _, holes)| holes).sum();
    assert_eq!(told, counts.dropped, "the log says how many");
}

#[test]
fn a_hole_stands_where_the_lines_are_missing() {
    let name = source("a");
    let mut queue = Queue::default();
    let all = lines(&name, 6, 10);
    queue.push(&all[0], 1);
    (0..3).for_each(|_| queue.drop_one());
    queue.push(&all[1], 1);
    let batch = queue.take();
    // What is being written is not changed any more.
    queue.drop_one();
    queue.drop_one();
    let shape = |items: &[Item]| -> Vec<String> {
        let one = |item: &Item| match item {
            Item::Line(line) => line.text.split(' ').next().unwrap().to_string(),
            Item::Hole(n) => format!("-{n}"),
        };
        items.iter().map(one).collect()
    };
    assert_eq!(shape(&batch.items), ["0", "-3", "1"]);
    queue.bytes = usize::MAX >> 1;
    queue.end(&batch, &Done { written: 1, told: 0, trouble: Some("full".into()) });
    assert_eq!((queue.counts.written, queue.counts.dropped, queue.owed), (1, 6, 4));
    let batch = queue.take();
    assert_eq!((shape(&batch.items), batch.owed, batch.holes()), (vec!["-2".to_string()], 4, 6));
    queue.end(&batch, &Done { written: 0, told: 6, trouble: None });
    assert_eq!((queue.owed, queue.items.len(), queue.taken), (0, 0, 0));
}

#[test]
fn a_forgotten_group_gives_its_room_back_and_a_turn_in_flight_ends_in_peace() {
    let (keep, permit, written) = slow();
    let (gone, other) = (source("gone"), source("other"));
    keep.add(&gone, "/gone".into());
    keep.offer(&gone, &lines(&gone, 100, 100));
    keep.forget(&gone.group);
    assert_eq!(keep.shared.lock().bytes, 0);
    keep.add(&other, "/other".into());
    keep.offer(&other, &lines(&other, 1, 1));
    drop(permit);
    assert!(keep.settle(PATIENCE));
    assert_eq!(keep.counts(&other), Kept { written: 1, ..Kept::default() });
    assert_eq!(keep.shared.lock().bytes, 0);
    drop(keep);
    assert!(written.iter().any(|(name, ..)| name == "other"));
}

#[test]
fn a_turn_in_flight_does_not_count_for_a_group_that_came_anew_under_the_name() {
    let (keep, name) = (still(), source("again"));
    keep.add(&name, "/again".into());
    keep.offer(&name, &lines(&name, 3, 10));
    let (source, batch) = keep.shared.next_turn().unwrap();
    keep.forget(&name.group);
    keep.add(&name, "/again".into());
    keep.offer(&name, &lines(&name, 1, 10));
    let before = keep.shared.lock().bytes;
    keep.shared.end_turn(source, &batch, &Done { written: 3, ..Done::default() });
    assert_eq!(keep.counts(&name), Kept { waiting: 1, ..Kept::default() });
    assert_eq!(keep.shared.lock().bytes, before);
    let (source, batch) = keep.shared.next_turn().unwrap();
    keep.shared.end_turn(source, &batch, &Done { written: 1, ..Done::default() });
    assert_eq!(keep.counts(&name), Kept { written: 1, ..Kept::default() });
}

#[test]
fn what_waits_at_the_end_is_still_kept() {
    let (keep, permit, written) = slow();
    let name = source("a");
    keep.add(&name, "/a".into());
    keep.offer(&name, &lines(&name, 2000, 1000));
    drop(keep);
    drop(permit);
    assert_eq!(written.iter().map(|(_, lines, _)| lines).sum::<u64>(), 2000);
}

/// A keeper that never writes.
fn still() -> Keep {
    let shared = Shared { queues: Mutex::default(), more: Condvar::new(), turned: Condvar::new() };
    Keep { shared: Arc::new(shared), here: None }
}

#[test]
fn when_all_room_is_taken_everybody_still_has_a_share_and_no_more() {
    let (keep, flood) = (still(), lines(&source("any"), 5_000, 1000));
    for n in 0..9 {
        let loud = source(&format!("loud{n}"));
        keep.add(&loud, "/loud".into());
        keep.offer(&loud, &flood);
    }
    let all = keep.shared.lock().bytes;
    assert!(all <= TOTAL + SHARE, "nine that flood have {all} bytes");
    let late = source("late");
    keep.add(&late, "/late".into());
    keep.offer(&late, &flood);
    let held = keep.shared.lock().components[&late].bytes;
    assert!(held > SHARE / 2 && held <= SHARE, "{held} of {SHARE} bytes");
}

#[test]
fn what_is_dropped_while_a_hole_is_written_is_told_by_the_next_turn() {
    let (name, mut queue) = (source("a"), Queue::default());
    queue.push(&lines(&name, 1, 10)[0], 1);
    queue.drop_one();
    let batch = queue.take();
    queue.drop_one();
    queue.bytes = usize::MAX >> 1;
    queue.end(&batch, &Done { written: 1, told: 1, trouble: None });
    assert_eq!((queue.take().holes(), queue.counts.dropped), (1, 2));
}

#[test]
fn a_trouble_is_new_once_until_it_is_over() {
    let mut queue = Queue::default();
    let (full, fine) = (Done { trouble: Some("full".into()), ..Done::default() }, Done::default());
    let new: Vec<bool> = [&full, &full, &fine, &full].map(|done| queue.is_new(done)).to_vec();
    assert_eq!(new, [true, false, false, true]);
}

#[test]
fn a_tail_that_reaches_behind_the_ring_has_what_waits_for_the_disk_too() {
    use crate::logs::{Logs, Options, Sink};
    use std::io::Write as _;
    let home = tempfile::tempdir().unwrap();
    let (logs, mut pump) = Logs::new(Options { sink: Sink::Files, ring_lines: 1, ..Options::default() }).unwrap();
    // Its thread ends, so that nothing is written any more.
    let shared = &logs.shared.keep.shared;
    shared.lock().closed = true;
    shared.more.notify_one();
    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(shared) > 1 {
        assert!(Instant::now() < deadline, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (of, folder) = (source("a"), home.path().join("logs"));
    let (fd, _) = logs.attach((*of).clone(), Birth(1), folder.clone(), None).unwrap();
    std::fs::File::from(fd).write_all(b"first\nsecond\n").unwrap();
    pump.turn();
    let tail = logs.tail(&of, &folder, 9).unwrap();
    let texts: Vec<&str> = tail.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["first", "second"]);
}
