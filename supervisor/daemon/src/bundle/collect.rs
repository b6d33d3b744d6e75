//! Which files: only those of known kinds, bounded, never through a link.

use super::Entry;
use super::document;
use super::known;
use super::scrub::Scrub;
use crate::doctor::Place;
use crate::state::{Layout, open_regular, read_regular};
use socialweb_core::GroupName;
use socialweb_wire::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes taken of one file, from its end.
const MAX_BYTES: u64 = 1 << 20;

/// What the daemon itself said, where one answers: names of files and their texts (JSON, or lines of it).
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// status.json, events.ndjson, tree.json, metrics.txt.
    pub files: Vec<(String, String)>,
    /// Log lines by group.
    pub logs: BTreeMap<String, String>,
}

/// Collects everything, scrubbed.
pub fn collect(place: &Place, told: &Told, report: &Report, lines: usize) -> Vec<Entry> {
    let config = config_files(place);
    let mut secrets = BTreeSet::new();
    config.iter().for_each(|(_, text)| known::of_config(text, &mut secrets));
    let layout = place.state_dir.as_ref().map(Layout::new);
    let groups = layout.as_ref().and_then(|layout| layout.list_groups().ok()).unwrap_or_default();
    let mut all = secrets.clone();
    if let Some(layout) = &layout {
        groups.iter().for_each(|group| all.extend(known::of_group(&layout.group(group))));
    }
    let scrub = Scrub::knowing(&all);
    let mut entries = vec![entry("versions.txt", scrub.text(&versions(place)))];
    entries.push(entry("doctor.json", document::json(&scrub, &document::pretty(report))));
    entries.extend(config.iter().map(|(name, text)| entry(&format!("config/{name}"), document::toml(&scrub, text))));
    for (name, text) in &told.files {
        let text = if name.ends_with(".txt") { scrub.text(text) } else { document::json(&scrub, text) };
        entries.push(entry(name, text));
    }
    if let Some(layout) = &layout {
        entries.extend(file_of("state", layout.root(), "leases.json", &scrub));
        for group in &groups {
            // A group's own secrets and those of the configuration: all of all groups would take too long on a full host.
            let mut secrets = secrets.clone();
            secrets.extend(known::of_group(&layout.group(group)));
            entries.extend(of_group(layout, group, &Scrub::knowing(&secrets), &scrub, lines));
        }
    }
    for (group, text) in &told.logs {
        entries.push(entry(&format!("logs/{group}.txt"), scrub.text(text)));
    }
    entries.push(entry("README.txt", readme(&entries)));
    entries
}

fn entry(name: &str, text: String) -> Entry {
    Entry { name: name.into(), text }
}

fn of_group(layout: &Layout, group: &GroupName, own: &Scrub, all: &Scrub, lines: usize) -> Vec<Entry> {
    let folder = layout.group(group);
    let at = format!("state/groups/{group}");
    let mut found = Vec::new();
    for name in ["record.json", "events.jsonl", "events.jsonl.1"] {
        found.extend(file_of(&at, &folder, name, all));
    }
    for name in names(&layout.receipts(group), ".json") {
        found.extend(file_of(&format!("{at}/receipts"), &layout.receipts(group), &name, own));
    }
    for name in names(&layout.logs(group), ".log") {
        if let Ok(text) = end_of(&layout.logs(group).join(&name)) {
            found.push(entry(&format!("{at}/logs/{name}"), own.text(&last(&text, lines))));
        }
    }
    found
}

fn file_of(at: &str, folder: &Path, name: &str, scrub: &Scrub) -> Option<Entry> {
    let text = end_of(&folder.join(name)).ok()?;
    Some(entry(&format!("{at}/{name}"), document::json(scrub, &text)))
}

/// Names in a folder that end so, sorted; none when it cannot be read.
fn names(folder: &Path, ending: &str) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        all.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.ends_with(ending)).collect();
    names.sort();
    names
}

/// The end of a regular file, from a whole line on; a link is not followed.
fn end_of(path: &Path) -> io::Result<String> {
    if !path.symlink_metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(MAX_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(if from == 0 { text } else { text.split_once('\n').map(|(_, rest)| rest.to_string()).unwrap_or_default() })
}

fn last(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// supervisor.toml and the cluster files, with their names.
fn config_files(place: &Place) -> Vec<(String, String)> {
    let mut files: Vec<(String, PathBuf)> =
        place.config_file.iter().map(|file| ("supervisor.toml".to_string(), file.clone())).collect();
    let folder = match (&place.config, &place.config_file) {
        (Some(config), _) => Some(config.clusters_dir.clone()),
        (None, Some(file)) => file.parent().map(|folder| folder.join("clusters.d")),
        (None, None) => None,
    };
    if let Some(folder) = folder {
        files.extend(names(&folder, ".toml").into_iter().map(|name| (format!("clusters.d/{name}"), folder.join(name))));
    }
    // The operator's own files may be links: the configuration room follows them too.
    let read = |path: &Path| String::from_utf8(read_regular(&fs::canonicalize(path).ok()?).ok()?).ok();
    files.into_iter().filter_map(|(name, path)| Some((name, read(&path)?))).collect()
}

fn versions(place: &Place) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let os = read("/etc/os-release");
    let os = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown").trim_matches('"');
    format!(
        "socialweb-computer {}\nkernel {} {}\nsystem {os}\nprogram {}\nuid {}\nstate {}\nconfiguration {}\n",
        env!("CARGO_PKG_VERSION"),
        read("/proc/sys/kernel/osrelease"),
        std::env::consts::ARCH,
        place.exe.display(),
        place.uid,
        place.state_dir.as_deref().map(|p| p.display().to_string()).unwrap_or_default(),
        place.config_file.as_deref().map(|p| p.display().to_string()).unwrap_or_default(),
    )
}

fn readme(entries: &[Entry]) -> String {
    let names: String = entries.iter().map(|entry| format!("  {}\n", entry.name)).collect();
    format!(
        "What `socialweb-computer ctl bundle` found, for a bug report.\n\n\
         Not in it: keys, certificates, tokens, kubeconfigs, databases, values of environments, comments of configuration\n\
         files. What looks like a secret in a line is blotted out as {}. Nobody can know every secret: look through it before\n\
         you send it. Where components write to the journal, their lines are also there:\n\
         journalctl --user SOCIALWEB_CLUSTER=GROUP\n\n{names}",
        super::LEFT_OUT
    )
}
