//! The secrets of this host, as far as files hold them: read only to blot them out where they turn up.

use super::document;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Larger files are databases; what is in them does not lie about in logs as it is.
const MAX_FILE: u64 = 64 << 10;
/// Bounds on what is read of one group.
const MAX_FILES: usize = 300;
const MAX_DEPTH: usize = 5;
/// Shorter words of a private file would blot out half of every text; what is generated is longer.
const MIN_WORD: usize = 16;
/// A file with one line is that secret, however plain.
const MIN_LINE: usize = 8;

/// What a group's private files hold: words of files that only the account may read, in the folders of its secrets.
pub fn of_group(group: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut files, name) = (0, group.file_name().unwrap_or_default().to_string_lossy());
    let folders = fs::read_dir(group).into_iter().flatten().flatten();
    let taken = |name: &str| matches!(name, "logs" | "receipts");
    for entry in folders.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        if !taken(&entry.file_name().to_string_lossy()) {
            walk(&entry.path(), MAX_DEPTH, &mut files, &mut found);
        }
    }
    // The group's name is in its kubeconfig too.
    found.retain(|word| name.is_empty() || !word.contains(name.as_ref()));
    found
}

fn walk(folder: &Path, depth: usize, files: &mut usize, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.path().symlink_metadata() else { continue };
        if meta.is_dir() && depth > 0 {
            walk(&entry.path(), depth - 1, files, found);
        } else if meta.is_file()
            && meta.len() <= MAX_FILE
            && meta.permissions().mode() & 0o077 == 0
            && *files < MAX_FILES
        {
            *files += 1;
            if let Ok(bytes) = crate::state::read_regular(&entry.path()) {
                words(&String::from_utf8_lossy(&bytes), found);
            }
        }
    }
}

/// Words as they would be copied: between spaces, quotes and commas. Paths and names of things are no secrets.
fn words(text: &str, found: &mut BTreeSet<String>) {
    let parts = text.split(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | ',' | '`'));
    let telling = |word: &&str| {
        let of = |is: fn(&u8) -> bool| word.bytes().all(|b| is(&b) || matches!(b, b'-' | b':' | b'.'));
        let (plain, address) = (of(u8::is_ascii_alphabetic), of(u8::is_ascii_digit));
        let common = address || word.contains(['/', '{', '}']) || (plain && word.len() < 24);
        word.len() >= MIN_WORD && !common
    };
    found.extend(parts.filter(telling).map(str::to_string));
    // A whole line may be a passphrase.
    let whole = text.trim();
    if whole.len() >= MIN_LINE && whole.len() <= 200 && !whole.contains('\n') {
        found.insert(whole.to_string());
    }
}

/// Values of environments and of telling keys and flags in a cluster file. A path is no secret.
pub fn of_config(text: &str, found: &mut BTreeSet<String>) {
    let Ok(value) = toml::from_str::<serde_json::Value>(text) else { return };
    document::environment_values(&value, &mut |secret| {
        if !secret.starts_with('/') {
            found.insert(secret.to_string());
        }
    });
}
