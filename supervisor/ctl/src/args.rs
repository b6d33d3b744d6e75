//! The command line of `ctl`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Asks the running daemon: what is, what was, and to do something.
#[derive(Debug, Clone, Parser)]
#[command(name = "ctl")]
pub struct Ctl {
    /// Admin socket [default: $SOCIALWEB_ADMIN_SOCKET, else in $XDG_RUNTIME_DIR/socialweb-computer, else in the state folder's run]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// State folder of the daemon, to find its socket where there is no $XDG_RUNTIME_DIR
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// How to print the answer
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// What to ask.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How to print an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// For programs; streams are one JSON value per line
    Json,
    /// For both; streams are separated documents
    Yaml,
}

/// What to ask.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Show the groups, or one group and its components
    Status(StatusArgs),
    /// Bring groups up, and wait until they are Ready
    Start(ChangeArgs),
    /// Take groups down in reverse order, and wait until nothing of them is left
    Stop(ChangeArgs),
    /// Restart groups or single components, and wait until they are up again
    Restart(RestartArgs),
    /// Show what the components of a group wrote
    Logs(LogsArgs),
    /// Show what happened
    Events(EventsArgs),
    /// Show the processes of groups with their memory and CPU time
    Tree {
        /// The group; all groups when absent
        group: Option<String>,
    },
    /// Show the proof of a group's last stop
    Receipt {
        /// The group
        group: String,
        /// Show all that are kept, newest first
        #[arg(long)]
        all: bool,
    },
    /// Read the configuration again and apply what changed
    Reload {
        /// Show the plan and change nothing
        #[arg(long)]
        dry_run: bool,
        /// A folder without cluster files is meant, and no lost mount: all groups are parked
        #[arg(long)]
        allow_empty: bool,
    },
    /// Destroy a group that is no longer declared, with all its data
    Delete {
        /// The group
        group: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// How long, and whether, to wait.
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Show the daemon's metrics as Prometheus text
    Metrics,
    /// Take all groups down in order, end the daemon, and wait until it is gone
    Shutdown {
        /// How long, and whether, to wait.
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// What looks at the host itself.
    #[command(flatten)]
    Host(HostVerb),
}

/// Verbs that look at the host itself, beside or without a daemon. The program runs them (this crate asks and renders).
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HostVerb {
    /// Say what is wrong with this host, and the fix; works without a daemon
    ///
    /// One line per thing that was looked at: ok, warn or FAIL. Looks at delegation, limits, linger, cgroups, kernel,
    /// programs, ports, state folder, clock, and at what dead daemons left. Changes nothing. Exit code 1 on a failure.
    Doctor {
        /// The daemon's configuration [default: the running daemon's, else that of the user's configuration folder]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Try the nasty cases on this host, in a scratch group of the running daemon
    ///
    /// Double fork, TERM ignored, a bounded fork bomb, a killed leader, a log flood, a frozen cgroup, a session of its own, a
    /// stopped process. Each passes or fails, with its time. Touches no other group and leaves nothing. Exit code 1 on a
    /// failure, which names what is left.
    Drill {
        /// Give up waiting for a step after this long
        #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
    /// Pack what a bug report needs into a tar file, without secrets; works without a daemon
    ///
    /// Status, events, records, leases, receipts, the last log lines, configuration, what doctor says, versions. Keys,
    /// tokens, kubeconfigs and values of environments are left out or blotted out. An existing file is not overwritten.
    Bundle {
        /// The file [default: socialweb-bundle-TIME.tar in the present folder]
        file: Option<PathBuf>,
        /// The daemon's configuration [default: the running daemon's, else that of the user's configuration folder]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Log lines kept of each group
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 500)]
        lines: u32,
    },
}

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Only this group, with its components
    pub group: Option<String>,
    /// Show it again whenever it changes, until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

/// Arguments of `start` and `stop`.
#[derive(Debug, Clone, Args)]
pub struct ChangeArgs {
    /// The groups
    #[arg(required_unless_present = "all", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// All groups
    #[arg(long, conflicts_with = "groups")]
    pub all: bool,
    /// How long, and whether, to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Arguments of `restart`.
#[derive(Debug, Clone, Args)]
pub struct RestartArgs {
    /// Groups, or components as GROUP/COMPONENT
    #[arg(required = true, value_name = "GROUP[/COMPONENT]")]
    pub targets: Vec<Target>,
    /// How long, and whether, to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// How long, and whether, to wait.
#[derive(Debug, Clone, Copy, Args)]
pub struct WaitArgs {
    /// Return as soon as the daemon has taken it on
    #[arg(long)]
    pub no_wait: bool,
    /// Give up waiting after this long; the daemon itself gives up a start after at most an hour
    #[arg(long, value_name = "DURATION", default_value = "65m", value_parser = patience)]
    pub timeout: Duration,
}

/// A wait that a clock can be set to.
fn patience(text: &str) -> Result<Duration, String> {
    let wait = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let longest = Duration::from_secs(366 * 24 * 60 * 60);
    (wait <= longest).then_some(wait).ok_or_else(|| "it is too long; write at most 366d".to_string())
}

/// Arguments of `logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// The group, or one of its components
    #[arg(value_name = "GROUP[/COMPONENT]")]
    pub target: Target,
    /// Go on with what comes, until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Begin with this many lines of the past
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 100)]
    pub lines: u32,
}

