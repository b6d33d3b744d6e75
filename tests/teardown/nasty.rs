//! The programs. Each process writes its pid to `<out>/pids/<rank>-<name>` when it is where it wants to be; whoever takes
//! TERM writes to `<out>/term` who of a higher rank is there at that moment.

use super::evidence::Scene;
use std::time::Duration;

pub const NAMES: [&str; 5] = ["forker", "mover", "plain", "respawner", "stubborn"];

/// A leader that follows TERM: notes who is above, then ends. `$OUT` and `$RANK` come by the environment.
const WITNESS: &str = r#"
witness() {
  for f in "$OUT"/pids/*; do
    n=${f##*/}; r=${n%%-*}
    [ "$r" -gt "$RANK" ] || continue
    { read -r p < "$f"; } 2>/dev/null || continue
    { read -r s < "/proc/$p/stat"; } 2>/dev/null || continue
    case "$s" in *") Z "*) [ -n "$ZOMBIES_ARE_GONE" ] && continue;; esac
    echo "$RANK $NAME sees $n" >> "$OUT/term"
  done
  [ -n "$sleeper" ] && kill "$sleeper"
  echo "$RANK $NAME done" >> "$OUT/term"
  exit 0
}
trap witness TERM
here() { echo $$ > "$OUT/pids/.$RANK-$NAME" && mv "$OUT/pids/.$RANK-$NAME" "$OUT/pids/$RANK-$NAME"; }
"#;

/// Sleeps in a way that lets traps run at once.
const PARK: &str = "here\nwhile :; do sleep 1000 & wait $!; done";

/// The same, and leaves nothing behind: when it shows itself, it knows the number of its sleep.
const PARK_TIDILY: &str = "sleep 100000 & sleeper=$!\nhere\nwhile :; do wait $sleeper; done";

/// A program: name, rank, needs, script.
pub struct Program {
    pub name: &'static str,
    pub rank: u16,
    pub needs: &'static [&'static str],
    pub script: String,
}

impl Program {
    /// Who follows TERM gets the time that a slow machine takes; who leaves something that does not, or does not follow
    /// itself, is killed when this is over, so it is short.
    pub fn grace(&self) -> Duration {
        match self.name {
            "plain" => Duration::from_secs(60),
            "forker" => Duration::from_secs(4),
            _ => Duration::from_millis(500),
        }
    }
}

/// What a descendant does: ignores TERM and stays, under its own name.
fn sticky(name: &str, first: &str) -> String {
    format!(
        r#"trap "" TERM; {first} echo $$ > "$OUT/pids/.{name}" && mv "$OUT/pids/.{name}" "$OUT/pids/{name}"; while :; do sleep 1000; done"#
    )
}

/// The group, lowest rank first.
pub fn programs(with_mover: bool) -> Vec<Program> {
    let mut all = vec![
        Program { name: "plain", rank: 1, needs: &[], script: format!("{WITNESS}{PARK_TIDILY}") },
        // Forks twice with a session of its own; the leader follows TERM, the grandchild does not.
        Program {
            name: "forker",
            rank: 2,
            needs: &["plain"],
            script: format!("{WITNESS}(setsid sh -c '{}' &)\n{PARK}", sticky("2-grandchild", "")),
        },
        // Ignores TERM itself, and has a child that does.
        Program {
            name: "stubborn",
            rank: 3,
            needs: &["forker"],
            script: format!("trap '' TERM\nsh -c '{}' &\n{}", sticky("3-child", ""), sticky("3-stubborn", "")),
        },
        // Its child comes back whenever it is killed; neither follows TERM.
        Program {
            name: "respawner",
            rank: 3,
            needs: &["forker"],
            script: format!(
                "trap '' TERM\nwhile :; do sh -c '{}'; done &\n{}",
                sticky("3-respawned", ""),
                sticky("3-respawner", "")
            ),
        },
    ];
    if with_mover {
        // A child of rank 3 that hides in the cgroup of the rank-1 sister. It does not drop its marker: see
        // docs/security.md for what does.
        let hide = r#"d=$(sed -n s/^0:://p /proc/self/cgroup); for s in "$CG$d"/../../plain/*/cgroup.procs; do echo $$ > "$s"; done;"#;
        all.push(Program {
            name: "mover",
            rank: 3,
            needs: &["forker"],
            script: format!("trap '' TERM\n(setsid sh -c '{}' &)\n{}", sticky("3-moved", hide), sticky("3-mover", "")),
        });
    }
    all
}

/// Names of the processes that the programs show, beside the leaders.
pub fn expected(with_mover: bool) -> Vec<&'static str> {
    let mut names = vec!["1-plain", "2-forker", "2-grandchild", "3-child", "3-stubborn", "3-respawned", "3-respawner"];
    if with_mover {
        names.extend(["3-moved", "3-mover"]);
    }
    names
}

pub fn config(scene: &Scene) -> String {
    render(scene, scene.with_mover)
}

pub fn config_without_mover(scene: &Scene) -> String {
    scene.drop_mover();
    render(scene, false)
}

fn render(scene: &Scene, with_mover: bool) -> String {
    let mut text = String::from("kind = \"exec\"\n");
    for p in programs(with_mover) {
        let needs: Vec<String> = p.needs.iter().map(|n| format!("\"{n}\"")).collect();
        text += &format!(
            "\n[[component]]\nname = \"{}\"\nneeds = [{}]\nargv = [\"sh\", \"-c\", '''\n{}''']\n",
            p.name,
            needs.join(", "),
            p.script
        );
        text += &format!("env = {{ {} }}\nstop = {{ grace = \"{}ms\" }}\n", toml_env(scene, &p), p.grace().as_millis());
    }
    text
}

fn toml_env(scene: &Scene, p: &Program) -> String {
    env(scene, p).iter().map(|(k, v)| format!("{k} = \"{v}\"")).collect::<Vec<_>>().join(", ")
}

pub fn env(scene: &Scene, p: &Program) -> Vec<(String, String)> {
    let cgroups = crate::support::cgroup2_mount_point().map(|m| m.display().to_string()).unwrap_or_default();
    vec![
        ("PATH".into(), "/usr/bin:/bin".into()),
        ("OUT".into(), scene.out().display().to_string()),
        ("RANK".into(), p.rank.to_string()),
        ("NAME".into(), p.name.into()),
        ("CG".into(), cgroups),
    ]
}
