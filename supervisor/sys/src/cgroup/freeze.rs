//! Standing still and running on. A member can freeze its own cgroup, its sisters' and what is above them; nothing in our
//! tree is meant to stay frozen, so whoever needs it to run thaws it.

use super::{Cgroup, CgroupError, Tree, field};
use std::time::{Duration, Instant};

/// A cgroup whose processes stand still; the drop lets them run again.
#[derive(Debug)]
pub struct Still<'a>(&'a Cgroup);

impl Drop for Still<'_> {
    fn drop(&mut self) {
        // It fails only when the cgroup is gone, and its processes with it.
        let _ = self.0.thaw();
    }
}

impl Cgroup {
    /// Stops every process here and below from running. Takes effect after the call; cgroup.events says when.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.write("cgroup.freeze", "1")
    }

    /// Stops every process here and below until the guard is dropped, so that a look at them misses nobody: a fork is over
    /// before its process stops, and the child stops too. Waits for that at most `limit`: one in the middle of a system
    /// call that cannot be interrupted may still run afterwards.
    pub fn hold_still(&self, limit: Duration) -> Result<Still<'_>, CgroupError> {
        let still = Still(self);
        self.freeze()?;
        let end = Instant::now() + limit;
        while field(&self.read("cgroup.events")?, "frozen") != Some(1) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(still)
    }

    /// Lets them run again: here, and in every cgroup below, which a member may have frozen by itself. What vanishes
    /// meanwhile is fine.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        for cgroup in self.walk()? {
            match cgroup.write("cgroup.freeze", "0") {
                Err(e) if e.is_gone() => {}
                other => other?,
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Lets `cgroup` run as far as it hangs on what is above it in this tree, the top included: who freezes its own cgroup's
    /// parent freezes its sisters too. A cgroup outside of the tree is left alone. What vanishes meanwhile is fine.
    pub fn thaw_above(&self, cgroup: &Cgroup) -> Result<(), CgroupError> {
        let above = cgroup.path.ancestors().skip(1).take_while(|path| path.starts_with(&self.top.path));
        for path in above {
            match Cgroup::at(path).write("cgroup.freeze", "0") {
                Err(e) if e.is_gone() => {}
                other => other?,
            }
        }
        Ok(())
    }
}
