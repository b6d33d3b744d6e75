//! cgroup2: membership is the ledger of who belongs to whom, and the one kill that nobody escapes.
//!
//! To contain and to kill, only files of the v2 core are used (procs, events, kill, freeze), which need no controller;
//! bounds and most counters need theirs. Nothing here decides when to kill or how often to try again.
//!
//! - [`detect`](Support::detect): which subtree is ours.
//! - [`Tree`] - the daemon's own subtree; [`Cgroup`]: one folder in it.
//! - [`Usage`] - what one takes of the host; `limits`: handing controllers down and setting bounds.
//! - [`Watcher`] - tells when cgroups become populated or unpopulated, without polling.

mod detect;
mod freeze;
mod limits;
mod mount;
mod release;
mod remove;
mod stat;
mod watch;

pub use detect::{Support, release_controllers};
pub use freeze::Still;
pub use mount::{folder_of, mount_points};
pub use release::{release_all, unit_of_helper};
pub use remove::RemoveError;
pub use stat::{Counters, Usage};
pub use watch::{WatchId, Watcher};

use crate::process::{self, PidFd, is_gone};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What was tried with a cgroup, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// mkdir failed.
    #[error(
        "cannot make the cgroup {path}: the folder above must exist, be ours, and have room (cgroup.max.descendants, cgroup.max.depth)"
    )]
    Create {
        /// The folder.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A control file could not be written.
    #[error("cannot write {value:?} to {path}: see that the cgroup exists and belongs to this account")]
    Write {
        /// The control file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A control file could not be read.
    #[error("cannot read {path}: see that the cgroup exists and belongs to this account")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Members could not be signalled one by one (only where cgroup.kill cannot be used).
    #[error("cannot kill the members of {path} one by one")]
    Signal {
        /// The cgroup.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl CgroupError {
    /// True when the cgroup itself does not exist (any more).
    pub fn is_gone(&self) -> bool {
        let (CgroupError::Create { source, .. }
        | CgroupError::Write { source, .. }
        | CgroupError::Read { source, .. }
        | CgroupError::Signal { source, .. }) = self;
        // ENODEV: an open control file of a removed cgroup.
        is_gone(source) || source.raw_os_error() == Some(libc::ENODEV)
    }
}

/// The subtree of one daemon: `<root>/<name>`. Everything it spawns lives below.
#[derive(Debug, Clone)]
pub struct Tree {
    top: Cgroup,
    /// The same folder as /proc/PID/cgroup names it; `None` when the root is on no cgroup2 mount.
    hierarchy_path: Option<String>,
}

impl Tree {
    /// Makes (or finds) `<root>/<name>`. `root` comes from [`Support::detect`]; `name` is unique to the state folder.
    pub fn new(root: &Path, name: &str) -> Result<Tree, CgroupError> {
        let root = fs::canonicalize(root).map_err(|source| CgroupError::Read { path: root.into(), source })?;
        let top = Cgroup { path: root }.child(name);
        top.create()?;
        let hierarchy_path = mount::hierarchy_path(&top.path);
        Ok(Tree { top, hierarchy_path })
    }

    /// The subtree's own folder.
    pub fn top(&self) -> &Cgroup {
        &self.top
    }

    /// A cgroup directly below. Not created yet.
    pub fn child(&self, name: &str) -> Cgroup {
        self.top.child(name)
    }

    /// The subtree's path as /proc/PID/cgroup shows it; `None` when the root is on no cgroup2 mount.
    pub fn hierarchy_path(&self) -> Option<&str> {
        self.hierarchy_path.as_deref()
    }

    /// Which cgroup of this tree a path of /proc/PID/cgroup means, as names from the top down (empty: the top itself).
    /// `None`: it lies outside. A process can make cgroups below its own; so only the leading names are ours.
    pub fn parts<'a>(&self, proc_cgroup: &'a str) -> Option<Vec<&'a str>> {
        let below = proc_cgroup.strip_prefix(self.hierarchy_path.as_deref()?)?;
        if !below.is_empty() && !below.starts_with('/') {
            return None;
        }
        Some(below.split('/').filter(|p| !p.is_empty()).collect())
    }
}

