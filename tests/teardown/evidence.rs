//! What the processes and the kernel say, and the judge.

use super::nasty;
use crate::support::wait_for;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder in which the processes leave their traces.
pub struct Scene {
    out: PathBuf,
    pub with_mover: bool,
    moverless: Cell<bool>,
}

impl Scene {
    pub fn new(name: &str) -> Scene {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scene-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(out.join("pids")).unwrap();
        let with_mover = crate::support::cgroup2_mount().is_some_and(|m| m.join("cgroup.procs").exists());
        Scene { out, with_mover, moverless: Cell::new(false) }
    }

    /// For programs of another account.
    pub fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt;
        for dir in [self.out.clone(), self.out.join("pids")] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }

    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The mover needs cgroups.
    pub fn drop_mover(&self) {
        self.moverless.set(true);
    }

    pub fn has_mover(&self) -> bool {
        self.with_mover && !self.moverless.get()
    }

    /// Every process has shown itself.
    pub fn wait_until_complete(&self) {
        for name in nasty::expected(self.has_mover()) {
            wait_for(&format!("{name} shows itself"), || self.pid(name));
        }
    }

    fn pid(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.out.join("pids").join(name)).ok()?.trim().parse().ok()
    }

    /// Names and pids of those that do not come and go.
    pub fn lasting(&self) -> Vec<(String, u32)> {
        let names = nasty::expected(self.has_mover()).into_iter().filter(|n| *n != "3-respawned");
        names.filter_map(|n| Some((n.to_string(), self.pid(n)?))).collect()
    }

    /// Those of `processes` that live and are ours still.
    pub fn alive(&self, processes: &[(String, u32)]) -> Vec<(String, u32)> {
        let ours = |pid: u32| {
            let out = socialweb_sys::process::environ_value(pid, "OUT");
            out.is_some_and(|o| Path::new(&o) == self.out)
        };
        processes.iter().filter(|(_, pid)| ours(*pid)).cloned().collect()
    }

    /// Every living process of this scene, wherever it is.
    pub fn all_alive(&self) -> Vec<(u32, String)> {
        let found = socialweb_sys::process::find_marked("OUT", &self.out.display().to_string()).unwrap();
        found.into_iter().map(|p| (p.pid, p.stat.comm)).collect()
    }

    /// A new run leaves its own traces.
    pub fn forget(&self) {
        for entry in fs::read_dir(self.out.join("pids")).unwrap().flatten() {
            let _ = fs::remove_file(entry.path());
        }
        let _ = fs::remove_file(self.out.join("term"));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for proc in socialweb_sys::process::find_marked("OUT", &self.out.display().to_string()).unwrap() {
            let _ = proc.pidfd.send(9);
        }
        let _ = fs::remove_dir_all(&self.out);
    }
}

/// What there is to judge once a supervisor says that it is done.
#[derive(Debug)]
pub struct Evidence {
    left: Vec<(u32, String)>,
    term: Vec<String>,
}

impl Evidence {
    pub fn collect(scene: &Scene) -> Evidence {
        let term = fs::read_to_string(scene.out().join("term")).unwrap_or_default();
        Evidence { left: scene.all_alive(), term: term.lines().map(str::to_string).collect() }
    }

    /// Empty = a proper teardown.
    pub fn violations(&self) -> Vec<String> {
        let left = self.left.iter().map(|(pid, comm)| format!("pid {pid} ({comm}) outlived its group"));
        let seen = self.term.iter().filter(|l| l.contains(" sees "));
        let seen = seen.map(|l| format!("a higher rank was still there when a lower one was touched: rank {l}"));
        let told: Vec<&str> = self.term.iter().filter_map(|l| l.strip_suffix(" done")).collect();
        let order = (told != ["2 forker", "1 plain"])
            .then(|| format!("those that follow TERM were told in this order: {told:?}"));
        left.chain(seen).chain(order).collect()
    }
}
