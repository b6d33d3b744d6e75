//! Host-wide allowances, so that many groups neither start nor restart in the same second (law L11). Pure, like a group:
//! time comes in, grants come out. No group waits on another's trouble for long (law L10): a start permit that is not
//! given back within [`Limits::start_hold`] is taken back.

use crate::action::Permit;
use crate::mutant;
use crate::name::{ComponentName, GroupName};
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The allowances; `None` = without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Groups that may be coming up at the same time.
    pub concurrent_starts: Option<u32>,
    /// How long one group may hold a start permit.
    pub start_hold: Duration,
    /// Restarts of components, over all groups.
    pub restarts: Option<Rate>,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bucket size, at least 1.
    pub burst: u32,
    /// Refill, at least 1.
    pub per_minute: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            concurrent_starts: Some(4),
            start_hold: Duration::from_secs(120),
            restarts: Some(Rate { burst: 20, per_minute: 60 }),
        }
    }
}

/// One minute in the bucket's unit: a token is 60,000 of them, a rate of n per minute adds n each millisecond.
const TOKEN: u64 = 60_000;

/// The allowances and who waits for them, first come first served.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    holding: BTreeMap<GroupName, Time>,
    starts: VecDeque<GroupName>,
    restarts: VecDeque<(GroupName, ComponentName)>,
    level: u64,
    filled: Time,
}

impl Budget {
    /// A full budget.
    pub fn new(limits: Limits) -> Self {
        let level = limits.restarts.map_or(0, |r| u64::from(r.burst.max(1)) * TOKEN);
        Budget {
            limits,
            holding: BTreeMap::new(),
            starts: VecDeque::new(),
            restarts: VecDeque::new(),
            level,
            filled: Time::default(),
        }
    }

    /// Changes the limits; who holds a permit keeps it.
    pub fn set_limits(&mut self, limits: Limits) {
        let cap = limits.restarts.map_or(0, |r| u64::from(r.burst.max(1)) * TOKEN);
        if self.limits.restarts.is_none() {
            self.level = cap;
        }
        self.level = self.level.min(cap);
        self.limits = limits;
    }

    /// Queues a request; asking twice is asking once.
    pub fn request(&mut self, group: &GroupName, permit: Permit) {
        match permit {
            Permit::Start => {
                if !self.starts.contains(group) && !self.holding.contains_key(group) {
                    self.starts.push_back(group.clone());
                }
            }
            Permit::Restart(component) => {
                let key = (group.clone(), component);
                if !self.restarts.contains(&key) {
                    self.restarts.push_back(key);
                }
            }
        }
    }

    /// Takes a permit back, or a request out of the queue.
    pub fn give_back(&mut self, group: &GroupName, permit: &Permit) {
        match permit {
            Permit::Start => {
                self.holding.remove(group);
                self.starts.retain(|g| g != group);
            }
            Permit::Restart(component) => self.restarts.retain(|(g, c)| (g, c) != (group, component)),
        }
    }

    /// Number of groups that wait for a start permit.
    pub fn waiting_starts(&self) -> usize {
        self.starts.len()
    }

    /// Hands out what can be handed out now.
    pub fn grants(&mut self, now: Time) -> Vec<(GroupName, Permit)> {
        let hold = if mutant!("l10-a-permit-is-held-for-ever") { Duration::MAX } else { self.limits.start_hold };
        self.holding.retain(|_, since| now.since(*since) < hold);
        self.refill(now);
        let mut out = Vec::new();
        while self.start_is_free() {
            let Some(group) = self.starts.pop_front() else { break };
            self.holding.insert(group.clone(), now);
            out.push((group, Permit::Start));
        }
        while self.restart_is_free() {
            let Some((group, component)) = self.restarts.pop_front() else { break };
            if self.limits.restarts.is_some() {
                self.level = self.level.saturating_sub(TOKEN);
            }
            out.push((group, Permit::Restart(component)));
        }
        out
    }