/// One cgroup, named by its folder. The value does not own the folder; dropping it removes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The cgroup at an existing folder.
    pub fn at(path: impl Into<PathBuf>) -> Cgroup {
        Cgroup { path: path.into() }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's name.
    pub fn name(&self) -> String {
        self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A cgroup directly below. Not created yet. DNS labels and numbers are taken as they are; any byte that is special
    /// in a path or in a control file's name (`/`, `.`) is written as %XX, so no name can point elsewhere.
    pub fn child(&self, name: &str) -> Cgroup {
        Cgroup { path: self.path.join(escape(name)) }
    }

    /// Makes it, and what is missing above it. Existing is fine.
    pub fn create(&self) -> Result<(), CgroupError> {
        fs::create_dir_all(&self.path).map_err(|source| CgroupError::Create { path: self.path.clone(), source })
    }

    /// Lets at most eight levels be made below it. A kubelet needs five; with names of 255 bytes each, eight stay below
    /// the 4,096 bytes of a path, and a tree with longer paths could not be taken away again.
    pub fn limit_depth(&self) -> Result<(), CgroupError> {
        self.write("cgroup.max.depth", "8")
    }

    /// True while the folder exists.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Kills every process here and below, frozen ones too, in one step of the kernel that a fork cannot outrun. A cgroup
    /// that does not exist is dead already. Returns before the processes are gone: see [`Cgroup::populated`].
    pub fn kill(&self) -> Result<(), CgroupError> {
        match self.write("cgroup.kill", "1") {
            Err(CgroupError::Write { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.kill_each()
            }
            Err(e) if e.is_gone() && self.exists() => self.kill_each(),
            Err(e) if e.is_gone() => Ok(()),
            other => other,
        }
    }

    /// For a cgroup that a member made threaded (the kernel refuses cgroup.kill there), and for kernels before 5.14. May
    /// miss what forks meanwhile: the caller repeats until unpopulated.
    fn kill_each(&self) -> Result<(), CgroupError> {
        let mine = mount::hierarchy_path(&self.path);
        let inside = |path: &str| {
            mine.as_deref().is_some_and(|m| path.strip_prefix(m).is_some_and(|r| r.is_empty() || r.starts_with('/')))
        };
        for pid in self.pids()? {
            let Ok(Some(pidfd)) = PidFd::open(pid) else { continue };
            // Read after the pidfd is held: a recycled number would show another cgroup (law L5).
            if process::cgroup(pid).ok().flatten().is_some_and(|p| inside(&p)) {
                pidfd.send(libc::SIGKILL).map_err(|source| CgroupError::Signal { path: self.path.clone(), source })?;
            }
        }
        Ok(())
    }

    /// True while a process lives here or below. Zombies do not count: wait for them at the reaper. A cgroup that does not
    /// exist is not populated.
    pub fn populated(&self) -> Result<bool, CgroupError> {
        match self.read("cgroup.events") {
            Ok(text) => Ok(field(&text, "populated") == Some(1)),
            Err(e) if e.is_gone() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Process ids here and below, each once. Zombies are not listed. A number may be recycled as soon as it is returned.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut all = BTreeSet::new();
        for cgroup in self.walk()? {
            match cgroup.own_pids() {
                Err(e) if e.is_gone() => {}
                other => all.extend(other?),
            }
        }
        // 0 stands for a process of a pid namespace that we cannot see.
        all.remove(&0);
        Ok(all.into_iter().collect())
    }

    /// Process ids in this very cgroup.
    fn own_pids(&self) -> Result<Vec<u32>, CgroupError> {
        match self.read("cgroup.procs") {
            // A threaded cgroup lists threads only.
            Err(CgroupError::Read { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let threads = self.read("cgroup.threads")?;
                Ok(numbers(&threads).filter_map(process_of_thread).collect())
            }
            other => Ok(numbers(&other?).collect()),
        }
    }

    /// The cgroups directly below, in no order. None when it does not exist.
    pub fn children(&self) -> Result<Vec<Cgroup>, CgroupError> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if is_gone(&e) => return Ok(Vec::new()),
            Err(source) => return Err(CgroupError::Read { path: self.path.clone(), source }),
            Ok(entries) => entries,
        };
        let folders = entries.map_while(Result::ok).filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        Ok(folders.map(|e| Cgroup { path: e.path() }).collect())
    }

    /// This cgroup and all below it, parents before children.
    pub(crate) fn walk(&self) -> Result<Vec<Cgroup>, CgroupError> {
        // A list, no recursion: a member may nest as deep as the kernel lets it.
        let mut found = vec![self.clone()];
        let mut next = 0;
        while let Some(cgroup) = found.get(next) {
            found.extend(cgroup.children()?);
            next += 1;
        }
        Ok(found)
    }

    /// The folder as a descriptor, for clone3.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        Ok(fs::OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?.into())
    }

    pub(crate) fn read(&self, file: &str) -> Result<String, CgroupError> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|source| CgroupError::Read { path, source })
    }

    pub(crate) fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        let path = self.path.join(file);
        // Without O_CREAT: where the control file is missing, none must be made (and cgroupfs would say EACCES).
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut f| io::Write::write_all(&mut f, value.as_bytes()));
        written.map_err(|source| CgroupError::Write { path, value: value.into(), source })
    }
}

