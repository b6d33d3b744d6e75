//! Core dumps: found in the folders where components ran, kept in one place with the run's group, and no more of them than
//! its budget, so that a crash loop cannot fill the disk (systemd/systemd 17672).
//!
//! Ours are those that the kernel writes into a component's working folder, which is what a `core_pattern` without a `/` or
//! `|` asks for. A file is taken for one only when its name fits that pattern and its head says ELF core. Where the pattern
//! names another place, or a program, the dumps are that place's.

use super::{Host, Msg};
use crate::state::{must_be_own_folder, open_regular};
use socialweb_core::{CoreBudget, GroupName};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A worker that crashes again and again is nobody's child but its own component's: looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Whether somebody looks at a group's dumps, which takes as long as its disk does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Looking {
    /// Nobody.
    #[default]
    No,
    /// Somebody.
    Yes,
    /// Somebody, and more may have come meanwhile.
    Again,
}

/// What one look at a group's dumps did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where new ones are now.
    kept: Vec<PathBuf>,
    /// Removed, because the budget holds no more.
    removed: u64,
}

/// One look.
struct Look {
    /// Working folders, each with the name that its dumps get.
    places: Vec<(String, PathBuf)>,
    /// Where they are kept.
    store: PathBuf,
    budget: CoreBudget,
}

/// A dump on the disk.
struct Dump {
    path: PathBuf,
    bytes: u64,
    at: SystemTime,
}

impl Host {
    /// Looks for dumps of the group, beside the loop: a working folder may be large, or on a slow disk.
    pub(super) fn look_for_cores(&mut self, group: &GroupName) {
        let Some(held) = self.groups.get_mut(group) else { return };
        let Some(spec) = held.machine.spec() else { return };
        let may_dump = spec.components.iter().filter(|c| c.launch.core_limit > 0);
        let places: Vec<_> = may_dump.map(|c| (c.name.to_string(), c.launch.cwd.clone())).collect();
        if places.is_empty() {
            return;
        }
        if held.core_look != Looking::No {
            held.core_look = Looking::Again;
            return;
        }
        held.core_look = Looking::Yes;
        let look = Look { places, store: self.config.group_dir(group).join("cores"), budget: spec.cores };
        let group = group.clone();
        self.ask_aside(Msg::Cores(group.clone(), Found::default()), move || {
            let found = Pattern::of_this_host().map(|pattern| look.run(&pattern)).unwrap_or_default();
            Msg::Cores(group, found)
        });
    }

    /// What a look found is told.
    pub(super) fn cores_found(&mut self, group: &GroupName, found: &Found) {
        let Some(held) = self.groups.get_mut(group) else { return };
        let again = std::mem::take(&mut held.core_look) == Looking::Again;
        for path in &found.kept {
            self.warn(Some(group), format!("a core dump is kept as {}", path.display()));
        }
        if found.removed > 0 {
            let text = format!("{} core dumps are removed: the group's budget of them is full", found.removed);
            self.warn(Some(group), text);
        }
        if again {
            self.look_for_cores(group);
        }
    }

    /// Looks at all groups now and then, once one of them may dump.
    pub(super) fn watch_cores(&mut self, group: &GroupName) {
        let spec = self.groups.get(group).and_then(|h| h.machine.spec());
        let may_dump = spec.is_some_and(|s| s.components.iter().any(|c| c.launch.core_limit > 0));
        if !may_dump || std::mem::replace(&mut self.watches_cores, true) {
            return;
        }
        let tx = self.tx.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if tx.send(Msg::LookForCores).is_err() {
                    return;
                }
            }
        });
    }

    pub(super) fn look_for_all_cores(&mut self) {
        for group in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.look_for_cores(&group);
        }
    }
}

