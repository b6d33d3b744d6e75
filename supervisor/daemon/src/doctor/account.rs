//! What the facts mean for the account: its limits, its service manager. Pure.

use super::facts::{Facts, JournalFacts};
use socialweb_wire::Check;

/// Descriptors of the daemon: its own, and per component a pipe, a pidfd and what probes use for a moment.
const OWN_FILES: u64 = 128;
const FILES_PER_COMPONENT: u64 = 4;
/// Threads: about 100 of a tenant (measured: server 60, OpenBao 20, kine 15), a few of any other component.
const TASKS_PER_TENANT: u64 = 100;
const TASKS_PER_COMPONENT: u64 = 8;
const OWN_TASKS: u64 = 32;

/// RLIMIT_NOFILE against what is declared.
pub(super) fn open_files(facts: &Facts) -> Check {
    const NAME: &str = "open files";
    let needed = OWN_FILES + FILES_PER_COMPONENT * facts.need.components;
    let what = format!("{} groups with {} components need about {needed}", facts.need.groups, facts.need.components);
    match facts.limits.nofile {
        Some(limit) if limit < needed => Check::fail(
            NAME,
            format!("the limit is {limit}, and {what}"),
            format!("set LimitNOFILE={} in the daemon's unit, or `ulimit -Hn` where there is none", round_up(needed)),
        ),
        Some(limit) => Check::ok(NAME, format!("the limit is {limit}; {what}")),
        None => Check::ok(NAME, "without limit"),
    }
}

/// RLIMIT_NPROC and pids.max against what is declared.
pub(super) fn tasks(facts: &Facts) -> Check {
    const NAME: &str = "tasks";
    let need = &facts.need;
    let needed = OWN_TASKS + TASKS_PER_TENANT * need.tenants + TASKS_PER_COMPONENT * need.components;
    let what = format!("{} tenants and {} components need about {needed} threads", need.tenants, need.components);
    if let Some((limit, at)) = facts.limits.tasks.as_ref().filter(|(limit, _)| *limit < needed) {
        let fix = format!("set TasksMax={} for that unit or slice, or write it to pids.max there", round_up(needed));
        return Check::fail(NAME, format!("{} allows {limit}, and {what}", at.display()), fix);
    }
    if let Some(limit) = facts.limits.nproc.filter(|limit| *limit < needed) {
        let fix =
            format!("set LimitNPROC={} in the daemon's unit, or raise `ulimit -u` of the account", round_up(needed));
        return Check::fail(NAME, format!("the account may have {limit} processes, and {what}"), fix);
    }
    let lowest = facts.limits.tasks.as_ref().map(|(limit, _)| *limit).into_iter().chain(facts.limits.nproc).min();
    let limit = lowest.map_or("no limit".to_string(), |limit| format!("a limit of {limit}"));
    Check::ok(NAME, format!("{limit}; {what}"))
}

/// Twice the need, as a round number.
fn round_up(needed: u64) -> u64 {
    (2 * needed).next_power_of_two().max(1024)
}

/// Does what the account runs outlive its sessions?
pub(super) fn linger(facts: &Facts) -> Check {
    const NAME: &str = "linger";
    let name = &facts.account.1;
    let own = &facts.cgroups.own;
    match (&facts.systemd, facts.linger) {
        (None, _) => {
            Check::ok(NAME, "there is no systemd here: nobody ends the daemon when a session ends; start it from init")
        }
        (Some(_), None) => Check::ok(NAME, "not needed: the system's own service manager runs root's units"),
        (Some(_), Some(_)) if facts.seen.pid().is_some() && in_a_session(own) => Check::warn(
            NAME,
            format!("the daemon runs in the login session {own}, which may take it along when it ends"),
            "run it by units/socialweb-computer-gateway.service, or with `systemd-run --user --scope -p Delegate=yes`",
        ),
        (Some(_), Some(true)) => Check::ok(NAME, format!("on for {name}: its services outlive its sessions")),
        (Some(_), Some(false)) => Check::fail(
            NAME,
            format!("off for {name}: its services end with its last session, and do not start at boot"),
            format!("`loginctl enable-linger {name}`"),
        ),
    }
}

fn in_a_session(own: &str) -> bool {
    own.split('/').any(|part| part.starts_with("session-") && part.ends_with(".scope"))
}

/// Does journald keep what the account's units say?
pub(super) fn journal(facts: &Facts) -> Check {
    const NAME: &str = "journal";
    match &facts.journal {
        None => Check::ok(NAME, "journald has no limit of the account's that would matter here"),
        Some(JournalFacts { unit, burst: Some(burst) }) => {
            Check::ok(NAME, format!("{unit} may log at least {burst} lines at once"))
        }
        Some(JournalFacts { unit, burst: None }) => Check::warn(
            NAME,
            format!(
                "journald has its default limit for {unit}, which all units of the account share: it drops what is above \
                 (10,000 lines in 30 s, where nobody changed it), and the daemon cannot count that"
            ),
            super::judge::DROP_IN,
        ),
    }
}

/// Versions of systemd with a known fault.
pub(super) fn systemd(facts: &Facts) -> Check {
    const NAME: &str = "systemd";
    let Some(version) = &facts.systemd else {
        return Check::ok(
            NAME,
            "does not run this host; the daemon needs it for nothing but its own start, restart and delegation",
        );
    };
    if facts.linger.is_some() && ends_lingering_managers(version) {
        return Check::warn(
            NAME,
            format!(
                "{version} can end the account's manager at its last logout in spite of linger (systemd issue 43361)"
            ),
            "update systemd to 256.3 or later; until then keep one session open, or run the daemon as a system unit with User=",
        );
    }
    match number(version).0 {
        0 => Check::warn(
            NAME,
            format!("its version {version:?} is not understood"),
            "see that `systemctl --version` says one",
        ),
        n if n < 244 => {
            Check::warn(NAME, format!("{version} does not hand every controller to users"), "use systemd 252 or later")
        }
        _ => Check::ok(NAME, version.clone()),
    }
}

/// 255, and 256 before 256.3.
fn ends_lingering_managers(version: &str) -> bool {
    matches!(number(version), (255, _) | (256, 0..3))
}

/// "256.2-1" is (256, 2).
fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let major = parts.next().unwrap_or(0);
    let minor = if version.chars().nth(major.to_string().len()) == Some('.') { parts.next().unwrap_or(0) } else { 0 };
    (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_with_the_fault_are_known() {
        let check = |version: &str, bad: bool| assert_eq!(ends_lingering_managers(version), bad, "{version}");
        for bad in ["255", "255.4-1ubuntu8", "255-1", "256", "256.2-1", "256~rc1"] {
            check(bad, true);
        }
        for good in ["252.39-1~deb12u1", "254.9", "256.3", "256.10-2", "257", "unknown", ""] {
            check(good, false);
        }
    }
}
