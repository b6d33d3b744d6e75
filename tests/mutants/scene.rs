//! Programs that tell what is done to them.

use crate::support::cgroup2_mount_point;
use std::fs;
use std::path::{Path, PathBuf};

/// Who follows the signal gets the time that a slow machine takes.
const LONG: &str = "60s";
/// Who does not is killed after this.
const BRIEF: &str = "300ms";

/// `say WORDS` leaves a line; the lock on descriptor 9 shows a start beside an earlier run. A shell that tells of a killed
/// child through the pipe of a daemon that is gone would die of that, and nobody would have ended it.
const HEAD: &str = r#"exec 2>/dev/null
say() { echo "$1" >> "$OUT/said"; }
exec 9>>"$OUT/lock-$NAME"; flock -n 9 || say "$NAME twice"; echo "$NAME" >> "$OUT/started"
"#;
/// Tenths of a second that b takes to follow the signal.
const LINGER: u32 = 5;
/// The same where a is not to be told meanwhile, and is; that ends it.
const LONG_LINGER: u32 = 300;
const STAY: &str = "while :; do sleep 0.1; done";

/// Where the programs of one daemon leave their traces.
pub struct Scene {
    pub out: PathBuf,
    linger: u32,
}

impl Scene {
    /// `patient`: b waits for a to be told, which must not happen, as long as a slow machine may take for that.
    pub fn new(name: &str, patient: bool) -> Scene {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).unwrap();
        Scene { out, linger: if patient { LONG_LINGER } else { LINGER } }
    }

    fn component(&self, name: &str, grace: &str, script: &str, more: &str) -> String {
        let cgroups = cgroup2_mount_point().map(|m| m.display().to_string()).unwrap_or_default();
        format!(
            "\n[[component]]\nname = \"{name}\"\nargv = [\"sh\", \"-c\", '''{HEAD}{script}''']\nenv = {{ PATH = \
             \"/usr/bin:/bin\", OUT = \"{}\", NAME = \"{name}\", CG = \"{cgroups}\" }}\nstop = {{ grace = \"{grace}\" }}\n{more}\n",
            self.out.display()
        )
    }

    /// a with a port, and b that needs it and takes a moment to follow the signal.
    pub fn pair(&self) -> String {
        let a = format!(
            "trap 'ls ../receipts 2>/dev/null | grep -q json && say \"a sees a receipt\"; say \"a told\"; exit 0' TERM\necho up\n{STAY}"
        );
        let lingers = format!(
            "n=0; while [ $n -lt {} ] && ! grep -q \"a told\" \"$OUT/said\"; do sleep 0.1; n=$((n+1)); done",
            self.linger
        );
        let b = format!("trap 'say \"b told\"; {lingers}; say \"b done\"; exit 0' TERM\necho up\n{STAY}");
        let ready = "readiness = { kind = \"log-line\", contains = \"up\" }";
        let text = self.component("a", LONG, &a, &format!("ports = [\"web\"]\n{ready}"));
        format!("kind = \"exec\"\n{text}{}", self.component("b", LONG, &b, &format!("needs = [\"a\"]\n{ready}")))
    }

    /// The pair, and above it one that is frozen, one that ignores the signal, and one whose grandchild left the cgroup.
    pub fn nasty(&self, cgroups: bool) -> String {
        let above = "needs = [\"b\"]";
        let stubborn = format!("trap '' TERM\n(setsid sh -c '{STAY}' &)\necho s > \"$OUT/here-s\"\n{STAY}");
        let mut text = self.pair() + &self.component("s", BRIEF, &stubborn, above);
        if cgroups {
            let frozen = format!(
                "trap 'say \"f told\"; exit 0' TERM\necho f > \"$OUT/here-f\"\necho 1 > \"$CG$(sed -n s/^0:://p /proc/self/cgroup)/cgroup.freeze\"\n{STAY}"
            );
            let hides =
                "trap \"\" TERM; echo $$ > \"$CG$d/cgroup.procs\"; echo m > \"$OUT/here-m\"; while :; do sleep 1; done";
            let mover = format!(
                "d=$(sed -n s/^0:://p /proc/self/cgroup); d=${{d%/socialweb-*}}; export d\n(setsid sh -c '{hides}' &)\nexec sleep 100000"
            );
            text += &self.component("f", LONG, &frozen, above);
            text += &self.component("m", BRIEF, &mover, above);
        }
        text
    }

    /// One that takes for ever to stop.
    pub fn endless(&self) -> String {
        let script = format!("trap '' TERM\necho up\n{STAY}");
        let ready = "readiness = { kind = \"log-line\", contains = \"up\" }";
        format!("kind = \"exec\"\n{}", self.component("e", "10m", &script, ready))
    }

    pub fn said(&self) -> Vec<String> {
        self.lines("said")
    }

    pub fn lines(&self, file: &str) -> Vec<String> {
        fs::read_to_string(self.out.join(file)).unwrap_or_default().lines().map(str::to_string).collect()
    }

    pub fn is_here(&self, name: &str) -> bool {
        self.out.join(format!("here-{name}")).exists()
    }

    /// Living processes of the scene, wherever they are.
    pub fn alive(&self) -> Vec<(u32, String)> {
        let found = socialweb_sys::process::find_marked("OUT", &self.out.display().to_string()).unwrap();
        found.into_iter().map(|p| (p.pid, p.stat.comm)).collect()
    }

    /// Ends all that a broken daemon left.
    pub fn clear(&self) {
        crate::support::try_wait_for(|| {
            let found = socialweb_sys::process::find_marked("OUT", &self.out.display().to_string()).unwrap();
            found.iter().for_each(|p| drop(p.pidfd.send(9)));
            found.is_empty().then_some(())
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.clear();
        let _ = fs::remove_dir_all(&self.out);
    }
}
