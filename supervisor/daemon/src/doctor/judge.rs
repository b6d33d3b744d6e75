//! What the facts mean. Pure: facts in, one check per thing out, each with its fix.

use super::facts::{CgroupFacts, Facts, Hierarchy, RootFacts};
use super::place::Seen;
use super::{account, files};
use socialweb_wire::{Check, counted};
use std::collections::BTreeSet;

/// The drop-in that hands all controllers to users' managers, and lifts journald's limit; it is in units/.
pub(super) const DROP_IN: &str = "install units/system/user@.service.d/socialweb-computer.conf as \
                       /etc/systemd/system/user@.service.d/socialweb-computer.conf, then `systemctl daemon-reload` and a new \
                       login of the account (or `systemctl restart user@UID`)";
/// The daemon's unit, which asks for its part.
const UNIT: &str = "run the daemon by units/socialweb-computer-gateway.service, which says Delegate=yes";
/// Controllers that the daemon has a use for.
const WANTED: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// Judges everything, in the order in which it matters.
pub fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![daemon(facts), files::config(facts), hierarchy(facts)];
    if let Some(root) = &facts.cgroups.root {
        checks.extend(below_root(facts, root));
    }
    checks.extend(kernel(facts));
    checks.push(account::open_files(facts));
    checks.push(account::tasks(facts));
    checks.push(account::linger(facts));
    checks.push(account::systemd(facts));
    checks.push(account::journal(facts));
    checks.push(left(facts));
    checks.extend(files::programs(facts));
    checks.push(files::state(facts));
    checks.push(files::ports(facts));
    checks.push(files::clock(facts));
    checks
}

/// Whose report it is.
pub fn subject(facts: &Facts) -> String {
    let account = format!("account {} (uid {})", facts.account.1, facts.account.0);
    match facts.seen {
        Seen::Answers { pid } => format!("the daemon, pid {pid}, {account}"),
        Seen::Silent { pid, .. } => format!("the daemon that does not answer, pid {pid}, {account}"),
        Seen::Absent => format!("no daemon; this host as the {account} would find it"),
    }
}

fn daemon(facts: &Facts) -> Check {
    const NAME: &str = "daemon";
    match (facts.seen, facts.holder) {
        (Seen::Answers { pid }, _) => Check::ok(NAME, format!("pid {pid} answers on {}", facts.socket)),
        (Seen::Silent { pid, state }, _) => {
            let (how, fix) = match state {
                'T' | 't' => ("is stopped", format!("`kill -CONT {pid}` lets it go on; find out who stopped it")),
                'F' => (
                    "is frozen by its cgroup",
                    "`systemctl --user thaw UNIT` lets it go on, or a 0 in its cgroup.freeze".to_string(),
                ),
                'D' => ("sleeps uninterruptibly", "wait for its disk or network file system, or mend that".to_string()),
                _ => ("runs", "look at its log; `systemctl --user restart socialweb-computer-gateway`".to_string()),
            };
            Check::fail(
                NAME,
                format!("pid {pid} takes connections on {} and does not answer: it {how}", facts.socket),
                fix,
            )
        }
        (Seen::Absent, Some(pid)) => Check::fail(
            NAME,
            format!("nobody answers on {}, and pid {pid} holds the state folder", facts.socket),
            "name its socket with -socket or SOCIALWEB_ADMIN_SOCKET; if the socket was deleted, restart the daemon",
        ),
        (Seen::Absent, None) => Check::warn(
            NAME,
            format!("none answers on {}", facts.socket),
            "`systemctl --user start socialweb-computer-gateway`, or `socialweb-computer run -config FILE`",
        ),
    }
}

// ---- cgroups ----------------------------------------------------------------------------------------------------------

fn hierarchy(facts: &Facts) -> Check {
    const NAME: &str = "cgroups";
    const BOOT: &str = "boot with the unified hierarchy (kernel parameter systemd.unified_cgroup_hierarchy=1)";
    match facts.cgroups.hierarchy {
        Hierarchy::Unified => Check::ok(NAME, "cgroup2 alone is mounted"),
        Hierarchy::Hybrid => Check::warn(
            NAME,
            "cgroup2 is mounted beside v1, which has the controllers: limits do not work, the end of a group does",
            BOOT,
        ),
        Hierarchy::Old => Check::fail(
            NAME,
            "only v1 is mounted: processes are found by session and marker, which one that hides escapes",
            BOOT,
        ),
        Hierarchy::Missing => Check::fail(
            NAME,
            "no cgroup hierarchy is mounted: processes are found by session and marker, which one that hides escapes",
            "mount one: `mount -t cgroup2 none /sys/fs/cgroup`",
        ),
    }
}

