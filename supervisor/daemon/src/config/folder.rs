//! The folder of cluster files, as a source of clusters. Its one duty beside reading is law L7: what cannot be read
//! changes nothing, and a lost mount does not look like a hundred deletions.

use super::cluster::{ClusterConfig, load_cluster};
use super::finding::{ConfigError, Finding};
use socialweb_core::GroupName;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Whether the source could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// It was: what it does not list is not declared.
    Read,
    /// It was not: nothing changes.
    Unreadable {
        /// Why, and what to do.
        why: String,
    },
}

/// What a folder of cluster files says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Whether it says anything.
    pub state: SourceState,
    /// One entry per file, by file name. A group whose file is broken keeps the spec that it had.
    pub clusters: Vec<Result<ClusterConfig, ConfigError>>,
    /// Groups known before whose file is gone: to be parked.
    pub absent: Vec<GroupName>,
    /// What somebody should look at.
    pub warnings: Vec<Finding>,
}

/// Reads the folder. `known` are the groups that it declared when it was last read, by this daemon or an earlier one. That none of
/// them is there any more is believed only when it `may_be_empty`.
pub fn read_folder(folder: &Path, known: &BTreeSet<GroupName>, may_be_empty: bool) -> Declared {
    let files = match list(folder) {
        Ok(files) => files,
        Err(why) => return unreadable(folder, why),
    };
    if files.is_empty() && !known.is_empty() && !may_be_empty {
        return unreadable(folder, empty_though_known(known));
    }
    let clusters: Vec<_> = files.iter().map(|file| load_cluster(file)).collect();
    let present: BTreeSet<&GroupName> = clusters.iter().filter_map(group_of).collect();
    let absent: Vec<GroupName> = known.iter().filter(|name| !present.contains(name)).cloned().collect();
    let warnings = absent.iter().map(|name| parked(folder, name)).collect();
    Declared { state: SourceState::Read, clusters, absent, warnings }
}

fn group_of(entry: &Result<ClusterConfig, ConfigError>) -> Option<&GroupName> {
    match entry {
        Ok(cluster) => Some(&cluster.name),
        Err(error) => error.group.as_ref(),
    }
}

/// The cluster files, by name. A hidden file is an editor's, not an operator's.
fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("the folder of cluster files cannot be read: {e}"))?;
    let mut files = Vec::new();
    for entry in entries {
        // A listing that breaks off in the middle must not count as a whole one.
        let entry = entry.map_err(|e| format!("the folder of cluster files cannot be listed to its end: {e}"))?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && entry.path().extension().is_some_and(|e| e == "toml") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn empty_though_known(known: &BTreeSet<GroupName>) -> String {
    let names: Vec<&str> = known.iter().take(5).map(GroupName::as_str).collect();
    let more = if known.len() > names.len() { ", ..." } else { "" };
    format!(
        "the folder of cluster files is empty although it declared {}{more}; if a mount was lost, bring it back; if it is meant, `ctl reload --allow-empty` parks them and keeps their data",
        names.join(", ")
    )
}

fn unreadable(folder: &Path, why: String) -> Declared {
    let warning = Finding::warning(folder, format!("{why}; nothing is changed"));
    let state = SourceState::Unreadable { why };
    Declared { state, clusters: Vec::new(), absent: Vec::new(), warnings: vec![warning] }
}

fn parked(folder: &Path, name: &GroupName) -> Finding {
    let message = format!(
        "the file of group {name} is gone: it is parked and its data kept; `ctl delete {name}` would destroy that"
    );
    Finding::warning(&folder.join(format!("{name}.toml")), message)
}
