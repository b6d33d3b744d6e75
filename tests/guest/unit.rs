//! The installed unit, with the groups of one test.

use crate::systemd::{self, UNIT, number, property, systemctl, wait_for};
use socialweb_wire::{GroupStatus, HostStatus, Phase, Receipt};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Where the programs' disk is.
const INPUT: &str = "/in";

/// The unit and its files in the account's home. Stopped and cleared away when dropped.
pub struct Unit {
    kept: bool,
}

impl Unit {
    /// Installs program, units and configuration, as README says; starts nothing.
    pub fn installed(supervisor: &str, clusters: &[(&str, String)]) -> Unit {
        let unit = Unit { kept: false };
        unit.clear();
        let (bin, units) = (home(".local/bin"), home(".config/systemd/user"));
        for folder in [&bin, &units, &config("clusters.d")] {
            fs::create_dir_all(folder).unwrap();
        }
        let program = bin.join("socialweb-computer");
        let _old = fs::remove_file(&program);
        symlink(Path::new(INPUT).join("bin/socialweb-computer"), program).unwrap();
        for entry in fs::read_dir(Path::new(INPUT).join("units")).unwrap().flatten() {
            if entry.path().is_file() {
                fs::copy(entry.path(), units.join(entry.file_name())).unwrap();
            }
        }
        fs::write(config("supervisor.toml"), supervisor).unwrap();
        clusters.iter().for_each(|(name, text)| unit.write_cluster(name, text));
        systemctl(&["daemon-reload"]);
        unit
    }

    /// The same, started.
    pub fn started(supervisor: &str, clusters: &[(&str, String)]) -> Unit {
        let unit = Unit::installed(supervisor, clusters);
        unit.start();
        unit
    }

    /// What an earlier boot installed; stays when dropped.
    pub fn of_earlier_boot() -> Unit {
        Unit { kept: true }
    }

    /// Stays as it is when dropped, for the next boot.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Other settings for the unit, in force from its next start.
    pub fn drop_in(&self, text: &str) {
        let folder = home(&format!(".config/systemd/user/{UNIT}.d"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("test.conf"), text).unwrap();
        systemctl(&["daemon-reload"]);
    }

    pub fn write_cluster(&self, name: &str, text: &str) {
        fs::write(config("clusters.d").join(format!("{name}.toml")), text).unwrap();
    }

    /// Returns when the daemon has said that it is ready.
    pub fn start(&self) {
        systemctl(&["start", UNIT]);
        assert_eq!(property("ActiveState"), "active");
    }

    /// An orderly stop; that it was one is for the test to say.
    pub fn stop(&self) {
        systemctl(&["stop", UNIT]);
        assert_eq!(property("ActiveState"), "inactive", "{}", systemd::unit_journal());
    }

    pub fn main_pid(&self) -> u32 {
        number("MainPID")
    }

    /// Waits until the manager has the unit up with another main process than `old`.
    pub fn wait_restarted(&self, old: u32) -> u32 {
        wait_for("another main process", || {
            let new = self.main_pid();
            (new != 0 && new != old && property("ActiveState") == "active").then_some(new)
        })
    }

    pub fn ctl(&self, args: &[&str]) -> Output {
        let program = home(".local/bin/socialweb-computer");
        systemd::try_output(program.to_str().unwrap(), &[&["ctl"], args].concat())
    }

    pub fn status(&self) -> Option<HostStatus> {
        let out = self.ctl(&["status", "-o", "json"]);
        serde_json::from_slice(&out.stdout).ok().filter(|_| out.status.success())
    }

    pub fn wait_ready(&self, group: &str) -> GroupStatus {
        self.wait_group(&format!("{group} is Ready"), group, |status| status.phase == Phase::Ready)
    }

    /// Waits until the group's status is as asked.
    pub fn wait_group(&self, what: &str, group: &str, as_asked: impl Fn(&GroupStatus) -> bool) -> GroupStatus {
        let mut last = String::new();
        let seen = systemd::try_wait_for(|| {
            let out = self.ctl(&["status", "-o", "json"]);
            last = format!("{out:?}");
            let status: HostStatus = serde_json::from_slice(&out.stdout).ok()?;
            status.group(group).filter(|status| as_asked(status)).cloned()
        });
        seen.unwrap_or_else(|| panic!("waited in vain: {what}; the last answer: {last}"))
    }

    /// All receipts of a group, oldest first.
    pub fn receipts(&self, group: &str) -> Vec<Receipt> {
        let folder = state().join("groups").join(group).join("receipts");
        let number =
            |path: &PathBuf| -> Option<u64> { path.file_stem()?.to_string_lossy().rsplit('-').next()?.parse().ok() };
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
        files.sort_by_key(number);
        files.iter().map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect()
    }

    /// Living processes that carry the daemon's marker: their numbers and names.
    pub fn marked(&self) -> Vec<(u32, String)> {
        let marker = format!("{}/", socialweb_daemon::state_id(&state()));
        let found = socialweb_sys::process::find_marked("SOCIALWEB_BIRTH", &marker).unwrap();
        found.into_iter().map(|process| (process.pid, process.stat.comm)).collect()
    }

    fn clear(&self) {
        let _ = systemd::try_output("systemctl", &["--user", "stop", UNIT]);
        let _ = systemd::try_output("systemctl", &["--user", "reset-failed", UNIT]);
        for folder in [state(), config(""), home(&format!(".config/systemd/user/{UNIT}.d"))] {
            let _absent = fs::remove_dir_all(folder);
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell_what_is_there();
            // A copy, because the next test begins anew; the runner hands it out.
            let kept = home(&format!("failed/{}", std::process::id()));
            let _ = fs::create_dir_all(&kept);
            let _ = systemd::try_output("cp", &["-r", state().to_str().unwrap(), kept.to_str().unwrap()]);
        }
        if !self.kept {
            self.clear();
        }
    }
}

fn tell_what_is_there() {
    for (program, args) in [
        ("systemctl", ["--user", "status", "--no-pager", "--full", "--lines=0", UNIT]),
        ("journalctl", ["--user", "-b", "--no-pager", "--lines=60", "--output=short-precise", "--all"]),
    ] {
        let out = systemd::try_output(program, &args);
        eprintln!("---- {program}\n{}", String::from_utf8_lossy(&out.stdout));
    }
}

/// A path in the account's home.
pub fn home(inside: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").expect("the guest's runner sets HOME")).join(inside)
}

/// A path in the configuration.
pub fn config(inside: &str) -> PathBuf {
    home(".config/socialweb-computer").join(inside)
}

/// The state folder.
pub fn state() -> PathBuf {
    home(".local/state/socialweb-computer")
}

/// Every file below.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// A component of one shell script, with what else its table has.
pub fn script(name: &str, script: &str, more: &str) -> String {
    let head = format!("[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{script}''']");
    format!("{head}\nenv = {{ PATH = \"/usr/bin:/bin\" }}\n{more}\n")
}

/// A group of these components.
pub fn group(components: &[String]) -> String {
    format!("kind = \"exec\"\n{}", components.concat())
}

/// A group that just runs.
pub fn steady() -> String {
    group(&[script("steady", "exec sleep 100000", "")])
}
