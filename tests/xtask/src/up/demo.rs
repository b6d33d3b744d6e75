//! The demo tenant: its folders, its daemon's command line, and the questions we ask that daemon.

use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use socialweb_wire::{GroupStatus, HostStatus, Receipt};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The one group of config/demo.
pub const GROUP: &str = "demo";

/// A daemon with a state folder of its own. The benchmark runs more than one of them.
#[derive(Debug, Clone)]
pub struct Demo {
    daemon: PathBuf,
    config: PathBuf,
    bin: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
    log: PathBuf,
}

impl Demo {
    /// The demo below build/demo.
    pub fn new(repo: &Repo) -> Demo {
        let config = repo.path("config/demo/supervisor.toml");
        Demo::with(repo, repo.daemon("debug"), config, &repo.build().join("demo"))
    }

    /// Another binary, config and folder.
    pub fn with(repo: &Repo, daemon: PathBuf, config: PathBuf, folder: &Path) -> Demo {
        let (state, log) = (folder.join("state"), folder.join("daemon.log"));
        Demo { daemon, config, bin: repo.bin(), state, runtime: runtime_dir(folder), log }
    }

    /// Makes the folders, private ones.
    pub fn prepare(&self) -> Result<()> {
        for folder in [&self.state, &self.runtime] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.with_context(|| format!("creating {}", folder.display()))?;
        }
        // The runtime folder may be below /tmp, where anybody could have made it first.
        let owner = fs::metadata(&self.runtime)?.uid();
        if owner != nix::unistd::geteuid().as_raw() {
            bail!("{} belongs to uid {owner}, not to us; set XDG_RUNTIME_DIR or TMPDIR", self.runtime.display());
        }
        Ok(())
    }

    /// The daemon's command, output appended to its log.
    pub fn command(&self) -> Result<Command> {
        let log = fs::File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("opening {}", self.log.display()))?;
        let mut command = Command::new(&self.daemon);
        command.arg("run").arg("-config").arg(&self.config);
        command.arg("-state-dir").arg(&self.state).arg("-runtime-dir").arg(&self.runtime);
        // The daemon looks for programs on PATH; what set-up made comes first.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(self.bin.clone()).chain(std::env::split_paths(&path)))?;
        command.env("PATH", path).env_remove("KUBECONFIG").env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Where the daemon keeps its state.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The log of the daemon itself.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Empties the log and says where it is.
    pub fn begin_log(&self) -> Result<()> {
        fs::write(&self.log, "").with_context(|| format!("writing {}", self.log.display()))?;
        println!("    the daemon's own log: {}", self.log.display());
        Ok(())
    }

    /// The last lines of the log, for an error.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// What people type to ask this daemon.
    pub fn ctl_line(&self, words: &str) -> String {
        format!("{} ctl {words}", self.daemon.display())
    }

    /// Where the admin socket is.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join(socialweb_wire::place::SOCKET_NAME)
    }

    /// The daemon's status; none while it does not answer. Asked on the socket itself: a child process per question would
    /// disturb what the benchmark measures.
    pub fn status(&self) -> Option<HostStatus> {
        let mut socket = UnixStream::connect(self.socket()).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        // HTTP/1.0: the answer ends where the stream ends. One write, so that a quick answer cannot overtake the question.
        let question = format!("GET {}/status HTTP/1.0\r\n\r\n", socialweb_wire::PREFIX);
        socket.write_all(question.as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The demo group's status; none while the daemon does not answer or does not know it yet.
    pub fn group(&self) -> Option<GroupStatus> {
        self.status()?.group(GROUP).cloned()
    }

    /// The newest receipt of the demo group that was written after `since`.
    pub fn receipt(&self, since: std::time::SystemTime) -> Result<Receipt> {
        let folder = self.state.join("groups").join(GROUP).join("receipts");
        let newest = newest_json(&folder, since)?;
        let newest = newest.with_context(|| format!("the daemon left no receipt in {}", folder.display()))?;
        let text = fs::read_to_string(&newest).with_context(|| format!("reading {}", newest.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no receipt", newest.display()))
    }
}

fn newest_json(folder: &Path, since: std::time::SystemTime) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let written = entry.metadata()?.modified()?;
        if entry.path().extension().is_some_and(|e| e == "json") && written >= since {
            found.push((written, entry.path()));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// A short path: a socket's is at most 107 bytes, and a clone may lie deep.
fn runtime_dir(folder: &Path) -> PathBuf {
    let hash: String =
        Sha256::digest(folder.as_os_str().as_encoded_bytes()).iter().take(4).map(|b| format!("{b:02x}")).collect();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
        Some(dir) => Path::new(&dir).join(format!("socialweb-demo-{hash}")),
        None => std::env::temp_dir().join(format!("socialweb-demo-{}-{hash}", nix::unistd::geteuid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn two_clones_have_two_short_runtime_folders() {
        let (a, b) = (runtime_dir(Path::new("/a/build/demo")), runtime_dir(Path::new("/b/build/demo")));
        assert_ne!(a, b);
        let deep = runtime_dir(Path::new(&format!("/{}", "deep/".repeat(60))));
        assert_eq!(deep.as_os_str().len(), a.as_os_str().len());
    }

    #[test]
    fn a_receipt_of_an_earlier_stop_is_not_taken_for_this_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1.json"), "{}").unwrap();
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(newest_json(folder.path(), later).unwrap(), None);
        let earlier = SystemTime::now() - Duration::from_secs(60);
        assert!(newest_json(folder.path(), earlier).unwrap().is_some());
    }
}
