//! The environment, read once and handed on: nothing in this room looks at the process's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Environment variables, given explicitly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// A copy of this process's environment; what is not UTF-8 is left out.
    pub fn of_this_process() -> Self {
        let utf8 = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Env(utf8.collect())
    }

    /// The value of a variable; an empty one counts as absent.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The variable as an absolute path. A relative one is ignored, as the XDG specification asks.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from).filter(|p| p.is_absolute())
    }

    /// Where state lives when nobody says otherwise.
    pub fn default_state_dir(&self) -> Option<PathBuf> {
        let base = self.path("XDG_STATE_HOME").or_else(|| Some(self.path("HOME")?.join(".local/state")))?;
        Some(base.join("socialweb-computer"))
    }

    /// Where sockets live when nobody says otherwise.
    pub fn default_runtime_dir(&self, state_dir: &Path) -> PathBuf {
        match self.path("XDG_RUNTIME_DIR") {
            Some(base) => base.join("socialweb-computer"),
            None => state_dir.join("run"),
        }
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(vars: I) -> Self {
        Env(vars.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}
