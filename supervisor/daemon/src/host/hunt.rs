//! Who left its cgroup and forks faster than a look takes. It ends under one number and lives on under the next, so a look
//! at the living finds nobody and would call the run gone. Its dead give it away: they come to us, the subreaper, and died
//! where their run is not.
//!
//! The decision is [`Passing::doubt`]: who died where, lately, says whether a run may be called gone. The effect is
//! [`Hunt::run`], on a thread that may block: a cgroup of our tree is held still and looked through, which nobody escapes;
//! elsewhere the newest processes are chased. One hunt at a time, for all runs that are in doubt. What it cannot catch keeps
//! its run from being called gone, so that core ends up with a Wedged component and no false receipt (law L14).

use super::live::Key;
use super::spawn::MARKER;
use super::{Host, Msg};
use socialweb_core::event::ReapedBy;
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::process::{self, ChaseLimits, Proc, Stat};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How far back deaths count.
const WINDOW: Duration = Duration::from_millis(250);
/// So many of them in the window are a suspicion. A process that forks more slowly lives long enough to be seen.
const MANY: usize = 5;
/// With fewer than that, and after a hunt, a run is called gone this long after it seemed so: one that began to hop a moment
/// ago has left its dead by then.
const SETTLE: Duration = Duration::from_millis(60);
/// Deaths that are remembered.
const KEEP: usize = 256;
/// A cgroup is held still for at most this long before it is looked through.
const STILL: Duration = Duration::from_millis(100);
/// One chase. On two busy processors the slowest that was measured took 65 ms to its catch.
const CHASE: ChaseLimits = ChaseLimits { longest: Duration::from_millis(400), quiet: Duration::from_millis(30) };
/// So many processes of somebody else that hop explain the deaths as theirs.
const OTHERS: usize = 3;

/// Where a child that is no leader and no probe died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this run's cgroup, or without cgroups in its session.
    Run(Key),
    /// In our tree, but in no run's cgroup.
    Inside(Cgroup),
    /// Outside of our tree, or nobody knows where.
    Outside,
}

/// The latest deaths.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    recent: VecDeque<(Instant, Place)>,
}

/// Whether a run in which nobody lives may be called gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing speaks against it.
    None,
    /// Too early to say.
    Wait,
    /// Something may have left it and be hopping there.
    Hunt(Vec<Place>),
}

/// What is known of a run in which nobody seems to live.
#[derive(Debug, Clone)]
pub(crate) struct Vacancy {
    /// Since when.
    pub since: Instant,
    /// When the latest hunt for it ended.
    pub hunted: Option<Instant>,
    /// Places that a hunt looked through without finding it.
    pub cleared: Vec<Place>,
    /// Looks in a row that found processes of it elsewhere.
    pub struck: u32,
}

impl Vacancy {
    pub fn new(now: Instant) -> Self {
        Vacancy { since: now, hunted: None, cleared: Vec::new(), struck: 0 }
    }

    /// A hunt for it is over. Where it was seen it is to be sought again, so only a hunt that saw nothing clears a place.
    fn end_hunt(&mut self, now: Instant, seen: bool, cleared: &[Place]) {
        self.hunted = Some(now);
        if !seen {
            self.cleared.extend_from_slice(cleared);
        }
    }
}

impl Passing {
    pub fn note(&mut self, now: Instant, place: Place) {
        self.recent.push_back((now, place));
        let old = |(at, _): &(Instant, Place)| now.duration_since(*at) > WINDOW;
        while self.recent.len() > KEEP || self.recent.front().is_some_and(old) {
            self.recent.pop_front();
        }
    }

    /// Pure: somebody died at such a place after the moment. A look that began then and found nobody proves nothing: who hops
    /// from one number to the next during the look leaves a dead one.
    pub fn since(&self, then: Instant, suspect: impl Fn(&Place) -> bool) -> bool {
        self.recent.iter().any(|(at, place)| *at > then && suspect(place))
    }

    /// That place is proven empty: what died there hides nobody.
    pub fn forget(&mut self, place: &Place) {
        self.recent.retain(|(_, p)| p != place);
    }

    /// Pure: by the deaths at places for which `suspect` holds.
    pub fn doubt(&self, now: Instant, run: &Vacancy, suspect: impl Fn(&Place) -> bool) -> Doubt {
        let counts = |at: Instant| now.duration_since(at) <= WINDOW && run.hunted.is_none_or(|hunted| at > hunted);
        let here = |place: &Place| suspect(place) && !run.cleared.contains(place);
        let recent: Vec<&Place> =
            self.recent.iter().filter(|(at, place)| counts(*at) && here(place)).map(|(_, place)| place).collect();
        if recent.len() >= MANY {
            let mut places = Vec::new();
            for place in recent {
                if !places.contains(place) {
                    places.push(place.clone());
                }
            }
            return Doubt::Hunt(places);
        }
        let since = run.hunted.map_or(run.since, |hunted| hunted.max(run.since));
        let unsure = !recent.is_empty() || run.hunted.is_some();
        if unsure && now.duration_since(since) < SETTLE { Doubt::Wait } else { Doubt::None }
    }
}

