//! Which daemon, which configuration, which state folder: what `doctor` and `bundle` begin with.
//!
//! With a daemon all of it is the daemon's own, read from its /proc entry: its environment, the flags of its command line,
//! its program. Without one it is the caller's.

use crate::config::{self, DaemonConfig, Env, Overrides};
use socialweb_sys::process;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a daemon answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It does.
    Answers {
        /// Its process.
        pid: u32,
    },
    /// It takes connections and answers nothing.
    Silent {
        /// Its process.
        pid: u32,
        /// The kernel's state letter.
        state: char,
    },
    /// Nobody listens.
    Absent,
}

impl Seen {
    /// The daemon's process.
    pub fn pid(self) -> Option<u32> {
        match self {
            Seen::Answers { pid } | Seen::Silent { pid, .. } => Some(pid),
            Seen::Absent => None,
        }
    }
}

/// What was asked for on the command line, and what the socket said.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Whether a daemon answers.
    pub seen: Seen,
    /// Where it was looked for.
    pub socket: String,
    /// `-config`.
    pub config: Option<PathBuf>,
    /// `-state-dir`.
    pub state_dir: Option<PathBuf>,
}

/// The place.
#[derive(Debug, Clone)]
pub struct Place {
    /// Whether a daemon answers.
    pub seen: Seen,
    /// Where it was looked for.
    pub socket: String,
    /// Environment of the daemon; without one, of the caller.
    pub env: Env,
    /// True when `env` is the daemon's.
    pub env_is_daemons: bool,
    /// The daemon's program; without one, the caller's.
    pub exe: PathBuf,
    /// The account that runs the daemon, or would.
    pub uid: u32,
    /// supervisor.toml, where there is one.
    pub config_file: Option<PathBuf>,
    /// The flags of the daemon.
    pub flags: Overrides,
    /// What the file says; none without a file, or when it cannot be used.
    pub config: Option<DaemonConfig>,
    /// The state folder.
    pub state_dir: Option<PathBuf>,
}

impl Place {
    /// Finds it all.
    pub fn find(asked: Asked) -> Place {
        let own = Env::of_this_process();
        let pid = asked.seen.pid();
        let theirs = pid.and_then(environ_of);
        let env_is_daemons = theirs.is_some();
        let env = theirs.unwrap_or(own);
        let (named, mut flags) = pid.map(flags_of).unwrap_or_default();
        if asked.state_dir.is_some() {
            flags.state_dir = asked.state_dir;
        }
        let config_file = asked.config.or(named).or_else(|| usual_config(&env));
        let config = config_file.as_deref().and_then(|file| config::load_daemon(file, &env, &flags).ok());
        let from_config = config.as_ref().map(|c| c.state_dir.clone());
        let state_dir = flags.state_dir.clone().or(from_config).or_else(|| env.default_state_dir());
        let exe = pid.and_then(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok());
        let exe = exe.or_else(|| std::env::current_exe().ok()).unwrap_or_default();
        let uid = pid.and_then(|pid| process::uid(pid).ok());
        let uid = uid.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
        let (seen, socket) = (asked.seen, asked.socket);
        Place { seen, socket, env, env_is_daemons, exe, uid, config_file, flags, config, state_dir }
    }
}

/// Where the unit's configuration lies.
fn usual_config(env: &Env) -> Option<PathBuf> {
    let base = env.path("XDG_CONFIG_HOME").or_else(|| Some(env.path("HOME")?.join(".config")))?;
    Some(base.join("socialweb-computer").join("supervisor.toml")).filter(|file| file.is_file())
}

/// The environment that a process was started with; none where we may not look.
fn environ_of(pid: u32) -> Option<Env> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).ok();
    let entries = bytes.split(|b| *b == 0).filter_map(|entry| {
        let at = entry.iter().position(|b| *b == b'=')?;
        Some((text(&entry[..at])?, text(&entry[at + 1..])?))
    });
    Some(entries.collect())
}

/// -config and the other flags of a running daemon's command line, paths relative to its working folder.
fn flags_of(pid: u32) -> (Option<PathBuf>, Overrides) {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = bytes.split(|b| *b == 0).collect();
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    parse_flags(&words, &cwd)
}

fn parse_flags(words: &[&[u8]], cwd: &Path) -> (Option<PathBuf>, Overrides) {
    let (mut config, mut flags) = (None, Overrides::default());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-")) else { continue };
        let (name, value) = match name.iter().position(|b| *b == b'=') {
            Some(at) => (&name[..at], Some(&name[at + 1..])),
            None => (name, None),
        };
        let mut path = || {
            let value = value.or_else(|| words.next().copied())?;
            Some(cwd.join(Path::new(std::ffi::OsStr::from_bytes(value))))
        };
        match name {
            b"config" => config = path(),
            b"state-dir" => flags.state_dir = path(),
            b"runtime-dir" => flags.runtime_dir = path(),
            b"cgroup" => flags.cgroup = path(),
            b"allow-tmpfs" => flags.allow_tmpfs = true,
            _ => {}
        }
    }
    (config, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_running_daemon_are_read_in_all_their_forms() {
        let words: Vec<&[u8]> =
            vec![b"/opt/sc", b"run", b"-config", b"a.toml", b"--state-dir=/s", b"-allow-tmpfs", b"--log", b"debug"];
        let (config, flags) = parse_flags(&words, Path::new("/home/x"));
        assert_eq!(config, Some("/home/x/a.toml".into()));
        assert_eq!((flags.state_dir, flags.allow_tmpfs, flags.cgroup), (Some("/s".into()), true, None));
        assert_eq!(parse_flags(&[b"-config"], Path::new("/")), (None, Overrides::default()));
    }

    #[test]
    fn without_a_daemon_the_place_is_the_callers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("supervisor.toml");
        fs::write(&file, "state_dir = \"here\"\n").unwrap();
        let asked = Asked { seen: Seen::Absent, socket: "/none".into(), config: Some(file.clone()), state_dir: None };
        let place = Place::find(asked.clone());
        assert!(!place.env_is_daemons);
        assert_eq!((place.config_file, place.state_dir), (Some(file), Some(dir.path().join("here"))));
        let place = Place::find(Asked { state_dir: Some("/other".into()), ..asked });
        assert_eq!(place.state_dir, Some("/other".into()));
    }
}
