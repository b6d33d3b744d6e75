//! What /proc says about a process, and how to mean the same process twice.
//!
//! A pid alone names nobody: it may have been recycled. A process is (pid, start time) within one boot id, or better a
//! [`PidFd`], which names one process for ever. Reading /proc by number is made safe by holding a pidfd that was opened
//! before, and asking it afterwards whether its process is still there: while it is, the number was its own.

mod chase;
mod heirs;
mod marked;
mod pidfd;
mod stat;

pub use chase::{Limits as ChaseLimits, chase};
pub use heirs::heirs_of_lock;
pub use marked::{Proc, as_far_as_possible, children, find_marked};
pub use pidfd::{PidFd, Sent};
pub use stat::Stat;
pub(crate) use stat::printable;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Longest environment that is read from a process, in bytes. The kernel allows a quarter of the stack limit (2 MiB by
/// default, 6 MiB at most).
const MAX_ENVIRON: u64 = 6 << 20;

/// /proc/PID/NAME.
fn proc_path(pid: u32, name: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(name)
}

/// True for the errors that mean "no such process (any more)".
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// All process ids that /proc shows now, in no order. Ends early without an error when /proc cannot be read on.
pub fn scan() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?.map_while(Result::ok).filter_map(|e| e.file_name().to_str()?.parse().ok()))
}

/// Kernel start time of a process in clock ticks since boot (field 22 of /proc/PID/stat). Error kind NotFound: gone.
pub fn start_time(pid: u32) -> io::Result<u64> {
    Stat::of(pid).map(|s| s.start_time)
}

/// Command name, at most 15 bytes, made printable.
pub fn comm(pid: u32) -> io::Result<String> {
    Stat::of(pid).map(|s| s.comm)
}

/// Path of the process in the cgroup2 hierarchy, as its own namespace shows it: "/a/b". A zombie still has one. `None`
/// where there is no cgroup2 hierarchy. A removed cgroup's path ends in " (deleted)" in /proc; that is cut off here.
pub fn cgroup(pid: u32) -> io::Result<Option<String>> {
    let text = fs::read_to_string(proc_path(pid, "cgroup"))?;
    Ok(unified_line(&text))
}

/// The cgroup2 line of a /proc/PID/cgroup text.
pub(crate) fn unified_line(text: &str) -> Option<String> {
    let path = text.lines().find_map(|l| l.strip_prefix("0::"))?;
    Some(path.strip_suffix(" (deleted)").unwrap_or(path).to_string())
}

/// Kernel function the process sleeps in, if it sleeps and we may know.
pub fn wchan(pid: u32) -> Option<String> {
    let name = fs::read_to_string(proc_path(pid, "wchan")).ok()?;
    (!name.is_empty() && name != "0").then_some(name)
}

/// Effective user id that owns the process's /proc entry. For a process that made itself undumpable that is 0.
pub fn uid(pid: u32) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(Path::new("/proc").join(pid.to_string()))?.uid())
}

/// Value of a variable in the environment that the process was started with. `None`: not there, or not readable by us
/// (another user's process, or one that made itself undumpable).
pub fn environ_value(pid: u32, key: &str) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(proc_path(pid, "environ")).ok()?.take(MAX_ENVIRON).read_to_end(&mut bytes).ok()?;
    value_in(&bytes, key)
}

/// Value of `key` in a block of NUL-separated KEY=VALUE entries.
fn value_in(environ: &[u8], key: &str) -> Option<String> {
    let entry = environ.split(|b| *b == 0).find_map(|e| e.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(entry).into_owned())
}

/// Proportional share of the memory that the process maps, in bytes (a shared page counts by its part). `None` where we
/// may not look. Costs the kernel a walk over the page tables: for people who ask, not for loops.
pub fn pss_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(proc_path(pid, "smaps_rollup")).ok()?;
    let kib = text.lines().find_map(|l| l.strip_prefix("Pss:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok().map(|k| k * 1024)
}

/// This boot's id: (pid, start time) pairs of another boot name nobody.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

/// Clock ticks per second, the unit of start times and cpu times.
pub fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(100)
}

/// True while the very process (pid, start time) of this boot runs; false for a zombie, a recycled pid, or nobody.
pub fn alive(pid: u32, start_time: u64) -> bool {
    Stat::of(pid).is_ok_and(|s| s.start_time == start_time && !s.is_dead())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup2_line_is_found_among_v1_lines_and_loses_the_deleted_mark() {
        let check = |text: &str, want: Option<&str>| assert_eq!(unified_line(text).as_deref(), want, "{text:?}");
        check("0::/\n", Some("/"));
        check("9:name=systemd:/\n1:cpu:/x\n0::/a/b\n", Some("/a/b"));
        check("0::/a (deleted)\n", Some("/a"));
        check("1:cpu:/x\n", None);
        check("", None);
        check("10::/wrong\n", None);
    }

    #[test]
    fn an_environment_is_searched_by_whole_keys() {
        let block = b"AB=1\0A=2\0A=3\0EMPTY=\0BAD\0";
        let check = |key: &str, want: Option<&str>| assert_eq!(value_in(block, key).as_deref(), want, "{key}");
        check("A", Some("2"));
        check("AB", Some("1"));
        check("EMPTY", Some(""));
        check("BAD", None);
        check("B", None);
        check("C", None);
    }

    #[test]
    fn our_own_process_is_alive_under_its_start_time_only() {
        let pid = std::process::id();
        let start = start_time(pid).unwrap();
        assert!(alive(pid, start));
        assert!(!alive(pid, start + 1));
        assert!(!alive(u32::MAX / 2, start));
        assert!(scan().unwrap().any(|p| p == pid));
        assert!(pss_bytes(pid).unwrap() > 0);
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