/// What one hunt is after.
#[derive(Debug, Default)]
pub(crate) struct Hunt {
    /// What all our markers begin with.
    prefix: String,
    /// By marker: the run, and whether it is to be killed or only looked for (its grace runs).
    wanted: HashMap<String, (Key, bool)>,
    /// To be held still and looked through.
    cgroups: Vec<(Place, Cgroup)>,
    chase: bool,
}

/// What a hunt found.
#[derive(Debug, Default)]
pub(crate) struct Bag {
    keys: Vec<Key>,
    caught: Vec<(Key, Proc)>,
    /// Runs of which something was seen.
    seen: BTreeSet<Key>,
    /// Places that hide nothing else.
    cleared: Vec<Place>,
}

impl Hunt {
    /// Blocks for at most [`STILL`] per cgroup and one chase.
    fn run(self) -> Bag {
        let mut bag = Bag { keys: self.wanted.values().map(|(key, _)| key.clone()).collect(), ..Bag::default() };
        for (place, cgroup) in &self.cgroups {
            // What cannot be looked into is not cleared.
            if self.look_through(cgroup, &mut bag).is_ok() {
                bag.cleared.push(place.clone());
            }
        }
        if self.chase {
            self.run_after(&mut bag);
        }
        bag
    }

    /// While it stands still nobody is born there, so the list is whole.
    fn look_through(&self, cgroup: &Cgroup, bag: &mut Bag) -> Result<(), String> {
        if !cgroup.populated().map_err(|e| crate::chain::chain(&e))? {
            return Ok(());
        }
        let _still = cgroup.hold_still(STILL).map_err(|e| crate::chain::chain(&e))?;
        for pid in cgroup.pids().map_err(|e| crate::chain::chain(&e))? {
            let marker = |_: &Stat| process::environ_value(pid, MARKER);
            let Some(proc) = Proc::pinned(pid, marker).map_err(|e| e.to_string())? else { continue };
            let Some((key, kill)) = self.wanted.get(&proc.marker) else { continue };
            bag.seen.insert(key.clone());
            if *kill && proc.pidfd.send(nix::libc::SIGKILL).is_ok() {
                bag.caught.push((key.clone(), proc));
            }
        }
        Ok(())
    }

    fn run_after(&self, bag: &mut Bag) {
        let (own, mut others) = (std::process::id(), BTreeSet::new());
        let belongs = |pid| {
            let marker = process::environ_value(pid, MARKER).filter(|m| m.starts_with(&self.prefix));
            match marker.as_ref().and_then(|m| self.wanted.get(m)) {
                Some((key, kill)) => {
                    bag.seen.insert(key.clone());
                    return marker.filter(|_| *kill);
                }
                // Another run's, or one that dropped its marker and came to us as an orphan.
                None if marker.is_some() => drop(others.insert(pid)),
                // A dying one has no memory and so no marker any more, and says nothing.
                None if Stat::of(pid).is_ok_and(|s| s.ppid == own && s.rss_bytes > 0) => drop(others.insert(pid)),
                None => {}
            }
            None
        };
        for proc in process::chase(CHASE, belongs).unwrap_or_default() {
            if let Some((key, _)) = self.wanted.get(&proc.marker) {
                bag.caught.push((key.clone(), proc));
            }
        }
        if others.len() >= OTHERS {
            bag.cleared.push(Place::Outside);
        }
    }
}

impl Host {
    /// Begins a hunt for these runs, unless one is under way: then they are still in doubt at the next look.
    pub(super) fn hunt(&mut self, doubtful: Vec<(Key, Vec<Place>)>) {
        if doubtful.is_empty() || !self.hunting.is_empty() {
            return;
        }
        let mut hunt = Hunt { prefix: format!("{}/", self.paths.id), ..Hunt::default() };
        for (key, places) in doubtful {
            let kill = self.births.get(&key).and_then(|l| l.emptying.as_ref()).is_some_and(|e| e.kill);
            hunt.wanted.insert(format!("{}/{key}", self.paths.id), (key.clone(), kill));
            self.hunting.insert(key);
            for place in places {
                match self.cgroup_of(&place) {
                    Some(cgroup) if hunt.cgroups.iter().any(|(_, c)| *c == cgroup) => {}
                    Some(cgroup) => hunt.cgroups.push((place, cgroup)),
                    None => hunt.chase = true,
                }
            }
        }
        self.look_aside(Msg::Hunted(Bag::default()), move || Msg::Hunted(hunt.run()));
    }

    fn cgroup_of(&self, place: &Place) -> Option<Cgroup> {
        match place {
            Place::Run(key) => self.run_cgroup(key),
            Place::Inside(cgroup) => Some(cgroup.clone()),
            Place::Outside => None,
        }
    }