fn below_root(facts: &Facts, root: &RootFacts) -> Vec<Check> {
    let mut checks = vec![writable(facts, root), controllers(facts, root)];
    checks.extend(own_process(root));
    checks.extend(kind(root));
    checks
}

fn writable(facts: &Facts, root: &RootFacts) -> Check {
    const NAME: &str = "delegation";
    let at = format!("{} ({})", root.path.display(), root.whose);
    if root.unwritable.is_empty() {
        return Check::ok(NAME, format!("the account may write {at}"));
    }
    let what = format!("the account may not write {} in {at}", root.unwritable.join(", "));
    let fix = match &facts.systemd {
        Some(_) if facts.seen == Seen::Absent => format!("{UNIT}; started from this shell it has no cgroup of its own"),
        Some(_) => UNIT.to_string(),
        None => format!(
            "there is no systemd here: whoever starts the daemon makes a cgroup for it, gives the account the folder, \
             cgroup.procs and cgroup.subtree_control (`chown {} ...`), and starts it inside",
            facts.account.0
        ),
    };
    Check::fail(NAME, format!("{what}: processes are found by session and marker instead, which is weaker"), fix)
}

fn controllers(facts: &Facts, root: &RootFacts) -> Check {
    const NAME: &str = "controllers";
    let missing: Vec<&str> = WANTED.into_iter().filter(|c| !root.offered.iter().any(|o| o == c)).collect();
    let has = if root.offered.is_empty() { "none".to_string() } else { root.offered.join(", ") };
    if missing.is_empty() {
        return Check::ok(NAME, format!("{} has {has}", root.path.display()));
    }
    let text = format!(
        "{} lacks {} (it has {has}): limits and accounting of these do not work",
        root.path.display(),
        missing.join(", ")
    );
    let fix = match (facts.cgroups.hierarchy, &facts.systemd) {
        (Hierarchy::Hybrid, _) => "boot with the unified hierarchy: v1 has the controllers".to_string(),
        (_, Some(_)) => DROP_IN.replace("UID", &facts.account.0.to_string()),
        (_, None) => format!(
            "there is no systemd here: hand them down in every cgroup above, from the top: `echo {} > cgroup.subtree_control`",
            missing.iter().map(|c| format!("+{c}")).collect::<Vec<_>>().join(" ")
        ),
    };
    Check::warn(NAME, text, fix)
}

/// A cgroup with members may not hand controllers down.
fn own_process(root: &RootFacts) -> Option<Check> {
    const NAME: &str = "own process";
    // The real root of the hierarchy may do both.
    let in_the_way = root.daemon_inside && !root.offered.is_empty() && !root.kind.is_empty();
    match (in_the_way, root.handed_down.is_empty()) {
        (false, _) => None,
        (true, true) => Some(Check::warn(
            NAME,
            format!("the daemon sits in {} itself, so that it hands no controller down", root.path.display()),
            "restart the daemon: it moves to the leaf `supervisor`; if it stays, its log says why",
        )),
        (true, false) => Some(Check::fail(
            NAME,
            format!(
                "the daemon sits in {} itself, which hands controllers down: new processes are refused",
                root.path.display()
            ),
            "restart the daemon; see that nothing moves processes into its cgroup",
        )),
    }
}

fn kind(root: &RootFacts) -> Option<Check> {
    const NAME: &str = "cgroup type";
    match root.kind.as_str() {
        "" | "domain" => None,
        "domain threaded" | "threaded" | "domain invalid" => Some(Check::fail(
            NAME,
            format!(
                "{} is {:?}: whole processes cannot be started below it, or not be killed at once",
                root.path.display(),
                root.kind
            ),
            "somebody wrote \"threaded\" to a cgroup.type there; remove that cgroup, or start the daemon in another one",
        )),
        other => Some(Check::warn(
            NAME,
            format!("{} has the unknown type {other:?}", root.path.display()),
            "start the daemon in another cgroup",
        )),
    }
}

