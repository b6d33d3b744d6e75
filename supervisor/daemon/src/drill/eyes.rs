//! Who of a drill is there: found by the token on the command line, in all of /proc. The daemon's own means of finding
//! processes (marker, cgroup, parentage) have no part in this.

use super::cases::Case;
use socialweb_sys::process::{self, Stat};
use std::fmt;
use std::fs;

/// A process of a drill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenProcess {
    /// Its process id.
    pub pid: u32,
    /// Kernel start time, in clock ticks since boot.
    pub start_time: u64,
    /// The kernel's state letter.
    pub state: char,
    /// Its case; none for a dead one, which has no command line any more.
    pub case: Option<Case>,
    /// Its role in the case; "dead" for a dead one.
    pub role: String,
}

impl fmt::Display for SeenProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = self.case.map_or("a case that is not known", Case::as_str);
        write!(f, "pid {} ({} of {case}, state {})", self.pid, self.role, self.state)
    }
}

/// The living processes of the drill, by process id. One in the middle of an exec is missed by one look: ask twice.
pub fn look(token: &str) -> Vec<SeenProcess> {
    let mut seen: Vec<SeenProcess> = process::scan().into_iter().flatten().filter_map(|pid| one(pid, token)).collect();
    seen.sort_by_key(|process| process.pid);
    seen
}

fn one(pid: u32, token: &str) -> Option<SeenProcess> {
    let (case, role) = parse(&fs::read(format!("/proc/{pid}/cmdline")).ok()?, token)?;
    let stat = Stat::of(pid).ok().filter(|stat| !stat.is_dead())?;
    Some(SeenProcess { pid, start_time: stat.start_time, state: stat.state, case: Some(case), role })
}

/// Case and role in a command line `... internal drill-child CASE --token TOKEN [--role ROLE] ...`.
fn parse(cmdline: &[u8], token: &str) -> Option<(Case, String)> {
    let words: Vec<String> =
        cmdline.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let after = |name: &str| words.iter().skip_while(|word| *word != name).nth(1);
    let case = after("drill-child")?.parse().ok()?;
    (after("--token")? == token).then(|| (case, after("--role").cloned().unwrap_or_else(|| "leader".into())))
}

/// Dead children of the daemon that nobody has waited for and whose name is our program's: what a drill leaves of a daemon
/// that does not wait. Other groups' tasks may be among them for a moment; ask again.
pub fn unwaited(daemon: u32) -> Vec<SeenProcess> {
    let dead = |pid: u32| {
        let stat = Stat::of(pid).ok()?;
        let ours = stat.ppid == daemon && stat.is_dead() && stat.comm.starts_with("socialweb-compu");
        ours.then(|| SeenProcess {
            pid,
            start_time: stat.start_time,
            state: stat.state,
            case: None,
            role: "dead".into(),
        })
    };
    process::scan().into_iter().flatten().filter_map(dead).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_drill_is_known_by_its_command_line() {
        let line = |words: &str| words.replace(' ', "\0").into_bytes();
        let check = |words: &str, want: Option<(Case, &str)>| {
            let got = parse(&line(words), "abcdef12");
            assert_eq!(got.as_ref().map(|(case, role)| (*case, role.as_str())), want, "{words}");
        };
        check("/x/sc internal drill-child fork-bomb --token abcdef12", Some((Case::ForkBomb, "leader")));
        check("/x/sc internal drill-child stopped --token abcdef12 --role stopped", Some((Case::Stopped, "stopped")));
        check("/x/sc internal drill-child stopped --token 00000000", None);
        check("grep abcdef12", None);
        assert_eq!(look("a-token-that-nobody-has"), []);
        assert_eq!(unwaited(u32::MAX), []);
    }
}
