//! Which tests share a machine. The name says it: `reboot::first_boot::...` belongs to the scene `reboot`, and everything that
//! belongs to no scene shares one machine and one boot.

use super::machine::End;
use std::time::Duration;

/// Tests that share a machine, over one or more boots.
#[derive(Debug)]
pub struct Scene {
    /// The first part of its tests' names; empty for the tests that share one boot.
    pub name: &'static str,
    /// Its boots, in order.
    pub boots: &'static [Boot],
    /// Memory of the machine, in MiB.
    pub memory: u32,
    /// Only with --full.
    pub long: bool,
    /// For the tests of one boot: minutes, on a machine ten times slower than a quiet one.
    pub minutes: u64,
}

/// One boot of a scene.
#[derive(Debug)]
pub struct Boot {
    /// The second part of its tests' names; empty for all that is left.
    pub name: &'static str,
    /// How it ends.
    pub end: End,
}

const ONE: &[Boot] = &[Boot { name: "", end: End::Off }];
const REBOOTED: &[Boot] = &[Boot { name: "first_boot", end: End::Reboot }, Boot { name: "second_boot", end: End::Off }];
const CUT: &[Boot] = &[Boot { name: "first_boot", end: End::Cut }, Boot { name: "second_boot", end: End::Off }];

/// All scenes, the longest first, so that it does not begin last.
pub const SCENES: &[Scene] = &[
    Scene { name: "", boots: ONE, memory: 768, long: false, minutes: 40 },
    Scene { name: "reboot", boots: REBOOTED, memory: 512, long: false, minutes: 20 },
    Scene { name: "power", boots: CUT, memory: 512, long: true, minutes: 20 },
    // A real control plane takes half a GiB and, emulated, minutes.
    Scene { name: "tenant", boots: REBOOTED, memory: 2048, long: true, minutes: 90 },
];

impl Scene {
    /// What people call it.
    pub fn title(&self) -> &'static str {
        if self.name.is_empty() { "shared" } else { self.name }
    }

    /// For the tests of one boot.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }

    /// Those of `tests` that belong here.
    pub fn tests(&self, tests: &[String]) -> Vec<String> {
        let mine = |test: &&String| scene_of(test) == self.name;
        tests.iter().filter(mine).cloned().collect()
    }
}

impl Boot {
    /// Those of a scene's tests that run in this boot.
    pub fn tests(&self, tests: &[String]) -> Vec<String> {
        let mine = |test: &&String| self.name.is_empty() || test.split("::").nth(1) == Some(self.name);
        tests.iter().filter(mine).cloned().collect()
    }
}

fn scene_of(test: &str) -> &'static str {
    let first = test.split("::").next().unwrap_or_default();
    SCENES.iter().map(|scene| scene.name).find(|name| *name == first).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tests: &[&str]) -> Vec<String> {
        tests.iter().map(|test| test.to_string()).collect()
    }

    #[test]
    fn every_test_belongs_to_one_scene_and_one_boot() {
        let tests = names(&["stop::a", "reboot::first_boot::a", "reboot::second_boot::b", "power::second_boot::c"]);
        let (shared, reboot) = (&SCENES[0], &SCENES[1]);
        assert_eq!(shared.tests(&tests), names(&["stop::a"]));
        assert_eq!(shared.boots[0].tests(&shared.tests(&tests)), names(&["stop::a"]));
        let mine = reboot.tests(&tests);
        assert_eq!(mine.len(), 2);
        assert_eq!(reboot.boots[1].tests(&mine), names(&["reboot::second_boot::b"]));
        let placed: usize = SCENES.iter().map(|scene| scene.tests(&tests).len()).sum();
        assert_eq!(placed, tests.len());
    }
}
