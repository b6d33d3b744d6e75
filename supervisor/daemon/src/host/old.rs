//! What is this daemon's alone, and what an earlier run of its state folder had under another name or at another place.

use super::{Containment, Host};
use crate::state::{ClaimError, Fsync, NameClaim, TreeClaim, write_atomic};
use socialweb_sys::cgroup::Cgroup;
use std::path::{Path, PathBuf};

/// Held for as long as the daemon runs.
#[derive(Debug)]
pub(crate) struct Claims {
    pub _name: NameClaim,
    pub _tree: Option<TreeClaim>,
}

/// An earlier run of this state folder: under another path, or under another unit.
#[derive(Debug)]
pub(crate) struct OldRun {
    /// Its name, as in [`super::Paths::id`].
    pub id: String,
    /// Its subtree, if that is another one and still there.
    pub tree: Option<Cgroup>,
    /// So that nobody else takes either for his own while we clear it.
    pub _claims: (Option<NameClaim>, Option<TreeClaim>),
}

impl Host {
    /// A daemon that was started elsewhere (another scope, another unit, another path of the state folder) had another
    /// subtree or another name. What is left of it is ended group by group with the other survivors, and has its receipt.
    pub fn find_old_run(&mut self) {
        let mine = match &self.containment {
            Containment::Cgroups { tree, .. } => tree.top().path().to_owned(),
            Containment::Fallback => PathBuf::from(format!("{TREE}{}", self.paths.id)),
        };
        let file = self.state.layout().root().join("cgroup-tree");
        let old = crate::state::read_regular(&file).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let old = old.map(PathBuf::from).unwrap_or_default();
        if old == mine {
            return;
        }
        if let Some(id) = id_of_tree(&old) {
            match claim_old(&old, &id, &self.paths.id) {
                Ok(old) => self.old = Some(old),
                // It runs: a copy of its state folder gives nobody a right to its processes.
                Err(error) => {
                    let why = crate::chain::chain(&error);
                    self.warn(None, format!("{}, which an earlier run had, is left alone: {why}", old.display()));
                }
            }
        }
        let text = mine.display().to_string();
        if let Err(error) = write_atomic(&file, text.as_bytes(), 0o600, Fsync::No) {
            self.warn(None, crate::chain::chain(&error));
        }
    }
}

/// What the name of a daemon's subtree begins with; its id follows.
pub(crate) const TREE: &str = "socialweb-";

/// The id in a subtree's name. Anything else in that file is none of ours.
fn id_of_tree(path: &Path) -> Option<String> {
    let id = path.file_name()?.to_str()?.strip_prefix(TREE)?;
    (id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_string())
}

fn claim_old(path: &Path, id: &str, own: &str) -> Result<OldRun, ClaimError> {
    let name = if id == own { None } else { Some(NameClaim::take(id)?) };
    let there = path.is_absolute() && path.is_dir();
    let tree = there.then(|| TreeClaim::take(path)).transpose()?;
    Ok(OldRun { id: id.into(), tree: there.then(|| Cgroup::at(path)), _claims: (name, tree) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_subtree_of_ours_has_an_id() {
        assert_eq!(id_of_tree(Path::new("/sys/fs/cgroup/a/socialweb-0123456789ab")).as_deref(), Some("0123456789ab"));
        for other in
            ["", "/", "/sys/fs/cgroup", "/x/socialweb-", "/x/socialweb-0123456789ag", "/x/socialweb-../../../.."]
        {
            assert_eq!(id_of_tree(Path::new(other)), None, "{other}");
        }
    }
}
