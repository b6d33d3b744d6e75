//! Bounds: which controllers a cgroup has, handing them down, and writing a control file.

use super::{Cgroup, CgroupError};

impl Cgroup {
    /// The controllers whose files this cgroup has: those that the cgroup above hands down to it.
    pub fn controllers(&self) -> Result<Vec<String>, CgroupError> {
        Ok(self.read("cgroup.controllers")?.split_ascii_whitespace().map(Into::into).collect())
    }

    /// Hands this controller down to the cgroups directly below. Doing it again is fine. The kernel refuses it (EBUSY) in a
    /// cgroup that has members of its own, and where the controller is not there.
    pub fn hand_down(&self, controller: &str) -> Result<(), CgroupError> {
        self.write("cgroup.subtree_control", &format!("+{controller}"))
    }

    /// Sets a bound: `file` such as `memory.max`, `text` as the kernel takes it. A control file that is missing is never
    /// made.
    pub fn set_bound(&self, file: &str, text: &str) -> Result<(), CgroupError> {
        self.write(file, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_bound_goes_to_its_file_and_a_missing_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = Cgroup::at(dir.path());
        fs::write(dir.path().join("pids.max"), "").unwrap();
        cgroup.set_bound("pids.max", "17").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("pids.max")).unwrap(), "17");
        let error = cgroup.set_bound("memory.max", "1").unwrap_err();
        assert!(error.is_gone() && error.to_string().contains("memory.max"), "{error}");
        fs::write(dir.path().join("cgroup.controllers"), "memory pids\n").unwrap();
        assert_eq!(cgroup.controllers().unwrap(), ["memory", "pids"]);
        fs::write(dir.path().join("cgroup.subtree_control"), "").unwrap();
        cgroup.hand_down("pids").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "+pids");
    }
}
