//! Tables of bad inputs with their messages, hostile files, the examples of `config/`, law L7, and expansion.
#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

mod bad;
mod examples;
mod expansion;
mod hostile;
mod l7;
mod limits;
mod properties;

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

/// A cluster file from text, as if it were clusters.d/web.toml.
fn cluster(text: &str) -> Result<ClusterConfig, ConfigError> {
    parse_cluster(group("web"), Source::new("web.toml", text))
}

fn env(vars: &[(&str, &str)]) -> Env {
    vars.iter().map(|(k, v)| (*k, *v)).collect()
}

/// A folder with supervisor.toml, clusters.d and bin/, that goes away with the test.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(supervisor: &str, clusters: &[(&str, &str)]) -> Self {
        let site = Site { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(site.path("clusters.d")).unwrap();
        fs::create_dir(site.path("bin")).unwrap();
        fs::write(site.path("supervisor.toml"), supervisor).unwrap();
        for (name, text) in clusters {
            fs::write(site.path("clusters.d").join(name), text).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("bin").join(name);
        fs::write(&path, "\u{7f}ELF").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn programs(&self, names: &[&str]) {
        for name in names {
            self.program(name);
        }
    }

    /// An environment in which nothing of the host is found.
    fn env(&self) -> Env {
        let bin = self.path("bin");
        env(&[("PATH", bin.to_str().unwrap()), ("XDG_STATE_HOME", "/state"), ("XDG_RUNTIME_DIR", "/run/user/1000")])
    }

    fn load(&self, known: &[&str]) -> Result<Loaded, ConfigError> {
        let (env, flags) = (self.env(), Overrides::default());
        let known = known.iter().map(|n| group(n)).collect();
        load(&Inputs {
            file: &self.path("supervisor.toml"),
            env: &env,
            flags: &flags,
            known: &known,
            may_be_empty: false,
        })
    }

    fn daemon(&self) -> DaemonConfig {
        self.load(&[]).unwrap().daemon
    }

    /// Findings of `config check`, without the site's folder in front.
    fn check(&self) -> Vec<String> {
        let (env, flags) = (self.env(), Overrides::default());
        let known = BTreeSet::new();
        let inputs = Inputs {
            file: &self.path("supervisor.toml"),
            env: &env,
            flags: &flags,
            known: &known,
            may_be_empty: false,
        };
        let base = format!("{}/", self.folder.path().display());
        check(&inputs, &self.path("bin/socialweb-computer")).iter().map(|f| f.to_string().replace(&base, "")).collect()
    }
}
