//! A daemon with one demo tenant, and kubectl.

use crate::support::{Daemon, skip, wait_for};
use socialweb_wire::Phase;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Tenant {
    pub daemon: Daemon,
    kubectl: PathBuf,
}

impl Tenant {
    /// Files only. None when a part is missing on this machine.
    pub fn prepare(test: &str) -> Option<Tenant> {
        let bin = std::env::var_os("SOCIALWEB_BIN_DIR").map(PathBuf::from);
        let bin = bin.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("build/bin"));
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let there = |name: &str| path.split(':').map(|d| Path::new(d).join(name)).find(|p| p.is_file());
        let missing = ["kine", "bao", "kubectl"].into_iter().find(|name| there(name).is_none());
        let missing =
            missing.or_else(|| (there("k3s").is_none() && there("kube-server").is_none()).then_some("kube-server"));
        if let Some(name) = missing {
            skip(test, &format!("programs: no {name} on PATH or in build/bin; `cargo x setup` builds it"));
            return None;
        }
        let supervisor = "record_events = true\n[log]\njournal = \"never\"\n";
        let daemon = Daemon::new(supervisor, &[("demo", "account = \"demo\"\n")]).with_env("PATH", &path);
        Some(Tenant { daemon, kubectl: there("kubectl").unwrap() })
    }

    pub fn ready(test: &str) -> Option<Tenant> {
        Some(Tenant::prepare(test)?.start())
    }

    pub fn with_env(mut self, key: &str, value: &str) -> Tenant {
        self.daemon = self.daemon.with_env(key, value);
        self
    }

    pub fn start_without_waiting(mut self) -> Tenant {
        self.daemon.start();
        self
    }

    pub fn start(self) -> Tenant {
        let tenant = self.start_without_waiting();
        tenant.daemon.wait_phase("demo", Phase::Ready);
        tenant
    }

    pub fn port(&self) -> u16 {
        self.daemon.group("demo").ports["https"]
    }

    pub fn pid(&self, component: &str) -> u32 {
        self.daemon.group("demo").component(component).and_then(|c| c.pid).unwrap()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.daemon.group("demo").kubeconfig.expect("status names the kubeconfig").into()
    }

    /// Err: what kubectl complains of.
    pub fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.kubectl);
        command
            .env_remove("KUBECONFIG")
            .env("HOME", &self.daemon.dir)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(args);
        let out = command.output().unwrap();
        match out.status.success() {
            true => Ok(String::from_utf8(out.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    }

    pub fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args).unwrap_or_else(|why| panic!("kubectl {args:?}: {why}\n{}", self.daemon.log()))
    }

    pub fn namespaces(&self) -> Vec<String> {
        let names = self.kubectl(&["get", "namespaces", "-o", "name"]);
        names.lines().map(|l| l.trim_start_matches("namespace/").to_string()).collect()
    }

    pub fn still_the_same(&self, port: u16) {
        assert_eq!(self.port(), port);
        // A server that has just lost its store, and has it again, refuses for a moment.
        let asked = || self.try_kubectl(&["get", "configmap", "before", "-o", "jsonpath={.data.a}"]);
        let kept = wait_for("the server answers again", || asked().ok());
        assert_eq!(kept, "b");
    }

    pub fn kubeconfig_holds_no_secret(&self) {
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        assert!(text.contains("OPERATOR ONLY"), "{text}");
        for word in ["client-key-data", "client-certificate-data", "token:", "PRIVATE KEY"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }

    /// Every private key and token is 0600, and no word of them is in argv, environment, logs, events or status.
    pub fn secrets_are_private_and_nowhere_else(&self) {
        let group = self.daemon.state().join("groups/demo");
        let mut files = Vec::new();
        walk(&group, &mut files);
        let mut secrets = Vec::new();
        for file in files.iter().filter(|f| is_secret(f)) {
            let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{} has mode {mode:o}", file.display());
            secrets.extend(words(&fs::read(file).unwrap()));
        }
        assert!(secrets.len() > 5, "the test must have found secrets to look for");
        let mut open = vec![("the daemon's log".to_string(), self.daemon.log())];
        for file in files.iter().filter(|f| {
            f.components().any(|c| c.as_os_str() == "logs" || c.as_os_str() == "receipts")
                || f.ends_with("events.jsonl")
                || f.ends_with("record.json")
        }) {
            open.push((file.display().to_string(), String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()));
        }
        open.push(("status".into(), self.daemon.ctl_ok(&["status", "-o", "json"])));
        for (pid, comm) in self.daemon.marked() {
            for file in ["cmdline", "environ"] {
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                open.push((format!("{file} of {comm}"), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        for (place, text) in open {
            for secret in &secrets {
                assert!(!text.contains(secret.as_str()), "a secret is in {place}");
            }
        }
    }
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(t) if t.is_dir() => walk(&entry.path(), files),
            Ok(t) if t.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

fn is_secret(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    name.ends_with(".key")
        || name.contains("token")
        || name.contains("recovery-key")
        || name.contains("mint-credential")
}

/// The lines of a secret that are long enough to be found by chance nowhere.
fn words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let long = |w: &&str| w.len() >= 32 && !w.starts_with("-----");
    text.split(|c: char| c.is_whitespace() || c == '"').filter(long).map(str::to_string).collect()
}
