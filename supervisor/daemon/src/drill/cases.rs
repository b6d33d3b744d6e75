//! What is tried, and the group that tries it.

use crate::config::{self, ClusterConfig, ConfigError, Context, Expanded, Source};
use socialweb_core::GroupName;
use std::fmt::{self, Write};
use std::path::Path;
use std::str::FromStr;

/// One nasty case: a component of the drill's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// Does what it is told. All others need it, so it must be the last to go.
    Witness,
    /// Forks twice; the grandchild is nobody's child and ignores TERM.
    DoubleFork,
    /// Its child has a session of its own and ignores TERM.
    OwnSession,
    /// It and its child ignore TERM.
    IgnoresTerm,
    /// A bounded crowd that ignores TERM and replaces whoever of it dies.
    ForkBomb,
    /// It was killed with -9 once and left a child behind; it is to be started again, without that child.
    LeaderKilled,
    /// Wrote more than a pipe and a ring of lines hold, before it was ready.
    LogFlood,
    /// Its child sits in a frozen cgroup below its own.
    FrozenCgroup,
    /// It and its child are stopped.
    Stopped,
}

impl Case {
    /// All, the witness first.
    pub const ALL: [Case; 9] = [
        Case::Witness,
        Case::DoubleFork,
        Case::OwnSession,
        Case::IgnoresTerm,
        Case::ForkBomb,
        Case::LeaderKilled,
        Case::LogFlood,
        Case::FrozenCgroup,
        Case::Stopped,
    ];

    /// Its name: the component's, and the word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Case::Witness => "witness",
            Case::DoubleFork => "double-fork",
            Case::OwnSession => "own-session",
            Case::IgnoresTerm => "ignores-term",
            Case::ForkBomb => "fork-bomb",
            Case::LeaderKilled => "leader-killed",
            Case::LogFlood => "log-flood",
            Case::FrozenCgroup => "frozen-cgroup",
            Case::Stopped => "stopped",
        }
    }

    /// How many processes it has when it is ready; a case that was not set up proves nothing.
    pub fn processes(self, has_cgroups: bool) -> usize {
        match self {
            Case::Witness | Case::LeaderKilled | Case::LogFlood => 1,
            Case::DoubleFork | Case::OwnSession | Case::IgnoresTerm | Case::Stopped => 2,
            Case::FrozenCgroup if has_cgroups => 2,
            Case::FrozenCgroup => 1,
            Case::ForkBomb => 1 + BREEDERS + BREEDERS * BROOD,
        }
    }

    /// Time between TERM and the kill. Who follows TERM gets what a slow machine takes; the others ignore it anyway.
    fn grace(self) -> &'static str {
        match self {
            Case::Witness | Case::LeaderKilled | Case::LogFlood => "30s",
            _ => "1s",
        }
    }
}

/// Breeders of the fork bomb, and how many each keeps.
pub const BREEDERS: usize = 6;
/// See [`BREEDERS`].
pub const BROOD: usize = 6;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Case::ALL.into_iter().find(|case| case.as_str() == text).ok_or_else(|| format!("there is no case {text:?}"))
    }
}

/// The group's spec: a cluster file like any other, so that nothing of it is special. `cgroup`: the folder of the group's
/// cgroup, where there is one.
///
/// # Errors
/// What the expansion of a cluster file says; our own file is in order, so it is about the host.
pub fn spec(context: &Context<'_>, token: &str, cgroup: Option<&Path>) -> Result<Expanded, ConfigError> {
    config::expand(&cluster(context.own_exe, token, cgroup)?, context)
}

fn cluster(exe: &Path, token: &str, cgroup: Option<&Path>) -> Result<ClusterConfig, ConfigError> {
    let name = GroupName::new(super::GROUP).expect("the reserved name is a label");
    config::parse_cluster(name, Source::new("(the drill's own file)", &text(exe, token, cgroup)))
}

fn text(exe: &Path, token: &str, cgroup: Option<&Path>) -> String {
    let mut text = String::from("kind = \"exec\"\nbringup = { no_progress = \"5m\", cap = \"10m\" }\n");
    for case in Case::ALL {
        let mut argv = vec![exe.display().to_string()];
        argv.extend(["internal", "drill-child", case.as_str(), "--token", token].map(String::from));
        if let (Case::FrozenCgroup, Some(cgroup)) = (case, cgroup) {
            argv.extend(["--cgroup".to_string(), cgroup.display().to_string()]);
        }
        let needs = if case == Case::Witness { "" } else { "\"witness\"" };
        // JSON's strings are TOML's; writing to a String cannot fail.
        let argv: Vec<String> = argv.iter().map(|word| serde_json::Value::from(word.as_str()).to_string()).collect();
        let _ = write!(
            text,
            "[[component]]\nname = \"{case}\"\nneeds = [{needs}]\nargv = [{}]\n\
             readiness = {{ kind = \"notify\", deadline = \"4m\", cap = \"5m\" }}\n\
             stop = {{ grace = \"{}\", kill_wait = \"60s\" }}\n",
            argv.join(", "),
            case.grace()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use socialweb_core::Rank;

    #[test]
    fn the_drills_own_file_is_in_order_and_the_witness_is_below_all() {
        let cluster = cluster(Path::new("/opt/a \"b\"/sc"), "0123456789abcdef", Some(Path::new("/cg/x"))).unwrap();
        assert_eq!(cluster.file.component.len(), Case::ALL.len());
        for component in &cluster.file.component {
            let case: Case = component.name.as_str().parse().unwrap();
            assert_eq!(component.argv[0], "/opt/a \"b\"/sc");
            assert_eq!(component.argv.contains(&"/cg/x".to_string()), case == Case::FrozenCgroup);
            assert_eq!(component.needs.is_empty(), case == Case::Witness);
            assert_eq!(component.rank.map(Rank), None, "ranks follow from the needs");
        }
        assert!("nonsense".parse::<Case>().is_err());
    }

    #[test]
    fn a_drill_is_bounded() {
        let all: usize = Case::ALL.into_iter().map(|case| case.processes(true)).sum();
        assert!(all < super::super::MOST, "{all}");
    }
}
