//! What is mounted where, as this mount namespace shows it: /proc/self/mountinfo.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The folder of its file system that is visible at `point`.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The file system's type, such as "cgroup2".
    pub kind: String,
}

/// Where anything is mounted, in the order of the mounts.
///
/// # Errors
/// /proc cannot be read.
pub fn points() -> io::Result<Vec<PathBuf>> {
    Ok(all()?.into_iter().map(|mounted| mounted.point).collect())
}

/// Every mount.
pub(crate) fn all() -> io::Result<Vec<Mounted>> {
    // Bytes: a mount point's name need not be UTF-8.
    let bytes = fs::read("/proc/self/mountinfo")?;
    Ok(bytes.split(|b| *b == b'\n').filter_map(parse).collect())
}

/// One line of proc_pid_mountinfo(5): "id parent dev ROOT POINT options... - TYPE source superoptions".
pub(crate) fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|b| *b == b' ').skip(3);
    let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mounted { root, point, kind })
}

/// Space, tab, newline and backslash are written as \040 and so on.
fn unescape(bytes: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 8).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_tells_where_a_mount_is_and_what_it_shows() {
        let line = b"42 31 0:38 /a\\040b /mnt/x\\134\xffy rw shared:4 - ext4 /dev/x rw";
        let point = PathBuf::from(std::ffi::OsString::from_vec(b"/mnt/x\\\xffy".to_vec()));
        assert_eq!(parse(line), Some(Mounted { root: "/a b".into(), point, kind: "ext4".into() }));
        for broken in [&b""[..], b"broken", b"42 31 0:38 / /mnt rw"] {
            assert_eq!(parse(broken), None);
        }
        assert!(points().unwrap().iter().any(|point| point.as_os_str() == "/proc"));
    }
}
