//! What dead daemons left. A living daemon is known by its open lock file, which names its state folder; whatever carries the
//! marker of another state folder belongs to nobody who lives.

use super::Place;
use super::facts::{CgroupFacts, Left};
use crate::state_id;
use socialweb_sys::process;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first 15 bytes of the program's name, which is all that the kernel keeps.
const COMM: &str = "socialweb-compu";

/// A daemon that lives: its process and its state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    /// Its process.
    pub pid: u32,
    /// Its state folder.
    pub state: PathBuf,
}

/// The living daemons, as far as we may look.
pub fn living() -> Vec<Living> {
    let ours = |pid: &u32| process::comm(*pid).is_ok_and(|comm| comm == COMM);
    let pids = process::scan().into_iter().flatten().filter(ours);
    pids.filter_map(|pid| Some(Living { pid, state: locked_by(pid)? })).collect()
}

/// The state folder whose lock the process has open. Another daemon's refusal to start has it open for a moment only.
fn locked_by(pid: u32) -> Option<PathBuf> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let lock = links.into_iter().find(|link| link.file_name().is_some_and(|name| name == "supervisor.lock"))?;
    lock.parent().map(Path::to_owned)
}

/// The living daemon that has this state folder.
pub fn holder(living: &[Living], state: &Path) -> Option<u32> {
    let id = state_id(state);
    living.iter().find(|daemon| state_id(&daemon.state) == id).map(|daemon| daemon.pid)
}

/// Everything that carries a marker, and every subtree that has a daemon's name.
pub fn gather(place: &Place, cgroups: &CgroupFacts) -> Left {
    let marked = process::find_marked(crate::host::spawn::MARKER, "").unwrap_or_default();
    let processes = marked.into_iter().map(|p| (p.pid, p.stat.comm, p.marker)).collect();
    let root = cgroups.root.as_ref().map(|root| root.path.as_path());
    let folders = root.and_then(|root| fs::read_dir(root).ok()).into_iter().flatten().flatten().map(|e| e.path());
    let cgroups = folders.filter(|path| id_of(path).is_some() && owned_by(path, place.uid)).collect();
    let mut left = Left { processes, cgroups, ..Left::default() };
    if let Some(own) = place.state_dir.as_deref() {
        left.own_id = state_id(own);
        left.folders.insert(left.own_id.clone(), own.to_owned());
    }
    for (pid, _, marker) in &left.processes {
        let id = marker.split('/').next().unwrap_or_default();
        if !left.folders.contains_key(id)
            && let Some(folder) = folder_above(*pid, id)
        {
            left.folders.insert(id.to_string(), folder);
        }
    }
    left
}

/// The state folder of that id, if the process works below it: the id is made of the folder's path.
fn folder_above(pid: u32, id: &str) -> Option<PathBuf> {
    let at = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    at.ancestors().find(|folder| state_id(folder) == id).map(Path::to_owned)
}

impl Left {
    /// The state folder of a marker's or a cgroup's id, for a sentence.
    pub fn folder(&self, id: &str) -> String {
        self.folders.get(id).map_or_else(|| format!("(with id {id})"), |folder| folder.display().to_string())
    }

    /// What of it belongs to none of these daemons and is still there.
    pub fn of_the_dead(mut self, living: &[Living]) -> Left {
        let ids: Vec<String> = living.iter().map(|daemon| state_id(&daemon.state)).collect();
        self.processes.retain(|(pid, _, marker)| !belongs(marker, &ids) && process::start_time(*pid).is_ok());
        self.cgroups.retain(|path| id_of(path).is_some_and(|id| !ids.contains(&id)) && path.is_dir());
        self
    }
}

/// A marker begins with the id of a state folder.
fn belongs(marker: &str, ids: &[String]) -> bool {
    marker.split('/').next().is_some_and(|id| ids.iter().any(|known| known == id))
}

/// The id in `socialweb-<id>`.
fn id_of(path: &Path) -> Option<String> {
    let id = path.file_name()?.to_str()?.strip_prefix("socialweb-")?;
    (id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_string())
}

/// Whose it is, or would be swept by.
fn owned_by(path: &Path, uid: u32) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_living_daemon_is_not_left_behind() {
        let ids = vec!["0123456789ab".to_string()];
        assert!(belongs("0123456789ab/demo/kine/1", &ids));
        assert!(!belongs("ffffffffffff/demo/kine/1", &ids) && !belongs("", &ids));
        assert_eq!(id_of(Path::new("/cg/socialweb-ffffffffffff")).as_deref(), Some("ffffffffffff"));
        for other in ["socialweb-x", "socialweb.slice", "ffffffffffff", "socialweb-zzzzzzzzzzzz"] {
            assert_eq!(id_of(&Path::new("/cg").join(other)), None, "{other}");
        }
    }

    #[test]
    fn only_what_belongs_to_the_dead_and_is_still_there_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, dead) = (state_id(dir.path()), "ffffffffffff");
        let folder = |id: &str| dir.path().join(format!("socialweb-{id}"));
        [&ours, dead].into_iter().for_each(|id| fs::create_dir(folder(id)).unwrap());
        let own = std::process::id();
        let process = |pid: u32, id: &str| (pid, "x".to_string(), format!("{id}/demo/kine/1"));
        let all = Left {
            processes: vec![process(own, &ours), process(own, dead), process(u32::MAX / 2, dead)],
            cgroups: vec![folder(&ours), folder(dead), folder("eeeeeeeeeeee")],
            own_id: ours,
            folders: Default::default(),
        };
        let left = all.of_the_dead(&[Living { pid: 7, state: dir.path().to_owned() }]);
        assert_eq!((left.processes, left.cgroups), (vec![process(own, dead)], vec![folder(dead)]));
    }

    #[test]
    fn a_daemon_is_known_by_the_lock_that_it_has_open() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(locked_by(std::process::id()).filter(|state| state == dir.path()), None);
        let _lock = fs::File::create(dir.path().join("supervisor.lock")).unwrap();
        let found = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        assert!(found.into_iter().any(|link| link == dir.path().join("supervisor.lock")));
        let living = [Living { pid: 7, state: dir.path().to_owned() }];
        assert_eq!((holder(&living, dir.path()), holder(&living, Path::new("/elsewhere"))), (Some(7), None));
    }
}
