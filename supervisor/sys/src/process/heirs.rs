//! Who holds a lock that its owner took with him into death.
//!
//! A flock(2) belongs to the open file, and a forked process has that file too until it closes it or becomes another
//! program. So a process that was made and has not come to its first instruction (its cgroup is frozen, the host is
//! slow) holds every lock of the one that made it, whatever becomes of that one.

use super::{Proc, Stat, proc_path, scan};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The living copies of `owner` (a pid of a process that has ended) that hold its flock(2) on `file`: they have our own
/// command name, which a copy keeps and another program has not, and /proc tells the lock of one of their descriptors.
/// Never our own process. Only of processes whose descriptors we may see.
///
/// # Errors
/// /proc or `file` cannot be read.
pub fn heirs_of_lock(file: &File, owner: u32) -> io::Result<Vec<Proc>> {
    let inode = file.metadata()?.ino();
    let own = Stat::of(std::process::id())?;
    let holds = |pid: u32, stat: &Stat| {
        (pid != own.pid && pid != owner && stat.comm == own.comm && holds_lock(pid, inode, owner)).then(String::new)
    };
    super::as_far_as_possible(scan()?.filter_map(|pid| Proc::pinned(pid, |stat| holds(pid, stat)).transpose()))
}

fn holds_lock(pid: u32, inode: u64, owner: u32) -> bool {
    let Ok(entries) = fs::read_dir(proc_path(pid, "fdinfo")) else { return false };
    // A descriptor that is closed meanwhile holds nothing.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.into_iter().any(|text| text.lines().any(|line| is_lock_of(line, inode, owner)))
}

/// A line as `lock:  1: FLOCK  ADVISORY  WRITE 4711 fe:00:10291540 0 EOF`. Within a pid namespace of its own the kernel says
/// 0 of an owner that has ended.
fn is_lock_of(line: &str, inode: u64, owner: u32) -> bool {
    let Some(rest) = line.strip_prefix("lock:") else { return false };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { return false };
    let place_inode = place.rsplit(':').next().and_then(|number| number.parse().ok());
    place_inode == Some(inode) && pid.parse::<u32>().is_ok_and(|pid| pid == owner || pid == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_its_owners_and_its_files() {
        let check = |line: &str, want: bool| assert_eq!(is_lock_of(line, 17, 4711), want, "{line}");
        check("lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:17 0 EOF", true);
        check("lock:\t1: FLOCK  ADVISORY  WRITE 0 fe:00:17 0 EOF", true);
        check("lock:\t1: FLOCK  ADVISORY  WRITE 4712 fe:00:17 0 EOF", false);
        check("lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:18 0 EOF", false);
        check("lock:\t1: POSIX  ADVISORY  WRITE 4711 fe:00:17 0 EOF", false);
        check("flags:\t02100001", false);
        check("lock:\t1: FLOCK", false);
    }
}
