//! A real daemon in a test: its own state folder, runtime folder and config; waits for states, leaves nothing behind.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod hygiene;
pub mod texts;
mod wait;

pub use wait::*;

use nix::sys::signal::Signal;
use socialweb_daemon::state_id;
use socialweb_wire::{GroupStatus, HostStatus, Phase, Receipt};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The account nobody.
pub const NOBODY: u32 = 65534;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_socialweb-computer");

/// One daemon, or the place of one that was killed.
pub struct Daemon {
    pub dir: PathBuf,
    pub runtime: PathBuf,
    child: Option<Child>,
    extra: Vec<String>,
    env: Vec<(String, String)>,
    read_only_cgroups: bool,
    delegated: Option<PathBuf>,
    elsewhere: Option<PathBuf>,
    wrapper: Vec<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Daemon {
    /// Writes the files of a daemon with these clusters; nothing runs yet.
    pub fn new(supervisor: &str, clusters: &[(&str, &str)]) -> Daemon {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sw-{}-{n}", std::process::id());
        // State on the disk that holds the build, sockets where their paths are short.
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let runtime = std::env::temp_dir().join(&name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("clusters.d")).unwrap();
        fs::write(dir.join("supervisor.toml"), supervisor).unwrap();
        let daemon = Daemon {
            dir,
            runtime,
            child: None,
            extra: Vec::new(),
            env: Vec::new(),
            read_only_cgroups: false,
            delegated: None,
            elsewhere: None,
            wrapper: Vec::new(),
        };
        for (name, text) in clusters {
            daemon.write_cluster(name, text);
        }
        daemon
    }

    pub fn with_flags(mut self, flags: &[&str]) -> Daemon {
        self.extra.extend(flags.iter().map(|f| f.to_string()));
        self
    }

    pub fn without_flags(mut self) -> Daemon {
        self.extra.clear();
        self
    }

    /// In a mount namespace of its own in which the cgroup2 tree is read-only: what a plain account has without
    /// delegation.
    pub fn without_cgroups(mut self) -> Daemon {
        self.read_only_cgroups = true;
        self
    }

    /// As the account nobody, in a cgroup subtree that is handed over to it, as a user manager does with Delegate=yes.
    /// None unless this is root with a writable cgroup2.
    pub fn run_as_nobody(mut self) -> Option<Daemon> {
        use std::os::unix::fs::chown;
        let subtree = cgroup2_mount()?.join(self.runtime.file_name()?).with_extension("nobody");
        fs::create_dir(&subtree).ok()?;
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            chown(subtree.join(file), Some(NOBODY), Some(NOBODY)).ok()?;
        }
        fs::create_dir_all(&self.runtime).ok()?;
        for dir in [&self.dir, &self.runtime, &self.dir.join("clusters.d")] {
            chown(dir, Some(NOBODY), Some(NOBODY)).ok()?;
        }
        self.delegated = Some(subtree);
        Some(self)
    }

    /// Through a program that sets something up and then becomes its arguments.
    pub fn with_wrapper(mut self, wrapper: &[&str]) -> Daemon {
        self.wrapper = wrapper.iter().map(|w| w.to_string()).collect();
        self
    }

    pub fn with_env(mut self, key: &str, value: &str) -> Daemon {
        self.env.push((key.into(), value.into()));
        self
    }

    /// A shell runs this before it becomes the daemon: what whoever starts it leaves behind.
    pub fn with_prelude(self, shell: &str) -> Daemon {
        self.with_wrapper(&["sh", "-c", &format!("{shell}; exec \"$0\" \"$@\"")])
    }

    /// For the next start; None takes it away again.
    pub fn set_env(&mut self, key: &str, value: Option<&str>) {
        self.env.retain(|(k, _)| k != key);
        self.env.extend(value.map(|v| (key.to_string(), v.to_string())));
    }

    pub fn write_cluster(&self, name: &str, text: &str) {
        fs::write(self.dir.join("clusters.d").join(format!("{name}.toml")), text).unwrap();
    }

    pub fn remove_cluster(&self, name: &str) {
        fs::remove_file(self.dir.join("clusters.d").join(format!("{name}.toml"))).unwrap();
    }

    /// Another state folder.
    pub fn with_state(mut self, dir: &Path) -> Daemon {
        self.elsewhere = Some(dir.to_owned());
        self
    }

