//! What was seen of a drill, as checks. Pure.

use super::cases::Case;
use super::eyes::SeenProcess;
use socialweb_wire::{Check, Receipt, Rung, Stopped, counted};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The runs had cgroups of their own.
    pub has_cgroups: bool,
    /// How the daemon keeps processes together, in its own words.
    pub containment: String,
    /// Its cgroups count memory and processes, which takes controllers.
    pub has_controllers: bool,
    /// Time until the group was Ready; else why it was not.
    pub ready: Option<Result<u64, String>>,
    /// Who was there when it was Ready.
    pub during: Vec<SeenProcess>,
    /// Restarts of each component at that time.
    pub restarts: BTreeMap<String, u64>,
    /// Time until the group was down; else why it was not.
    pub stopped: Option<Result<u64, String>>,
    /// The receipt of the stop.
    pub receipt: Option<Receipt>,
    /// Who was still there when the daemon said that the group is down.
    pub left: Vec<SeenProcess>,
    /// Cgroups and folders of the group that were still there in the end.
    pub places_left: Vec<PathBuf>,
    /// Why the group could not be deleted.
    pub not_deleted: Option<String>,
    /// Other groups of which a run is another one than before.
    pub disturbed: Vec<String>,
    /// The longest that the daemon took to say how it is.
    pub slowest_answer_ms: u64,
}

/// What the operator does about a process that is left.
const END_IT: &str = "`kill -9 PID` ends it (it ends by itself within ten minutes); report it with `ctl bundle`";
const REPORT: &str = "look at `ctl events` and the daemon's log, and report it with `ctl bundle`";

/// Judges it.
pub fn judge(seen: &Observed) -> Vec<Check> {
    let mut checks = vec![up(seen)];
    checks.extend(Case::ALL.into_iter().map(|case| one(seen, case)));
    checks.push(down(seen));
    checks.push(order(seen));
    checks.push(nothing_left(seen));
    checks.push(others(seen));
    checks.push(containment(seen));
    checks
}

fn up(seen: &Observed) -> Check {
    match &seen.ready {
        Some(Ok(ms)) => Check::ok("start", "all cases were set up").in_ms(*ms),
        Some(Err(why)) => Check::fail(
            "start",
            format!("the cases were not all set up: {why}"),
            "`ctl logs` says why; REPORT".replace("REPORT", REPORT),
        ),
        None => Check::fail("start", "it did not get that far", REPORT),
    }
}

fn one(seen: &Observed, case: Case) -> Check {
    let name = case.as_str();
    let of_case = |all: &[SeenProcess]| all.iter().filter(|p| p.case == Some(case)).cloned().collect::<Vec<_>>();
    let left = of_case(&seen.left);
    if !left.is_empty() {
        return Check::fail(name, format!("left after the stop: {}", list(&left)), END_IT);
    }
    let there = of_case(&seen.during).len();
    if case == Case::LeaderKilled && there > 1 {
        return Check::fail(
            name,
            format!("what the killed run left is still there: {}", list(&of_case(&seen.during))),
            REPORT,
        );
    }
    if there < case.processes(seen.has_cgroups) {
        let text = format!("not set up: {there} of {} processes were there", case.processes(seen.has_cgroups));
        return Check::fail(name, text, REPORT);
    }
    if case == Case::LeaderKilled && seen.restarts.get(name).copied().unwrap_or(0) == 0 {
        return Check::fail(name, "its leader was killed, and the daemon counts no restart", REPORT);
    }
    let Some(stopped) = stopped(seen, case) else {
        return Check::fail(name, "the receipt does not name it", REPORT);
    };
    if stopped.rung == Rung::Wedged {
        return Check::fail(name, "the daemon gave it up as wedged", REPORT);
    }
    if case == Case::FrozenCgroup && !seen.has_cgroups {
        return Check::warn(name, "not tried: there are no cgroups", "see `ctl doctor`");
    }
    let text = format!("{} gone, by {}", counted(there, "process"), stopped.rung);
    Check::ok(name, text).in_ms(stopped.gone.saturating_sub(stopped.began))
}

fn stopped(seen: &Observed, case: Case) -> Option<&Stopped> {
    seen.receipt.as_ref()?.components.iter().find(|c| c.component == case.as_str())
}

