//! The programs of a drill. Each is a process of ours, started by itself under another role: no shell, no helper that a host
//! might lack. Whatever becomes of its supervisor, it ends by itself after [`LIFE`].

use super::cases::{BREEDERS, BROOD, Case};
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use socialweb_sys::{Cgroup, PidFd, process};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process of a drill lives no longer than this.
pub const LIFE: Duration = Duration::from_secs(600);
/// How often a process that waits looks at the clock and at its children.
const NAP: Duration = Duration::from_millis(100);
/// Most replacements that one breeder makes: a bomb that no supervisor takes away ends all the same.
const REPLACEMENTS: usize = 50;
/// Lines of the flood, and their length: 3 MB, and few enough lines for journald's own rate limit to spare other groups.
const FLOOD: (usize, usize) = (1500, 2000);

/// One process of a drill.
#[derive(Debug, Clone)]
pub struct Program {
    /// Which case.
    pub case: Case,
    /// Names the drill.
    pub token: String,
    /// What it is to the case's leader.
    pub role: Role,
    /// The group's cgroup (leader), or the one to enter first (the others).
    pub cgroup: Option<PathBuf>,
}

/// What a process is to its case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// What the daemon started.
    #[default]
    Leader,
    /// Starts one that hides, and ends.
    Middle,
    /// Keeps a brood.
    Breeder,
    /// Ignores TERM and stays.
    Hidden,
    /// Stops itself.
    Stopped,
}

impl Role {
    /// All.
    pub const ALL: [Role; 5] = [Role::Leader, Role::Middle, Role::Breeder, Role::Hidden, Role::Stopped];

    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Middle => "middle",
            Role::Breeder => "breeder",
            Role::Hidden => "hidden",
            Role::Stopped => "stopped",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| format!("there is no role {text:?}"))
    }
}

impl Program {
    /// Does what its case and role ask for, and stays until it is ended or its life is over.
    ///
    /// # Errors
    /// What kept it from that; the case is then not set up, and its log says why.
    pub fn run(&self) -> io::Result<()> {
        match self.role {
            Role::Leader => self.lead(),
            Role::Middle => self.start(Role::Hidden, None).map(drop).and_then(|()| here()),
            Role::Breeder => self.breed(),
            Role::Hidden => {
                if self.case == Case::OwnSession || self.case == Case::LeaderKilled {
                    nix::unistd::setsid()?;
                }
                ignore_term()?;
                self.cgroup.as_deref().map(enter).transpose()?;
                here()?;
                park()
            }
            Role::Stopped => {
                ignore_term()?;
                here()?;
                signal_self(Signal::SIGSTOP)?;
                park()
            }
        }
    }

    fn lead(&self) -> io::Result<()> {
        let mut children = Vec::new();
        match self.case {
            Case::Witness => {}
            Case::DoubleFork => drop(self.start(Role::Middle, None)?.wait()?),
            Case::OwnSession => children.push(self.start(Role::Hidden, None)?),
            Case::IgnoresTerm => {
                ignore_term()?;
                children.push(self.start(Role::Hidden, None)?);
            }
            Case::ForkBomb => {
                ignore_term()?;
                for _ in 0..BREEDERS {
                    children.push(self.start(Role::Breeder, None)?);
                }
            }
            Case::LeaderKilled => self.die_once()?,
            Case::LogFlood => flood()?,
            Case::FrozenCgroup => children.extend(self.freeze()?),
            Case::Stopped => {
                children.push(self.start(Role::Stopped, None)?);
                wait_until(|| children.iter().all(|child| is_stopped(child.id())))?;
            }
        }
        sd_notify::notify(&[NotifyState::Ready])?;
        if self.case == Case::Stopped {
            signal_self(Signal::SIGSTOP)?;
        }
        park()
    }

    /// The first run leaves a child behind and dies by -9.
    fn die_once(&self) -> io::Result<()> {
        let mark = Path::new("killed-once");
        if mark.exists() {
            return Ok(());
        }
        let _left = self.start(Role::Hidden, None)?;
        std::fs::write(mark, "")?;
        signal_self(Signal::SIGKILL)?;
        park()
    }

    /// A child in a frozen cgroup below our own; nothing where there are no cgroups.
    fn freeze(&self) -> io::Result<Option<Child>> {
        let Some(group) = &self.cgroup else { return Ok(None) };
        let own = process::cgroup(std::process::id())?.unwrap_or_default();
        // <component>/<birth>: the last two names are the same in every namespace.
        let mut names = own.rsplit('/');
        let (birth, component) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let below = Cgroup::at(group.join(component).join(birth)).child("frozen");
        below.create().map_err(io::Error::other)?;
        let child = self.start(Role::Hidden, Some(below.path()))?;
        below.freeze().map_err(io::Error::other)?;
        wait_until(|| {
            std::fs::read_to_string(below.path().join("cgroup.events")).is_ok_and(|t| t.contains("frozen 1"))
        })?;
        Ok(Some(child))
    }

    /// Keeps a brood, and replaces whoever of it dies.
    fn breed(&self) -> io::Result<()> {
        ignore_term()?;
        let mut brood = Vec::new();
        for _ in 0..BROOD {
            brood.push(self.start(Role::Hidden, None)?);
        }
        here()?;
        let (end, mut replacements) = (Instant::now() + LIFE, 0);
        while Instant::now() < end {
            let dead: Vec<usize> = (0..brood.len()).filter(|n| !matches!(brood[*n].try_wait(), Ok(None))).collect();
            for n in dead.into_iter().filter(|_| replacements < REPLACEMENTS).collect::<Vec<_>>() {
                replacements += 1;
                brood[n] = self.start(Role::Hidden, None)?;
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Starts another process of the case and waits until it says that it is where it wants to be.
    fn start(&self, role: Role, cgroup: Option<&Path>) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["internal", "drill-child", self.case.as_str(), "--token", &self.token, "--role", role.as_str()]);
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        // A child of ours must not speak for the component.
        command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or_else(|| io::Error::other("a child without its output"))?;
        BufReader::new(out).read_line(&mut line)?;
        if line.trim() != HERE {
            return Err(io::Error::other(format!("the {} of {} did not come up", role.as_str(), self.case)));
        }
        Ok(child)
    }
}

/// What a process says when it is where it wants to be.
const HERE: &str = "here";

fn here() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{HERE}")?;
    out.flush()
}

/// Blocked is as good as ignored for a process that never looks, and needs no handler.
fn ignore_term() -> io::Result<()> {
    let mut set = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| set.add(signal));
    Ok(set.thread_block()?)
}

fn signal_self(signal: Signal) -> io::Result<()> {
    let own = PidFd::open(std::process::id())?.ok_or_else(|| io::Error::other("no descriptor of this process"))?;
    own.send(signal as i32).map(drop)
}

fn enter(cgroup: &Path) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).open(cgroup.join("cgroup.procs"))?.write_all(b"0")
}

fn is_stopped(pid: u32) -> bool {
    process::Stat::of(pid).is_ok_and(|stat| stat.state == 'T')
}

fn flood() -> io::Result<()> {
    let (lines, length) = FLOOD;
    let mut out = io::stdout().lock();
    for n in 0..lines {
        writeln!(out, "{n:0>length$}")?;
    }
    out.flush()
}

fn wait_until(mut there: impl FnMut() -> bool) -> io::Result<()> {
    let end = Instant::now() + LIFE;
    while !there() {
        if Instant::now() > end {
            return Err(io::Error::other("it did not come about"));
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// Stays until it is ended, or until its life is over.
fn park() -> io::Result<()> {
    let end = Instant::now() + LIFE;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