/// The thread group (process) of a thread.
fn process_of_thread(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_ascii_whitespace().filter_map(|n| n.parse().ok())
}

/// The value of a line "key value".
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn escape(name: &str) -> String {
    use std::fmt::Write;
    if name.is_empty() {
        return "%".into();
    }
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'@' | b':') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_its_parent_or_onto_a_control_file() {
        let top = Cgroup::at("/cg/top");
        let check =
            |name: &str, want: &str| assert_eq!(top.child(name).path(), Path::new("/cg/top").join(want), "{name:?}");
        check("demo", "demo");
        check("17", "17");
        check("openbao_1-a", "openbao_1-a");
        check("..", "%2E%2E");
        check("/etc", "%2Fetc");
        check("a/../b", "a%2F%2E%2E%2Fb");
        check("cgroup.kill", "cgroup%2Ekill");
        check("", "%");
        check("%", "%25");
        check("a\0b", "a%00b");
    }

    #[test]
    fn control_files_are_read_from_any_root() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = Cgroup::at(dir.path());
        fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(cgroup.populated().unwrap());
        fs::write(dir.path().join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(!cgroup.populated().unwrap());
        assert!(!cgroup.child("gone").populated().unwrap());
        fs::write(dir.path().join("cgroup.procs"), "0\n12\n12\n7\n").unwrap();
        assert_eq!(cgroup.pids().unwrap(), [7, 12]);
    }

    #[test]
    fn a_control_file_that_is_missing_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Cgroup::at(dir.path()).freeze().is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_of_proc_is_split_into_the_names_below_the_tree() {
        let tree = Tree { top: Cgroup::at("/cg/x/t"), hierarchy_path: Some("/x/t".into()) };
        let check = |path: &str, want: Option<&[&str]>| assert_eq!(tree.parts(path).as_deref(), want, "{path}");
        check("/x/t", Some(&[]));
        check("/x/t/demo/kine/3", Some(&["demo", "kine", "3"]));
        check("/x/t/demo/kine/3/x/t/other", Some(&["demo", "kine", "3", "x", "t", "other"]));
        check("/x/tt/demo", None);
        check("/x", None);
        check("/", None);
    }
}
