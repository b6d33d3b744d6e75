//! Who opened which file, as the kernel tells.

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub struct Witness {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// Watches every open below `dir` (by watching its file system, and keeping what is below). None where the kernel or
    /// this account cannot.
    pub fn of(dir: &Path) -> Option<Witness> {
        let init = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(init, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).ok()?;
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        group.mark(flags, MaskFlags::FAN_OPEN, nix::fcntl::AT_FDCWD, Some(dir)).ok()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let done = Arc::new(AtomicBool::new(false));
        let (sink, stop, below) = (seen.clone(), done.clone(), dir.to_owned());
        let thread = std::thread::spawn(move || {
            loop {
                let last = stop.load(Ordering::Relaxed);
                read_all(&group, &below, &sink);
                if last {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Some(Witness { seen, done, thread: Some(thread) })
    }

    /// Command and path of every open below the folder.
    pub fn opened(mut self) -> Vec<(String, String)> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.seen.lock().unwrap().clone()
    }
}

fn read_all(group: &Fanotify, below: &Path, sink: &Mutex<Vec<(String, String)>>) {
    while let Ok(events) = group.read_events() {
        for event in events {
            let Some(fd) = event.fd() else { continue };
            let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) else { continue };
            if path.starts_with(below) {
                let comm = fs::read_to_string(format!("/proc/{}/comm", event.pid())).unwrap_or_default();
                sink.lock().unwrap().push((comm.trim().to_string(), path.display().to_string()));
            }
        }
    }
}
