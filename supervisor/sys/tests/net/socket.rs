use crate::common::*;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use socialweb_sys::process;
use socialweb_sys::socket::{MAX_DATAGRAM, NotifySocket, Peer, SocketError, bind_listener, clear_stale_socket};
use std::fs;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

#[test]
fn a_live_listener_is_named_and_a_stale_socket_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.sock");
    let first = bind_listener(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = bind_listener(&path).unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("pid {} (", std::process::id())), "{error}");
    assert!(clear_stale_socket(&path).is_err() && path.exists());
    assert!(first.accept().is_ok(), "the first one still listens");
    drop(first);
    assert!(path.exists(), "a socket outlives its listener");
    let second = bind_listener(&path).unwrap();
    drop(second);
    clear_stale_socket(&path).unwrap();
    assert!(!path.exists());
    clear_stale_socket(&path).unwrap();
}

#[test]
fn what_is_no_socket_of_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(bind_listener(&path), Err(SocketError::NotASocket { .. })));
    assert!(matches!(clear_stale_socket(&path), Err(SocketError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let datagram = dir.path().join("datagram.sock");
    let _held = UnixDatagram::bind(&datagram).unwrap();
    assert!(matches!(bind_listener(&datagram), Err(SocketError::InUse { .. })), "another kind of socket lives too");
    // A listener whose queue is full cannot be connected to, and lives all the same.
    let full = dir.path().join("full.sock");
    let listener = UnixListener::bind(&full).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let _queue: Vec<_> = (0..2).map(|_| UnixStream::connect(&full).unwrap()).collect();
    assert!(matches!(bind_listener(&full), Err(SocketError::InUse { .. })));
}

#[test]
fn a_path_that_does_not_fit_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let fits = 107 - dir.path().as_os_str().len() - 1;
    bind_listener(&dir.path().join("x".repeat(fits))).unwrap();
    let error = bind_listener(&dir.path().join("x".repeat(fits + 1))).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { len: 108, .. }), "{error}");
    assert!(matches!(bind_listener(&dir.path().join("no/folder.sock")), Err(SocketError::Kernel { .. })));
}

#[test]
fn the_peer_is_what_the_kernel_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = bind_listener(&path).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    let (server, _) = listener.accept().unwrap();
    let peer = Peer::of(&server).unwrap();
    assert_eq!((peer.pid, peer.uid), (std::process::id(), nix::unistd::geteuid().as_raw()));
    assert!(peer.pidfd.unwrap().exists().unwrap());
    assert_eq!(peer.cgroup, process::cgroup(std::process::id()).unwrap());
}

#[test]
fn datagrams_carry_their_sender_and_hostile_ones_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify.sock");
    let socket = NotifySocket::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(socket.recv().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let client = UnixDatagram::unbound().unwrap();
    client.connect(&path).unwrap();
    let send = |bytes: &[u8]| {
        client.send(bytes).unwrap();
        socket.recv().unwrap()
    };
    let got = send(b"READY=1\nSTATUS=up\nSTATUS=really up");
    let sender = got.sender.unwrap();
    assert_eq!((sender.pid, sender.uid), (std::process::id(), nix::unistd::geteuid().as_raw()));
    assert_eq!(sender.cgroup(), process::cgroup(std::process::id()).unwrap());
    assert_eq!((got.value("READY"), got.value("STATUS"), got.value("X")), (Some("1"), Some("really up"), None));
    for bytes in [&b""[..], b"\0", b"\n\n", b"=", b"\xff\xff", b"READY", b"READY=1\0"] {
        let got = send(bytes);
        assert!(got.fields.is_empty() && !got.truncated && got.sender.is_some(), "{bytes:?}");
    }
    let whole = [b"READY=1\nX=".to_vec(), vec![b'x'; MAX_DATAGRAM - 10]].concat();
    assert!(!send(&whole).truncated);
    let long = send(&[whole, vec![b'x']].concat());
    assert!(long.truncated && long.fields.is_empty(), "a cut message is not half believed");
}

#[test]
fn descriptors_that_come_with_a_datagram_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify.sock");
    let socket = NotifySocket::bind(&path).unwrap();
    let client = UnixDatagram::unbound().unwrap();
    let (read, write) = pipe();
    let name = fs::read_link(format!("/proc/self/fd/{}", write.as_raw_fd())).unwrap();
    let same = || {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|e| fs::read_link(e.path()).is_ok_and(|l| l == name))
            .count()
    };
    // The most that the kernel sends at once.
    let fds = vec![write.as_raw_fd(); 253];
    let text = [IoSlice::new(b"FDSTORE=1\nREADY=1")];
    let to = UnixAddr::new(&path).unwrap();
    sendmsg(client.as_raw_fd(), &text, &[ControlMessage::ScmRights(&fds)], MsgFlags::empty(), Some(&to)).unwrap();
    let got = socket.recv().unwrap();
    assert_eq!((got.value("READY"), got.sender.unwrap().pid), (Some("1"), std::process::id()));
    assert_eq!(same(), 2, "only our own two ends are open");
    drop(read);
}