impl Look {
    fn run(&self, pattern: &Pattern) -> Found {
        let mut found = Found::default();
        // Through a link in its place the budget would remove what others keep.
        if must_be_own_folder(&self.store).is_err() {
            return found;
        }
        let mut dumps = dumps(&self.store, |_| true);
        for (name, place) in &self.places {
            for dump in dumps_of(place, pattern) {
                match self.keep(name, &dump) {
                    // Another file system, or no room for a folder: it counts where it is.
                    Err(_) => dumps.push(dump),
                    Ok(path) => {
                        found.kept.push(path.clone());
                        dumps.push(Dump { path, ..dump });
                    }
                }
            }
        }
        dumps.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| b.path.cmp(&a.path)));
        let kept = self.budget.keeps(dumps.iter().map(|d| d.bytes));
        for dump in &dumps[kept..] {
            if fs::remove_file(&dump.path).is_ok() {
                found.removed += 1;
                found.kept.retain(|path| *path != dump.path);
            }
        }
        found
    }

    /// Moves one to its place, under the component's name and the moment of its writing.
    fn keep(&self, component: &str, dump: &Dump) -> io::Result<PathBuf> {
        super::execute::make_private(&self.store).map_err(io::Error::other)?;
        let since = dump.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let free = |n: &u32| !self.store.join(stored(component, since.as_millis(), *n)).exists();
        let number = (0..1000).find(free).ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?;
        let path = self.store.join(stored(component, since.as_millis(), number));
        fs::rename(&dump.path, &path)?;
        Ok(path)
    }
}

fn stored(component: &str, ms: u128, number: u32) -> String {
    match number {
        0 => format!("{component}-{ms}.core"),
        n => format!("{component}-{ms}-{n}.core"),
    }
}

fn dumps_of(folder: &Path, pattern: &Pattern) -> Vec<Dump> {
    dumps(folder, |name| pattern.fits(name))
}

/// Core dumps directly in `folder` whose names fit. No folder, no dumps.
fn dumps(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<Dump> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|e| e.file_name().to_str().is_some_and(&fits));
    named.filter_map(|e| dump_at(e.path())).collect()
}

/// The file, if it is a core dump. A link, a FIFO or a folder of that name is none.
fn dump_at(path: PathBuf) -> Option<Dump> {
    if !fs::symlink_metadata(&path).ok()?.is_file() {
        return None;
    }
    let mut file = open_regular(&path).ok()?;
    let mut head = [0u8; 18];
    file.read_exact(&mut head).ok()?;
    let meta = file.metadata().ok()?;
    is_core(&head).then(|| Dump {
        path,
        bytes: size_on_disk(&meta),
        at: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
    })
}

/// Dumps are sparse: what counts is what they take.
fn size_on_disk(meta: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    meta.blocks().saturating_mul(512)
}

/// ELF with e_type ET_CORE.
fn is_core(head: &[u8; 18]) -> bool {
    head.starts_with(b"\x7fELF") && u16::from_ne_bytes([head[16], head[17]]) == 4
}

/// What the kernel calls its dumps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// Literal texts; between two of them anything.
    parts: Vec<String>,
}

impl Pattern {
    fn of_this_host() -> Option<Pattern> {
        Pattern::parse(fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?.trim_end())
    }

