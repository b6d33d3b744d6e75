//! What a cgroup takes of the host, read from the kernel's counters.

use super::{Cgroup, CgroupError, field};

/// What a cgroup and all below it have used so far; both only grow while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Processor time in microseconds.
    pub cpu_usec: u64,
    /// Bytes read and written on block devices; `None` without the io controller.
    pub io_bytes: Option<u64>,
}

/// What a cgroup and all below it take. `None`: the controller that counts it is not there, or this kernel does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes now, page cache included (memory.current).
    pub memory: Option<u64>,
    /// The most that it ever was (memory.peak, Linux 5.19).
    pub memory_peak: Option<u64>,
    /// Processor time in microseconds (cpu.stat, which needs no controller).
    pub cpu_usec: Option<u64>,
    /// Microseconds for which cpu.max held it back.
    pub cpu_throttled_usec: Option<u64>,
    /// Processes and threads (pids.current).
    pub pids: Option<u64>,
    /// Bytes read from block devices (io.stat).
    pub io_read: Option<u64>,
    /// Bytes written to block devices.
    pub io_write: Option<u64>,
    /// Processes ended by the out-of-memory killer (memory.events).
    pub oom_kills: Option<u64>,
}

impl Cgroup {
    /// What it has used so far, with all that is or was below it.
    pub fn counters(&self) -> Result<Counters, CgroupError> {
        let cpu_usec = field(&self.read("cpu.stat")?, "usage_usec").unwrap_or(0);
        let io_bytes = match self.read("io.stat") {
            Ok(text) => Some(io_bytes(&text, "rbytes=") + io_bytes(&text, "wbytes=")),
            Err(e) if e.is_gone() => None,
            Err(e) => return Err(e),
        };
        Ok(Counters { cpu_usec, io_bytes })
    }

    /// What it takes now. What cannot be read is absent.
    pub fn usage(&self) -> Usage {
        let number = |file: &str| self.read(file).ok()?.trim().parse().ok();
        let cpu = self.read("cpu.stat").unwrap_or_default();
        let io = self.read("io.stat").ok();
        Usage {
            memory: number("memory.current"),
            memory_peak: number("memory.peak"),
            cpu_usec: field(&cpu, "usage_usec"),
            cpu_throttled_usec: field(&cpu, "throttled_usec"),
            pids: number("pids.current"),
            io_read: io.as_ref().map(|text| io_bytes(text, "rbytes=")),
            io_write: io.as_ref().map(|text| io_bytes(text, "wbytes=")),
            oom_kills: self.oom_kills(),
        }
    }

    /// Processes of it and of all below that the out-of-memory killer ended since it was made, whoever was short of memory:
    /// it, a cgroup above, or the host. `None` without the memory controller.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&self.read("memory.events").ok()?, "oom_kill")
    }
}

/// Sum of the values with this prefix over all devices of an io.stat text.
fn io_bytes(text: &str, prefix: &str) -> u64 {
    text.split_ascii_whitespace().filter_map(|w| w.strip_prefix(prefix)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_no_controller_counts_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = Cgroup::at(dir.path());
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(cgroup.usage(), Usage::default());
        file("cpu.stat", "usage_usec 17\nuser_usec 9\n");
        assert_eq!(cgroup.usage(), Usage { cpu_usec: Some(17), ..Usage::default() });
        assert_eq!(cgroup.counters().unwrap(), Counters { cpu_usec: 17, io_bytes: None });
        file("cpu.stat", "usage_usec 17\nnr_throttled 2\nthrottled_usec 5\n");
        file("io.stat", "8:0 rbytes=5 wbytes=6 rios=1\n8:16 rbytes=1 wbytes=2\n");
        file("memory.current", "4096\n");
        file("memory.peak", "8192\n");
        file("pids.current", "3\n");
        file("memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n");
        let usage = cgroup.usage();
        assert_eq!((usage.memory, usage.memory_peak, usage.pids), (Some(4096), Some(8192), Some(3)));
        assert_eq!((usage.cpu_usec, usage.cpu_throttled_usec), (Some(17), Some(5)));
        assert_eq!((usage.io_read, usage.io_write, usage.oom_kills), (Some(6), Some(8), Some(4)));
        assert_eq!(cgroup.counters().unwrap(), Counters { cpu_usec: 17, io_bytes: Some(14) });
    }

    #[test]
    fn numbers_that_are_none_are_absent() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("memory.current", "max\n"), ("pids.current", ""), ("memory.events", "oom 1\n")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(Cgroup::at(dir.path()).usage(), Usage::default());
    }
}
