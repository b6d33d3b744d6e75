//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use socialweb_ctl::Ctl;
use socialweb_daemon::drill::Case;
use socialweb_daemon::drill::child::Role;
use std::path::PathBuf;

/// Runs small Kubernetes control planes, one supervised process group per tenant cluster.
///
/// Long flags may be given with one dash or two.
#[derive(Debug, Parser)]
#[command(name = "socialweb-computer", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Run(RunArgs),
    /// Ask the running daemon, or tell it to do something
    Ctl(Ctl),
    /// Check configuration files, or describe them
    Config {
        /// Which of both.
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// Programs of a group, started by the daemon
    #[command(hide = true)]
    Internal {
        /// Which.
        #[command(subcommand)]
        task: Internal,
    },
    /// Print a completion script
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all sub-commands
    Man {
        /// Write one page per sub-command into this folder
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Print the version
    Version,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The daemon's configuration, supervisor.toml
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Folder of all state [default: from the configuration]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Folder of the sockets [default: $XDG_RUNTIME_DIR/socialweb-computer, else the state folder's run]
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// Accept a state folder in memory, which does not survive a reboot
    #[arg(long)]
    pub allow_tmpfs: bool,
    /// cgroup2 folder to work under [default: found]
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// What the daemon itself logs, such as info or socialweb_daemon=debug
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// Verbs of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Say what is wrong with the configuration, with file, line and column; change nothing
    Check {
        /// The daemon's configuration; the cluster files beside it are checked too
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Folder of all state [default: from the configuration]
        #[arg(long, value_name = "DIR")]
        state_dir: Option<PathBuf>,
        /// Folder of the sockets [default: $XDG_RUNTIME_DIR/socialweb-computer, else the state folder's run]
        #[arg(long, value_name = "DIR")]
        runtime_dir: Option<PathBuf>,
    },
    /// Print the JSON schema of a kind of file
    Schema {
        /// Which
        #[arg(value_enum, default_value_t = SchemaOf::Supervisor)]
        kind: SchemaOf,
    },
}

/// The two kinds of configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// supervisor.toml
    Supervisor,
    /// clusters.d/NAME.toml
    Cluster,
}

/// Programs of a group.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Make the keys and certificates of a tenant, or renew what is due
    TenantCredentials {
        /// The group's state folder
        #[arg(long, value_name = "DIR")]
        group_dir: PathBuf,
    },
    /// Become kine, with the database's address from a private file
    KineExec {
        /// The file, mode 0600
        #[arg(long, value_name = "FILE")]
        dsn_file: PathBuf,
        /// kine and its arguments
        #[arg(last = true, required = true, value_name = "ARGV")]
        argv: Vec<String>,
    },
    /// Make the tenant's OpenBao ready, aside, and put it in place when it is proven
    OpenbaoFirstStart {
        /// The group's state folder
        #[arg(long, value_name = "DIR")]
        group_dir: PathBuf,
        /// bao
        #[arg(long, value_name = "FILE")]
        binary: PathBuf,
        /// Leased port of OpenBao's API
        #[arg(long, value_name = "PORT")]
        api_port: u16,
        /// Leased port of OpenBao's raft
        #[arg(long, value_name = "PORT")]
        cluster_port: u16,
    },
    /// Make a running API server a tenant's cluster
    BringUp {
        /// The group's state folder
        #[arg(long, value_name = "DIR")]
        group_dir: PathBuf,
        /// The cluster's name
        #[arg(long, value_name = "NAME")]
        cluster: String,
        /// Leased port of the API server
        #[arg(long, value_name = "PORT")]
        https_port: u16,
        /// Leased port of OpenBao's API
        #[arg(long, value_name = "PORT")]
        openbao_port: u16,
    },
    /// Take back the controllers that a dead daemon handed down: the unit's ExecStopPost=
    ReleaseControllers,
    /// One process of a drill
    DrillChild {
        /// Which nasty case
        case: Case,
        /// Names the drill
        #[arg(long, value_name = "HEX")]
        token: String,
        /// What the process is to its case
        #[arg(long, value_name = "ROLE", default_value = "leader")]
        role: Role,
        /// The group's cgroup, or the one to enter
        #[arg(long, value_name = "DIR")]
        cgroup: Option<PathBuf>,
    },
    /// Replay a group's recorded event log and show each step
    Replay {
        /// The log
        file: PathBuf,
        /// Only the last state
        #[arg(long)]
        last: bool,
    },
}