    /// A hunt is over: what it caught is noted with its run, and the runs are looked at again.
    pub(super) fn hunted(&mut self, bag: Bag) {
        self.hunting.clear();
        let now = Instant::now();
        for key in &bag.keys {
            let vacancy = self.births.get_mut(key).and_then(|l| l.emptying.as_mut()).and_then(|e| e.vacancy.as_mut());
            let Some(vacancy) = vacancy else { continue };
            vacancy.end_hunt(now, bag.seen.contains(key), &bag.cleared);
        }
        for (key, proc) in bag.caught {
            self.note_other(&key, &proc, ReapedBy::MarkerKill);
        }
        self.check_emptying();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socialweb_core::{Birth, ComponentName, GroupName};
    use std::path::Path;

    fn run(component: &str) -> Place {
        let component = ComponentName::new(component).unwrap();
        Place::Run(Key { group: GroupName::new("g").unwrap(), component, birth: Birth(1) })
    }

    /// Deaths (milliseconds ago, place) against a run `own` that is vacant for so long.
    fn check(deaths: &[(u64, Place)], vacant_ms: u64, change: impl Fn(&mut Vacancy, Instant), want: Doubt) {
        let now = Instant::now() + Duration::from_secs(10);
        let ago = |ms| now - Duration::from_millis(ms);
        let mut passing = Passing::default();
        deaths.iter().for_each(|(ms, place)| passing.recent.push_back((ago(*ms), place.clone())));
        let mut vacancy = Vacancy::new(ago(vacant_ms));
        change(&mut vacancy, now);
        assert_eq!(passing.doubt(now, &vacancy, |place| *place != run("own")), want, "{deaths:?}");
    }

    fn times(n: usize, ms: u64, place: Place) -> Vec<(u64, Place)> {
        vec![(ms, place); n]
    }

    #[test]
    fn a_run_is_gone_at_once_when_nobody_died_elsewhere() {
        check(&[], 0, |_, _| {}, Doubt::None);
        check(&times(50, 1, run("own")), 0, |_, _| {}, Doubt::None);
        check(&times(50, 300, Place::Outside), 0, |_, _| {}, Doubt::None);
    }

    #[test]
    fn a_few_deaths_elsewhere_cost_a_moment_and_many_a_hunt_of_each_place_once() {
        check(&times(2, 10, Place::Outside), 10, |_, _| {}, Doubt::Wait);
        check(&times(2, 10, Place::Outside), 61, |_, _| {}, Doubt::None);
        let mut deaths = times(4, 10, Place::Outside);
        deaths.push((3, run("sister")));
        check(&deaths, 500, |_, _| {}, Doubt::Hunt(vec![Place::Outside, run("sister")]));
    }

    #[test]
    fn after_a_hunt_only_later_deaths_count_and_their_absence_is_waited_for() {
        let hunted = |ms| move |v: &mut Vacancy, now: Instant| v.hunted = Some(now - Duration::from_millis(ms));
        check(&times(50, 20, Place::Outside), 500, hunted(10), Doubt::Wait);
        check(&times(50, 80, Place::Outside), 500, hunted(70), Doubt::None);
        check(&times(50, 20, Place::Outside), 500, hunted(30), Doubt::Hunt(vec![Place::Outside]));
    }

    #[test]
    fn a_place_that_was_looked_through_is_not_suspected_again() {
        let cleared = |v: &mut Vacancy, _: Instant| v.cleared.push(run("sister"));
        check(&times(50, 20, run("sister")), 0, cleared, Doubt::None);
    }

    #[test]
    fn a_hunt_that_saw_something_clears_no_place_and_its_end_counts_either_way() {
        let ended = |seen| {
            move |v: &mut Vacancy, now: Instant| v.end_hunt(now - Duration::from_millis(30), seen, &[run("sister")])
        };
        check(&times(50, 20, run("sister")), 500, ended(false), Doubt::Wait);
        check(&times(50, 20, run("sister")), 500, ended(true), Doubt::Hunt(vec![run("sister")]));
        check(&times(50, 80, run("sister")), 500, ended(true), Doubt::Wait);
    }

    #[test]
    fn what_cannot_be_looked_through_is_not_cleared() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let places = [("sister", folder.path()), ("gone", Path::new("/no/such/cgroup"))];
        let cgroups = places.map(|(name, path)| (run(name), Cgroup::at(path))).into();
        assert_eq!(Hunt { cgroups, ..Hunt::default() }.run().cleared, [run("gone")]);
    }

    #[test]
    fn deaths_are_forgotten_with_their_place_and_with_time() {
        let (mut passing, now) = (Passing::default(), Instant::now());
        (0..1000).for_each(|_| passing.note(now, run("sister")));
        assert_eq!(passing.recent.len(), KEEP);
        passing.note(now + WINDOW * 2, Place::Outside);
        assert_eq!(passing.recent.len(), 1);
        assert!(passing.since(now, |_| true) && !passing.since(now + WINDOW * 2, |_| true));
        passing.forget(&Place::Outside);
        assert!(passing.recent.is_empty());
    }
}
