//! A group whose programs are the witnesses: each start is written down by the component itself, and a start beside a
//! process of an earlier run of the same component is seen through a lock that all of its processes hold.

use crate::support::{Daemon, wait_for};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub const GROUP: &str = "crash";
pub const NAMES: [&str; 3] = ["a", "b", "once"];

/// Written by each program first. Descriptor 9 is inherited by all that it forks.
const BEGIN: &str = r#"exec 9>>"$OUT/lock-$NAME"; flock -n 9 || echo "$NAME twice" >> "$OUT/witness"; echo "$NAME started" >> "$OUT/witness""#;

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

    /// The lines of the witnesses so far.
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.out.join("witness")).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    /// How often each component started after the first `mark` lines. Err: one started beside an earlier run of itself.
    pub fn starts_since(&self, mark: usize) -> Result<BTreeMap<String, usize>, String> {
        let mut starts = BTreeMap::new();
        let lines = self.lines();
        for line in lines.get(mark..).unwrap_or_default() {
            match line.split_once(' ') {
                Some((name, "started")) => *starts.entry(name.to_string()).or_default() += 1,
                _ => return Err(format!("a process of an earlier run was there at a start: {lines:?}")),
            }
        }
        Ok(starts)
    }

    /// Every component has started `n` times since then, and no time more.
    pub fn wait_starts(&self, daemon: &Daemon, mark: usize, n: usize) {
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