    /// When [`Budget::grants`] may have more to give, if somebody waits.
    pub fn next_deadline(&self) -> Option<Time> {
        let start = (!self.starts.is_empty())
            .then(|| self.holding.values().min().map(|since| *since + self.limits.start_hold))
            .flatten();
        let restart = match (self.restarts.is_empty(), self.limits.restarts) {
            (false, Some(rate)) => {
                let missing = TOKEN.saturating_sub(self.level).div_ceil(u64::from(rate.per_minute.max(1)));
                Some(self.filled + Duration::from_millis(missing))
            }
            _ => None,
        };
        start.into_iter().chain(restart).min()
    }

    fn start_is_free(&self) -> bool {
        self.limits.concurrent_starts.is_none_or(|n| self.holding.len() < n.max(1) as usize)
    }

    fn restart_is_free(&self) -> bool {
        self.limits.restarts.is_none() || self.level >= TOKEN || mutant!("l11-restarts-without-a-budget")
    }

    fn refill(&mut self, now: Time) {
        if let Some(rate) = self.limits.restarts {
            let ms = u64::try_from(now.since(self.filled).as_millis()).unwrap_or(u64::MAX);
            let added = ms.saturating_mul(u64::from(rate.per_minute.max(1)));
            self.level = self.level.saturating_add(added).min(u64::from(rate.burst.max(1)) * TOKEN);
        }
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn group(n: usize) -> GroupName {
        GroupName::new(format!("g{n}")).unwrap()
    }

    fn restart(n: usize) -> Permit {
        Permit::Restart(ComponentName::new(format!("c{n}")).unwrap())
    }

    #[test]
    fn only_so_many_groups_come_up_at_once_and_in_the_order_of_asking() {
        let mut budget = Budget::new(Limits { concurrent_starts: Some(2), ..Limits::default() });
        for n in 0..4 {
            budget.request(&group(n), Permit::Start);
        }
        let names: Vec<_> = budget.grants(Time(0)).into_iter().map(|(g, _)| g).collect();
        assert_eq!(names, [group(0), group(1)]);
        assert!(budget.grants(Time(1)).is_empty());
        budget.give_back(&group(0), &Permit::Start);
        assert_eq!(budget.grants(Time(2)), [(group(2), Permit::Start)]);
    }

    #[test]
    fn a_group_that_never_gives_its_permit_back_does_not_block_the_others() {
        let mut budget = Budget::new(Limits { concurrent_starts: Some(1), ..Limits::default() });
        budget.request(&group(0), Permit::Start);
        budget.request(&group(1), Permit::Start);
        assert_eq!(budget.grants(Time(0)).len(), 1);
        let due = budget.next_deadline().unwrap();
        assert_eq!(budget.grants(due), [(group(1), Permit::Start)]);
    }

    #[test]
    fn restarts_are_bounded_over_all_groups_and_refilled_with_time() {
        let rate = Rate { burst: 3, per_minute: 60 };
        let mut budget = Budget::new(Limits { restarts: Some(rate), ..Limits::default() });
        for n in 0..5 {
            budget.request(&group(n), restart(n));
        }
        assert_eq!(budget.grants(Time(0)).len(), 3);
        let due = budget.next_deadline().unwrap();
        assert_eq!(due, Time(1000));
        assert!(budget.grants(Time(999)).is_empty());
        assert_eq!(budget.grants(due), [(group(3), restart(3))]);
    }

    #[test]
    fn without_limits_everything_is_granted() {
        let limits = Limits { concurrent_starts: None, restarts: None, ..Limits::default() };
        let mut budget = Budget::new(limits);
        for n in 0..500 {
            budget.request(&group(n), Permit::Start);
            budget.request(&group(n), restart(n));
        }
        assert_eq!(budget.grants(Time(0)).len(), 1000);
        assert_eq!(budget.next_deadline(), None);
    }
}
