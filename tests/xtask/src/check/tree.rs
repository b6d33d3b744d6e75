//! Reads what git would commit: tracked files, and new ones that are not ignored.

use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Folders that exist on somebody's machine only. Built from words, so that this file passes its own check.
const MACHINE: [&str; 3] = ["work", "farm", "root"];

/// Lock files are made by tools from other people's names.
const EXEMPT: [&str; 2] = ["Cargo.lock", "go.sum"];

/// Each fault as `file:line: what`.
pub fn faults(repo: &Repo) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(repo.root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut found = Vec::new();
    for name in run::output(&mut git)?.split('\0').filter(|name| !name.is_empty()) {
        let path = repo.path(name);
        // Deleted and not committed yet, a link, or data.
        if !path.is_file() || path.is_symlink() || EXEMPT.iter().any(|exempt| name.ends_with(exempt)) {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("reading {name}"))?;
        if bytes.contains(&0) {
            continue;
        }
        found.extend(faults_in(&bytes).map(|(line, what)| format!("  {name}:{line}: {what}")));
    }
    Ok(found)
}

fn faults_in(bytes: &[u8]) -> impl Iterator<Item = (usize, String)> {
    bytes.split(|byte| *byte == b'\n').enumerate().filter_map(|(number, line)| Some((number + 1, fault(line)?)))
}

fn fault(line: &[u8]) -> Option<String> {
    if !line.is_ascii() {
        return Some("a byte above 0x7F".to_string());
    }
    let text = String::from_utf8_lossy(line);
    let machine = MACHINE.iter().map(|folder| format!("/{folder}/")).find(|folder| text.contains(folder.as_str()))?;
    Some(format!("a path of one machine ({machine}...)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &[usize]) {
        assert_eq!(faults_in(text.as_bytes()).map(|(line, _)| line).collect::<Vec<_>>(), want, "{text:?}");
    }

    #[test]
    fn what_only_one_machine_or_one_encoding_has_is_found_with_its_line() {
        check("fine\n/tmp/x\nnetwork/reroot", &[]);
        check("a\n\u{e9}\nb", &[2]);
        check(&format!("a\nb\ncd /{}/main", MACHINE[0]), &[3]);
        check(&format!("/{}/.cache", MACHINE[2]), &[1]);
    }
}