    /// `None`: the dumps do not go into the working folder, or their names tell nothing.
    fn parse(pattern: &str) -> Option<Pattern> {
        if pattern.is_empty() || pattern.contains('/') || pattern.starts_with('|') {
            return None;
        }
        let mut parts = vec![String::new()];
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match (c, parts.last_mut()) {
                ('%', Some(part)) => match chars.next() {
                    Some('%') => part.push('%'),
                    _ => parts.push(String::new()),
                },
                (c, Some(part)) => part.push(c),
                (_, None) => {}
            }
        }
        let tells = parts.iter().any(|part| !part.is_empty());
        tells.then_some(Pattern { parts })
    }

    /// True for a name that the pattern gives, with `.PID` behind it or not (kernel.core_uses_pid).
    fn fits(&self, name: &str) -> bool {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let stem = name.rsplit_once('.').filter(|(_, pid)| digits(pid)).map(|(stem, _)| stem);
        self.fits_whole(name) || stem.is_some_and(|stem| self.fits_whole(stem))
    }

    fn fits_whole(&self, name: &str) -> bool {
        let [first, middle @ .., last] = &self.parts[..] else {
            return self.parts.first().is_some_and(|only| only == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(pattern: &str, fits: &[&str], others: &[&str]) {
        let parsed = Pattern::parse(pattern).unwrap();
        fits.iter().for_each(|name| assert!(parsed.fits(name), "{pattern} gives {name}"));
        others.iter().for_each(|name| assert!(!parsed.fits(name), "{pattern} does not give {name}"));
    }

    #[test]
    fn the_names_that_a_pattern_gives() {
        check("core", &["core", "core.17"], &["cores", "core.db", "core.", "a.core", "score"]);
        check("core.%p", &["core.17", "core.17.18"], &["core", "acore.17"]);
        check("core.%e.%p.x", &["core.sh.17.x", "core.sh.17.x.9"], &["core.sh", "core.x"]);
        check("%e-100%%.core", &["sh-100%.core"], &["sh.core"]);
        for elsewhere in ["", "|/usr/lib/systemd/systemd-coredump %P", "/var/crash/core.%p", "cores/core", "%e%p", "%"]
        {
            assert_eq!(Pattern::parse(elsewhere), None, "{elsewhere}");
        }
    }

    /// A file that begins as a dump does. `age`: seconds ago.
    fn dump(path: &Path, bytes: usize, age: u64) {
        let mut content = vec![1u8; bytes.max(18)];
        content[..4].copy_from_slice(b"\x7fELF");
        content[16..18].copy_from_slice(&4u16.to_ne_bytes());
        fs::write(path, content).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    struct Site {
        dir: tempfile::TempDir,
        look: Look,
    }

    impl Site {
        fn new(bytes: u64, count: u32) -> Site {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("kine")).unwrap();
            let look = Look {
                places: vec![("kine".into(), dir.path().join("kine")), ("gone".into(), dir.path().join("gone"))],
                store: dir.path().join("cores"),
                budget: CoreBudget { bytes, count },
            };
            Site { dir, look }
        }

        fn cwd(&self, name: &str) -> PathBuf {
            self.dir.path().join("kine").join(name)
        }

        fn look(&self) -> Found {
            self.look.run(&Pattern::parse("core").unwrap())
        }

        fn stored(&self) -> usize {
            fs::read_dir(&self.look.store).map_or(0, Iterator::count)
        }
    }

    #[test]
    fn a_dump_goes_to_the_groups_own_place_and_nothing_else_is_touched() {
        let site = Site::new(1 << 30, 9);
        assert_eq!(site.look(), Found::default());
        dump(&site.cwd("core"), 100, 0);
        dump(&site.cwd("core.17"), 100, 0);
        fs::write(site.cwd("core.18"), "a file of the program's own").unwrap();
        fs::create_dir(site.cwd("core.19")).unwrap();
        std::os::unix::fs::symlink(site.cwd("core.17"), site.cwd("core.20")).unwrap();
        nix::unistd::mkfifo(&site.cwd("core.21"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        dump(&site.cwd("data"), 100, 0);
        let found = site.look();
        assert_eq!((found.kept.len(), found.removed, site.stored()), (2, 0, 2));
        assert!(found.kept.iter().all(|p| p.exists() && p.to_string_lossy().ends_with(".core")), "{found:?}");
        assert_eq!(fs::read_dir(site.dir.path().join("kine")).unwrap().count(), 5);
        assert_eq!(site.look(), Found::default(), "a second look finds nothing new");
    }

    #[test]
    fn a_link_in_the_place_of_the_store_leads_to_nothing_of_ours() {
        let site = Site::new(1, 0);
        let others = site.dir.path().join("others");
        fs::create_dir(&others).unwrap();
        dump(&others.join("kept.core"), 100, 0);
        std::os::unix::fs::symlink(&others, &site.look.store).unwrap();
        dump(&site.cwd("core"), 100, 0);
        assert_eq!(site.look(), Found::default());
        assert!(others.join("kept.core").exists() && site.cwd("core").exists());
    }

    #[test]
    fn a_crash_loop_keeps_the_youngest_within_the_budget() {
        let site = Site::new(1 << 30, 3);
        for age in (0..10).rev() {
            dump(&site.cwd("core"), 5000, 1000 * (1 + age));
            site.look();
        }
        assert_eq!(site.stored(), 3);
        let ages = dumps(&site.look.store, |_| true).into_iter().map(|d| d.at.elapsed().unwrap().as_secs());
        assert!(ages.max().unwrap() < 4000, "the oldest went");
    }

    #[test]
    fn the_bytes_of_all_dumps_are_bounded() {
        let site = Site::new(100_000, 9);
        for n in 0..5 {
            dump(&site.cwd(&format!("core.{n}")), 40_000, n);
        }
        let found = site.look();
        assert_eq!((found.removed, site.stored()), (3, 2), "{found:?}");
        assert_eq!(found.kept.len(), 2);
        dump(&site.cwd("core"), 200_000, 0);
        assert_eq!((site.look().removed, site.stored()), (3, 0), "one that is too large alone is not kept either");
    }
}