/// Arguments of `events`.
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    /// Only what is about this group
    pub group: Option<String>,
    /// Go on with what comes, until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Begin with this many lines of the past
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 100)]
    pub lines: u32,
}

/// A group, or one of its components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The group.
    pub group: String,
    /// The component.
    pub component: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    /// GROUP, GROUP/COMPONENT, or supervisorctl's GROUP:COMPONENT.
    fn from_str(text: &str) -> Result<Self, String> {
        let (group, component) = match text.split_once(['/', ':']) {
            Some((group, component)) => (group, Some(component.to_string())),
            None => (text, None),
        };
        if group.is_empty() || component.as_deref() == Some("") {
            return Err("name a group, or a component as GROUP/COMPONENT".into());
        }
        Ok(Target { group: group.into(), component })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.group)?;
        self.component.iter().try_for_each(|component| write!(f, "/{component}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, group: &str, component: Option<&str>) {
        let target: Target = text.parse().unwrap();
        assert_eq!((target.group.as_str(), target.component.as_deref()), (group, component));
    }

    #[test]
    fn a_target_is_a_group_or_a_component_of_it() {
        check("demo", "demo", None);
        check("demo/kine", "demo", Some("kine"));
        check("demo:kine", "demo", Some("kine"));
        for bad in ["", "/", "demo/", "/kine", ":"] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
        assert_eq!("demo:kine".parse::<Target>().unwrap().to_string(), "demo/kine");
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Ctl::command().debug_assert();
    }

    #[test]
    fn the_output_may_be_named_before_or_after_the_verb() {
        for line in [["ctl", "-o", "json", "status"], ["ctl", "status", "-o", "json"]] {
            assert_eq!(Ctl::try_parse_from(line).unwrap().output, Format::Json);
        }
        assert_eq!(Ctl::try_parse_from(["ctl", "status", "-ojson"]).unwrap().output, Format::Json);
    }

    #[test]
    fn all_and_names_exclude_each_other_and_one_is_needed() {
        assert!(Ctl::try_parse_from(["ctl", "stop"]).is_err());
        assert!(Ctl::try_parse_from(["ctl", "stop", "--all", "demo"]).is_err());
        assert!(Ctl::try_parse_from(["ctl", "stop", "--all"]).is_ok());
        assert!(Ctl::try_parse_from(["ctl", "stop", "a", "b", "--timeout", "20m"]).is_ok());
        assert!(Ctl::try_parse_from(["ctl", "stop", "a", "--timeout", "18446744073709551615s"]).is_err());
    }
}