// ---- the kernel -------------------------------------------------------------------------------------------------------

fn kernel(facts: &Facts) -> Vec<Check> {
    const NAME: &str = "kernel";
    const FIX: &str = "run a kernel of 5.14 or later";
    let release = &facts.kernel;
    let check = match version(release) {
        None => Check::warn(NAME, format!("its release {release:?} is not understood"), FIX),
        Some(v) if v < (5, 9) => {
            Check::fail(NAME, format!("{release} has no close_range, without which nothing is started"), FIX)
        }
        Some(v) if v < (5, 14) => Check::warn(
            NAME,
            format!("{release} has no cgroup.kill: members are killed one by one, and forks can outrun that"),
            FIX,
        ),
        Some(_) if !facts.pidfds => Check::fail(
            NAME,
            format!("{release} refuses pidfd_open, without which no process is signalled"),
            "allow pidfd_open and pidfd_send_signal in the seccomp filter of the container that this runs in",
        ),
        Some(_) if has_no_kill(&facts.cgroups) => {
            Check::warn(NAME, format!("{release}, and yet there is no cgroup.kill in the daemon's cgroup"), FIX)
        }
        Some(_) => Check::ok(NAME, format!("{release}: clone3 into cgroups, pidfds, cgroup.kill")),
    };
    vec![check]
}

fn has_no_kill(cgroups: &CgroupFacts) -> bool {
    cgroups.root.as_ref().is_some_and(|root| !root.has_kill)
}

/// "6.1.0-13-amd64" is (6, 1).
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

// ---- what is left -----------------------------------------------------------------------------------------------------

/// Processes that run, counted.
fn run(n: usize) -> String {
    format!("{} {}", counted(n, "process"), if n == 1 { "runs" } else { "run" })
}

fn left(facts: &Facts) -> Check {
    const NAME: &str = "leftovers";
    let left = &facts.left;
    let own = format!("{}/", left.own_id);
    let (ours, others): (Vec<_>, Vec<_>) = left.processes.iter().partition(|(.., marker)| marker.starts_with(&own));
    let named = |all: &[&(u32, String, String)]| {
        let few: Vec<String> =
            all.iter().take(5).map(|(pid, comm, marker)| format!("pid {pid} ({comm}) of {marker}")).collect();
        let more = if all.len() > few.len() { format!(", and {} more", all.len() - few.len()) } else { String::new() };
        format!("{}{more}", few.join(", "))
    };
    if !ours.is_empty() {
        let folder = left.folder(&left.own_id);
        let text = format!("{} whose daemon, of state folder {folder}, is dead: {}", run(ours.len()), named(&ours));
        return Check::fail(NAME, text, "start the daemon of this state folder: it ends them before anything starts");
    }
    if !others.is_empty() {
        let ids: BTreeSet<&str> = others.iter().filter_map(|(.., marker)| marker.split('/').next()).collect();
        let folders: Vec<String> = ids.into_iter().take(5).map(|id| left.folder(id)).collect();
        let text = format!(
            "{} whose daemon, of another state folder, is dead: {}; state folder: {}",
            run(others.len()),
            named(&others),
            folders.join(", ")
        );
        return Check::warn(NAME, text, "start that daemon again, or end them by `kill PID`");
    }
    if !left.cgroups.is_empty() {
        let paths: Vec<String> = left.cgroups.iter().take(5).map(|path| path.display().to_string()).collect();
        let count = counted(left.cgroups.len(), "cgroup subtree");
        let own = left.cgroups.iter().any(|path| path.to_string_lossy().ends_with(&left.own_id));
        let whose = if own && !left.own_id.is_empty() { left.folder(&left.own_id) } else { "another one".into() };
        let text = format!("{count} of daemons that are dead: {}; state folder: {whose}", paths.join(", "));
        return Check::warn(
            NAME,
            text,
            "start the daemon of that state folder, or remove the empty folders from below with rmdir",
        );
    }
    Check::ok(NAME, "no process and no cgroup of a dead daemon")
}