fn down(seen: &Observed) -> Check {
    match (&seen.stopped, &seen.receipt) {
        (Some(Ok(ms)), Some(receipt)) if receipt.removed => Check::ok("stop", "down, with a receipt").in_ms(*ms),
        (Some(Ok(_)), Some(_)) => Check::fail("stop", "the receipt says that something is left", REPORT),
        (Some(Ok(_)), None) => Check::fail("stop", "it is down, and there is no receipt", REPORT),
        (Some(Err(why)), _) => Check::fail("stop", why.clone(), REPORT),
        (None, _) => Check::fail("stop", "it did not get that far", REPORT),
    }
}

/// All others need the witness: it may be touched only when they are proven gone.
fn order(seen: &Observed) -> Check {
    let Some(witness) = stopped(seen, Case::Witness) else {
        return Check::fail("order", "the receipt does not name the witness", REPORT);
    };
    let others = seen.receipt.iter().flat_map(|r| &r.components).filter(|c| c.component != witness.component);
    match others.filter(|c| c.gone > witness.began).map(|c| c.component.as_str()).next() {
        Some(early) => Check::fail("order", format!("the witness was touched before {early} was gone"), REPORT),
        None => Check::ok("order", "the witness went last"),
    }
}

fn nothing_left(seen: &Observed) -> Check {
    const NAME: &str = "nothing left";
    let dead: Vec<SeenProcess> = seen.left.iter().filter(|p| p.case.is_none()).cloned().collect();
    if !seen.left.is_empty() {
        let what =
            if dead.len() == seen.left.len() { "dead children that the daemon does not wait for" } else { "processes" };
        return Check::fail(NAME, format!("{} {what} are left: {}", seen.left.len(), list(&seen.left)), END_IT);
    }
    if let Some(why) = &seen.not_deleted {
        return Check::fail(NAME, format!("the group could not be deleted: {why}"), REPORT);
    }
    if !seen.places_left.is_empty() {
        let places: Vec<String> = seen.places_left.iter().map(|path| path.display().to_string()).collect();
        return Check::fail(NAME, format!("left: {}", places.join(", ")), REPORT);
    }
    Check::ok(NAME, "no process, no cgroup, no folder")
}

fn others(seen: &Observed) -> Check {
    let slow = format!("the daemon answered within {} ms", seen.slowest_answer_ms);
    match seen.disturbed.is_empty() {
        true => Check::ok("other groups", format!("every run is the same as before; {slow}")),
        false => Check::warn(
            "other groups",
            format!("changed meanwhile: {}; {slow}", seen.disturbed.join(", ")),
            "see `ctl events` whether they had a reason of their own",
        ),
    }
}

fn containment(seen: &Observed) -> Check {
    let text = seen.containment.clone();
    match (seen.has_cgroups, seen.has_controllers) {
        (true, true) => Check::ok("containment", text),
        // What was proven holds; no bound of a cluster file does.
        (true, false) => Check::warn(
            "containment",
            format!(
                "{text}; what is gone is proven gone, but no bound on memory or processes is kept: one group can take all of the host's"
            ),
            "`ctl doctor` says what is missing",
        ),
        (false, _) => Check::warn(
            "containment",
            format!("{text}; what drops its marker and leaves its session escapes"),
            "`ctl doctor` says what is missing",
        ),
    }
}

