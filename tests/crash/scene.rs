//! A group whose programs are the witnesses: each start is written down by the component itself, and a start beside a
//! process of an earlier run of the same component is seen through a lock that all of its processes hold.

use crate::support::{Daemon, wait_for};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub const GROUP: &str = "crash";
pub const NAMES: [&str; 3] = ["a", "b", "once"];

/// Written by each program first. Descriptor 9 is inherited by all that it forks.
const BEGIN: &str = r#"exec 9>>"$OUT/lock-$NAME"; flock -n 9 || echo "$NAME twice" >> "$OUT/witness"; echo "$SOCIALWEB_BIRTH started" >> "$OUT/witness""#;

/// What a's grandchild does with the stop signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manners {
    Follows,
    Ignores,
}

/// Where the programs of one daemon leave their traces.
pub struct Scene {
    out: PathBuf,
    manners: Manners,
}

impl Scene {
    pub fn new(name: &str, manners: Manners) -> Scene {
        let name = format!("crash-{}-{name}", std::process::id());
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).unwrap();
        Scene { out, manners }
    }

    /// A first-start task, a program with a port and a grandchild in a session of its own, and one that needs it.
    pub fn config(&self, edition: u32) -> String {
        let trap = if self.manners == Manners::Ignores { "trap \"\" TERM; " } else { "" };
        let once = format!("{BEGIN}; echo half > \"$OUT/task.half\"; sleep 0.05; mv \"$OUT/task.half\" \"$OUT/task\"");
        let stay = "while :; do sleep 1000 & wait $!; done";
        let a = format!("{BEGIN}; (setsid sh -c '{trap}{stay}' &); echo up; {stay}");
        let b = format!("{BEGIN}; exec sleep 10000{edition}");
        let mut text = String::from("kind = \"exec\"\n");
        text += &self.component("once", &once, "kind = \"one-shot\"");
        text += &self.component(
            "a",
            &a,
            "needs = [\"once\"]\nports = [\"web\"]\nreadiness = { kind = \"log-line\", contains = \"up\" }",
        );
        text + &self.component("b", &b, "needs = [\"a\"]")
    }

    fn component(&self, name: &str, script: &str, more: &str) -> String {
        format!(
            "\n[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{script}''']\n\
             env = {{ PATH = \"/usr/bin:/bin\", OUT = \"{}\", NAME = \"{name}\" }}\nstop = {{ grace = \"300ms\" }}\n{more}\n",
            self.out.display()
        )
    }

    /// A moment: what a daemon starts that is launched after it has births from there on. One that an earlier daemon
    /// spawned may write its line only later; its birth tells it apart.
    pub fn mark() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    }

    /// How often each component was started by daemons that were launched after `mark`. Err: one started beside an earlier
    /// run of itself.
    pub fn starts_since(&self, mark: u64) -> Result<BTreeMap<String, usize>, String> {
        let text = fs::read_to_string(self.out.join("witness")).unwrap_or_default();
        let mut starts = BTreeMap::new();
        for line in text.lines() {
            let Some(marker) = line.strip_suffix(" started") else {
                return Err(format!("a process of an earlier run was there at a start: {text}"));
            };
            let mut parts = marker.rsplit('/');
            let birth: u64 = parts.next().and_then(|b| b.parse().ok()).ok_or_else(|| format!("no birth: {line}"))?;
            if birth >= mark {
                *starts.entry(parts.next().unwrap_or_default().to_string()).or_default() += 1;
            }
        }
        Ok(starts)
    }

    /// Every component has started `n` times since then, and no time more.
    pub fn wait_starts(&self, daemon: &Daemon, mark: u64, n: usize) {
        let all = NAMES.iter().map(|name| (name.to_string(), n)).collect();
        wait_for("each component has written its start", || {
            let starts = self.starts_since(mark).unwrap_or_else(|why| panic!("{why}\n{}", daemon.log()));
            assert!(starts.values().all(|seen| *seen <= n), "{starts:?}\n{}", daemon.log());
            (starts == all).then_some(())
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.out);
    }
}
