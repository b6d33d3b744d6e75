//! The journal, played by a socket of our own.

use super::*;
use std::os::unix::net::UnixDatagram;

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
    let journal = super::super::journal::Journal::new(&fake.path()).unwrap();
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