fn list(processes: &[SeenProcess]) -> String {
    let few: Vec<String> = processes.iter().take(8).map(ToString::to_string).collect();
    let more =
        if processes.len() > few.len() { format!(", and {} more", processes.len() - few.len()) } else { String::new() };
    format!("{}{more}", few.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use socialweb_wire::{ExitStatus, Health, Why};

    fn process(pid: u32, case: Case) -> SeenProcess {
        SeenProcess { pid, start_time: 1, state: 'S', case: Some(case), role: "hidden".into() }
    }

    fn gone(case: Case) -> Stopped {
        Stopped {
            component: case.to_string(),
            rank: u16::from(case != Case::Witness),
            birth: Some(1),
            pid: Some(7),
            status: Some(ExitStatus::Signal(9)),
            rung: Rung::Kill,
            began: if case == Case::Witness { 500 } else { 100 },
            gone: if case == Case::Witness { 600 } else { 400 },
            others: vec![],
            end: None,
        }
    }

    fn good() -> Observed {
        let during = Case::ALL.iter().flat_map(|case| (0..case.processes(true)).map(|n| process(n as u32 + 10, *case)));
        Observed {
            has_cgroups: true,
            has_controllers: true,
            containment: "cgroups".into(),
            ready: Some(Ok(900)),
            during: during.collect(),
            restarts: BTreeMap::from([("leader-killed".into(), 1)]),
            stopped: Some(Ok(1_100)),
            receipt: Some(Receipt {
                schema: 1,
                group: super::super::GROUP.into(),
                generation: 1,
                why: Why { why: "operator".into(), detail: None },
                began: 100,
                ended: 600,
                elapsed_ms: 500,
                path_shut: true,
                components: Case::ALL.map(gone).to_vec(),
                strays: vec![],
                removed: true,
                written_at_ms: None,
            }),
            ..Observed::default()
        }
    }

    fn check(words: &str, names: &[&str], change: impl FnOnce(&mut Observed)) {
        let mut seen = good();
        change(&mut seen);
        let bad: Vec<Check> = judge(&seen).into_iter().filter(|c| c.health != Health::Ok).collect();
        assert_eq!(bad.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), names, "{words}: {bad:#?}");
        assert!(bad.iter().any(|c| c.text.contains(words)), "{words}: {bad:#?}");
        assert!(bad.iter().all(|c| !c.fix.is_empty()), "{bad:#?}");
    }

    #[test]
    fn a_drill_in_which_all_went_passes_with_its_times() {
        let checks = judge(&good());
        assert!(checks.iter().all(|c| c.health == Health::Ok), "{checks:#?}");
        assert_eq!(checks.iter().find(|c| c.name == "fork-bomb").and_then(|c| c.took_ms), Some(300));
    }

    #[test]
    fn what_is_left_is_named() {
        check("pid 77 (hidden of double-fork, state S)", &["double-fork", "nothing left"], |seen| {
            seen.left = vec![process(77, Case::DoubleFork)];
        });
        check("does not wait for", &["nothing left"], |seen| {
            seen.left = vec![SeenProcess { case: None, state: 'Z', ..process(78, Case::Witness) }];
        });
        check("/cg/x", &["nothing left"], |seen| seen.places_left = vec!["/cg/x".into()]);
        check("still declared", &["nothing left"], |seen| seen.not_deleted = Some("it is still declared".into()));
    }

    #[test]
    fn a_case_that_was_not_set_up_proves_nothing() {
        check("0 of 2", &["stopped"], |seen| seen.during.retain(|p| p.case != Some(Case::Stopped)));
        check("no restart", &["leader-killed"], |seen| seen.restarts.clear());
        check("killed run left", &["leader-killed"], |seen| seen.during.push(process(99, Case::LeaderKilled)));
        check("readiness", &["start"], |seen| seen.ready = Some(Err("readiness".into())));
    }

    #[test]
    fn the_receipt_is_read_and_not_believed_alone() {
        check("does not name it", &["log-flood"], |seen| {
            seen.receipt.as_mut().unwrap().components.retain(|c| c.component != "log-flood");
        });
        check("wedged", &["stopped"], |seen| {
            let receipt = seen.receipt.as_mut().unwrap();
            receipt.components.iter_mut().filter(|c| c.component == "stopped").for_each(|c| c.rung = Rung::Wedged);
        });
        check("touched before own-session", &["order"], |seen| {
            let receipt = seen.receipt.as_mut().unwrap();
            receipt.components.iter_mut().filter(|c| c.component == "own-session").for_each(|c| c.gone = 550);
        });
        check("something is left", &["stop"], |seen| seen.receipt.as_mut().unwrap().removed = false);
        check("waited 180 s", &["stop"], |seen| seen.stopped = Some(Err("waited 180 s".into())));
    }

    #[test]
    fn without_cgroups_it_is_said_what_is_weak() {
        check("session escapes", &["frozen-cgroup", "containment"], |seen| seen.has_cgroups = false);
        check("no bound on memory", &["containment"], |seen| seen.has_controllers = false);
        check("demo", &["other groups"], |seen| seen.disturbed = vec!["demo".into()]);
    }
}
