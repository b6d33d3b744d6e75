//! What somebody else can take from under a running daemon, looked at several times a minute: its notify socket is bound
//! again (the admin server looks after its own), and a state folder that was moved away is told.

use super::Host;
use super::drive::Inlets;
use socialweb_sys::socket::NotifySocket;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Between two looks: rare enough to cost nothing, soon enough for a person who wonders.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(15);

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The state folder is not where it was.
    pub moved: bool,
    /// The notify socket could not be bound again.
    no_notify: bool,
    /// The inode of the notify socket.
    notify: Option<u64>,
}

impl Host {
    pub(super) fn keep_house(&mut self, inlets: &mut Inlets) {
        self.keep_notify(inlets);
        let moved = !self.state.is_in_place();
        if std::mem::replace(&mut self.seen.moved, moved) == moved {
            return;
        }
        let root = self.state.layout().root().display().to_string();
        if moved {
            self.warn(None, moved_text(&root));
        } else {
            self.say_host(format!("the state folder {root} is back in its place"));
        }
    }

    /// For status, while it is so.
    pub(super) fn moved_warning(&self) -> Option<String> {
        let root = self.state.layout().root().display().to_string();
        self.seen.moved.then(|| moved_text(&root))
    }

    /// Components that start later, or say WATCHDOG=1 only later, find it by its path.
    fn keep_notify(&mut self, inlets: &mut Inlets) {
        let there = inode(&self.paths.notify);
        if self.seen.notify.is_none() {
            self.seen.notify = there;
        }
        if there.is_some() && there == self.seen.notify {
            return;
        }
        let made = crate::host::execute::make_private(&self.paths.runtime);
        let bound = made.and_then(|()| NotifySocket::bind(&self.paths.notify).map_err(|e| crate::chain::chain(&e)));
        match bound.and_then(|socket| crate::fd::watch(socket).map_err(|e| e.to_string())) {
            Ok(socket) => {
                inlets.notify = socket;
                self.seen.notify = inode(&self.paths.notify);
                self.seen.no_notify = false;
                self.notify_broken = false;
                let path = self.paths.notify.display();
                self.warn(None, format!("the notify socket {path} was gone and is bound again"));
            }
            Err(why) if !std::mem::replace(&mut self.seen.no_notify, true) => {
                self.warn(None, format!("the notify socket is gone and cannot be bound again: {why}"));
            }
            Err(_) => {}
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|meta| meta.ino())
}

fn moved_text(root: &str) -> String {
    format!(
        "the state folder {root} was moved away or removed while the daemon runs: what runs goes on, but nothing is \
         kept; move it back, or stop the daemon before you move it"
    )
}
