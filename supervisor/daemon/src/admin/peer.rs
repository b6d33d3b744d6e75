//! Who may ask.
//!
//! The socket's mode keeps other users out, but a component of a tenant runs as the daemon's own uid, and connect() to a
//! path-named socket is not covered by its sandbox. So its place decides: whoever lives in a group's cgroup, or carries a
//! group's marker in its environment, is refused. The kernel recorded uid and process when the peer connected; a process
//! that passed its socket on to one outside the groups could have asked that one to connect in the first place.

use socialweb_sys::Tree;
use socialweb_sys::process::environ_value;
use std::sync::Arc;

pub use socialweb_sys::socket::Peer;

/// Says yes, or why not.
pub type PeerCheck = Arc<dyn Fn(&Peer) -> Result<(), String> + Send + Sync>;

/// The rule in force.
#[derive(Debug, Clone)]
pub struct PeerPolicy {
    /// The daemon's own uid.
    pub uid: u32,
    /// Where the groups live; absent in the fallback without cgroups.
    pub groups: Option<Tree>,
    /// The environment variable that marks what the daemon spawned. The only evidence in the fallback, and elsewhere what
    /// gives a process away that moved itself out of its cgroup.
    pub marker: String,
}

/// Where a peer lives.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Outside,
    InGroup(String),
    /// It is gone, or hides in a namespace.
    Unknown,
}

impl PeerPolicy {
    /// The rule as a check.
    pub fn into_check(self) -> PeerCheck {
        Arc::new(move |peer| judge(self.uid, peer.uid, self.place(peer)))
    }

    fn place(&self, peer: &Peer) -> Place {
        if let Some(mark) = environ_value(peer.pid, &self.marker) {
            return Place::InGroup(format!("it carries the marker {mark}"));
        }
        match (&self.groups, &peer.cgroup) {
            (None, _) => Place::Outside,
            (Some(_), None) => Place::Unknown,
            (Some(groups), Some(path)) => match groups.parts(path) {
                Some(_) => Place::InGroup(format!("it lives in the cgroup {path}")),
                None => Place::Outside,
            },
        }
    }
}

/// Yes, or a sentence for the peer.
fn judge(own: u32, uid: u32, place: Place) -> Result<(), String> {
    if uid != own && uid != 0 {
        return Err(format!(
            "this socket answers uid {own} and root, not uid {uid}; run ctl as the user that runs the daemon"
        ));
    }
    match place {
        Place::Outside => Ok(()),
        Place::InGroup(how) => {
            Err(format!("this socket does not answer processes of a group, and the caller is one: {how}"))
        }
        Place::Unknown => {
            Err("the caller's cgroup cannot be seen, so it may be a process of a group; run ctl where the daemon \
             can see it"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uid: u32, place: Place, good: bool) {
        assert_eq!(judge(1000, uid, place.clone()).is_ok(), good, "{uid} {place:?}");
    }

    #[test]
    fn the_daemons_user_and_root_may_ask_from_outside_the_groups() {
        check(1000, Place::Outside, true);
        check(0, Place::Outside, true);
        check(1001, Place::Outside, false);
    }

    #[test]
    fn a_process_of_a_group_is_refused_even_as_root() {
        check(1000, Place::InGroup("there".into()), false);
        check(0, Place::InGroup("there".into()), false);
    }

    #[test]
    fn who_cannot_be_seen_is_refused() {
        check(1000, Place::Unknown, false);
        check(0, Place::Unknown, false);
    }
}