    pub fn state(&self) -> PathBuf {
        self.elsewhere.clone().unwrap_or_else(|| self.dir.join("state"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("daemon.log")).unwrap_or_default()
    }

    /// The command line of this daemon.
    pub fn command(&self) -> Command {
        let mut command = match cgroup2_mount_point().filter(|_| self.read_only_cgroups) {
            // The shell becomes the daemon, so its pid is the daemon's.
            Some(mount) => {
                let script = format!(
                    "mount -o remount,bind,ro {0} 2>/dev/null || mount --bind -o ro {0} {0}; exec \"$0\" \"$@\"",
                    mount.display()
                );
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-c", &script, PROGRAM]);
                command
            }
            None => Command::new(PROGRAM),
        };
        if let Some(subtree) = &self.delegated {
            let script = format!(
                "echo $$ > {}/cgroup.procs; exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$0\" \"$@\"",
                subtree.display()
            );
            command = Command::new("sh");
            command.args(["-c", &script, PROGRAM]);
        }
        if let Some((first, rest)) = self.wrapper.split_first() {
            let mut wrapped = Command::new(first);
            wrapped.args(rest).arg(command.get_program()).args(command.get_args());
            command = wrapped;
        }
        command.args(["run", "-config"]).arg(self.dir.join("supervisor.toml"));
        command.arg("-state-dir").arg(self.state()).arg("-runtime-dir").arg(&self.runtime).args(&self.extra);
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null());
        command
    }

    /// The same eyes that see nothing in the end must see something while it runs, or they are blind.
    pub fn assert_eyes_are_open(&self) {
        assert!(!self.marked().is_empty(), "no marked process is seen");
        if cgroup2_mount().is_some() && !self.read_only_cgroups {
            assert_eq!(self.cgroups().len(), 1, "the daemon's subtree is seen");
        }
    }

    /// Starts it and waits for nothing.
    pub fn launch(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("daemon.log")).unwrap();
        let child = self.command().stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.child = Some(child);
    }

    /// True from its start until its end was seen here.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// How it ended, if it has; asked once more, None.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(status)
    }

    /// Starts it and waits until it answers.
    pub fn start(&mut self) {
        self.launch();
        wait_for("the daemon answers", || {
            if let Some(child) = &mut self.child
                && let Ok(Some(status)) = child.try_wait()
            {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            self.try_status().map(|_| ())
        });
    }

    pub fn started(supervisor: &str, clusters: &[(&str, &str)]) -> Daemon {
        let mut daemon = Daemon::new(supervisor, clusters);
        daemon.start();
        daemon
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// kill -9 of the daemon alone.
    pub fn kill_9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.take().unwrap().wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal as i32);
    }

    /// TERM, and wait for the orderly end.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        self.wait_end();
    }

    pub fn wait_end(&mut self) {
        let ended = self.wait_status();
        assert!(ended.success(), "the daemon ended with {ended:?}:\n{}", self.log());
    }

    /// Waits for the end, whichever.
    pub fn wait_status(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        wait_for("the daemon ends", || child.try_wait().unwrap())
    }

    pub fn ctl(&self, args: &[&str]) -> Output {
        let socket = self.runtime.join("admin.sock");
        Command::new(PROGRAM).arg("ctl").arg("-socket").arg(socket).args(args).stdin(Stdio::null()).output().unwrap()
    }

    pub fn ctl_ok(&self, args: &[&str]) -> String {
        let out = self.ctl(args);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "ctl {args:?}: {out:?}\n{}", self.log());
        text
    }

    pub fn try_status(&self) -> Option<HostStatus> {
        let out = self.ctl(&["status", "-o", "json"]);
        serde_json::from_slice(&out.stdout).ok().filter(|_| out.status.success())
    }

    pub fn status(&self) -> HostStatus {
        self.try_status().unwrap_or_else(|| panic!("no status:\n{}", self.log()))
    }

    pub fn group(&self, name: &str) -> GroupStatus {
        self.status().group(name).unwrap_or_else(|| panic!("no group {name}:\n{}", self.log())).clone()
    }

    pub fn wait_phase(&self, group: &str, phase: Phase) -> GroupStatus {
        let mut last = None;
        let waited = try_wait_for(|| {
            let status = self.try_status()?.group(group)?.clone();
            let there = status.phase == phase;
            last = Some(status.clone());
            there.then_some(status)
        });
        let status = waited.unwrap_or_else(|| panic!("{group} is not {phase}: {last:#?}\n{}", self.log()));
        if phase == Phase::Ready
            && let Some(child) = &self.child
        {
            let leaders = status.components.iter().filter_map(|c| c.pid);
            leaders.for_each(|pid| hygiene::assert_nothing_of_the_daemons(child.id(), pid));
        }
        status
    }

    pub fn receipts(&self, group: &str) -> Vec<Receipt> {
        let folder = self.state().join("groups").join(group).join("receipts");
        let mut files: Vec<_> =
            fs::read_dir(folder).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
        // One that is being written has another name until it is whole.
        files.retain(|f| f.extension().is_some_and(|e| e == "json"));
        // <generation>-<n>.json, and n counts on for ever.
        files.sort_by_key(|f| {
            let stem = f.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            stem.rsplit('-').next().and_then(|n| n.parse::<u64>().ok())
        });
        files.iter().filter_map(|f| serde_json::from_slice(&fs::read(f).ok()?).ok()).collect()
    }

    /// Names of the cgroups of this daemon that exist.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let marker = state_id(&self.state());
        let mount = cgroup2_mount();
        let mount = self.delegated.clone().or(mount);
        let found = mount.and_then(|m| fs::read_dir(m).ok()).into_iter().flatten().flatten().map(|e| e.path());
        found.filter(|p| p.ends_with(format!("socialweb-{marker}"))).collect()
    }

    /// The cgroup that the daemon's subtree is in, to which its processes may move.
    pub fn outside(&self) -> Option<PathBuf> {
        self.delegated.clone().or_else(cgroup2_mount)
    }

    /// Living processes that carry this daemon's marker.
    pub fn marked(&self) -> Vec<(u32, String)> {
        let found = socialweb_sys::process::find_marked("SOCIALWEB_BIRTH", &format!("{}/", state_id(&self.state())));
        found.unwrap().into_iter().map(|p| (p.pid, p.stat.comm)).collect()
    }

    /// Nothing of it is left in /proc and no cgroup.
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.marked(), [], "processes are left\n{}", self.log());
        assert_eq!(self.cgroups(), Vec::<PathBuf>::new(), "cgroups are left\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            send(child.id(), 15);
            let ended = try_wait_for(|| child.try_wait().ok().flatten());
            if ended.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        for proc in
            socialweb_sys::process::find_marked("SOCIALWEB_BIRTH", &format!("{}/", state_id(&self.state()))).unwrap()
        {
            let _ = proc.pidfd.send(9);
        }
        if std::thread::panicking() {
            eprintln!("kept for a look: {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
        let _ = fs::remove_dir_all(&self.runtime);
        for cgroup in self.cgroups().into_iter().chain(self.delegated.take()) {
            let _ = try_wait_for(|| socialweb_sys::Cgroup::at(&cgroup).remove().ok());
        }
    }
}

/// A range of ports for one daemon alone, as lines of supervisor.toml: for a test that binds a leased port itself. Every
/// daemon leases the same ones otherwise, each in its own state folder.
pub fn own_ports() -> String {
    static RANGES: AtomicU32 = AtomicU32::new(0);
    // Some distance between test programs that run at the same time.
    let first = 20000 + std::process::id() % 25 * 480 + RANGES.fetch_add(1, Ordering::Relaxed) % 60 * 8;
    format!("[ports]\nranges = [\"{first}-{}\"]\n", first + 7)
}

/// Signals a process through a pidfd; one that is gone already is fine.
pub fn send(pid: u32, signal: i32) {
    if let Some(pidfd) = socialweb_sys::PidFd::open(pid).unwrap() {
        pidfd.send(signal).unwrap();
    }
}

/// Where the daemon's subtree is: our own cgroup below the cgroup2 mount.
pub fn cgroup2_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|l| l.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_string();
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?.trim_start_matches('/').to_string();
    Some(Path::new(&mount).join(path))
}

/// The cgroup2 mount itself: what /proc/PID/cgroup's paths are relative to.
pub fn cgroup2_mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some(mounts.lines().find(|l| l.contains(" - cgroup2 "))?.split(' ').nth(4)?.into())
}
