//! Properties: what must hold for any input, tried on generated ones.
//!
//! One runner for all of them. By default it tries the same [`CASES`] cases in every run, so that CI is as sure of its
//! result as of any other test's; `cargo x fuzz` runs the same properties with fresh seeds and growing counts, through two
//! variables: SOCIALWEB_SEED (a number) and SOCIALWEB_CASES. Nothing is written to disk: a failure prints the smallest
//! input that it found and the line that repeats it. A bug found so becomes a plain test of its own.
//!
//! Property tests live in modules named `properties`; that is how `cargo x fuzz` finds them.
#![forbid(unsafe_code)]

pub use proptest;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// What a property says of one input: `prop_assert!` makes the failures.
pub type Verdict = Result<(), TestCaseError>;

/// Cases of one property unless SOCIALWEB_CASES says otherwise.
pub const CASES: u32 = 256;

/// The seed unless SOCIALWEB_SEED says otherwise.
pub const SEED: u64 = 20_220;

/// Tries `property` on inputs of `strategy`.
///
/// # Panics
/// When the property does not hold, with the smallest input found and how to repeat the run; when one of the two variables
/// is no number.
pub fn holds<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Verdict) {
    holds_in(1, strategy, property);
}

/// The same with an `n`th of the cases, for a property whose single case is dear.
///
/// # Panics
/// As [`holds`].
pub fn holds_in<S: Strategy>(n: u32, strategy: S, property: impl Fn(S::Value) -> Verdict) {
    let (seed, cases) = (number("SOCIALWEB_SEED", SEED), number("SOCIALWEB_CASES", CASES));
    let mut runner = runner(seed, (cases / n.max(1)).max(1));
    let Err(error) = runner.run(&strategy, property) else { return };
    match error {
        TestError::Fail(why, input) => panic!(
            "the property does not hold: {why}\nsmallest input: {input:#?}\nagain: SOCIALWEB_SEED={seed} SOCIALWEB_CASES={cases} cargo test"
        ),
        TestError::Abort(why) => panic!("the property could not be tried: {why}"),
    }
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // Shrinking is bounded by steps and not by time, so that a slow machine reports the same input.
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn number<T: std::str::FromStr>(variable: &str, default: T) -> T {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is no number; unset it or write one")),
        Err(_) => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    fn inputs(seed: u64) -> Vec<u32> {
        let seen = RefCell::new(Vec::new());
        let noted = |n: u32| {
            seen.borrow_mut().push(n);
            Ok(())
        };
        runner(seed, 20).run(&any::<u32>(), noted).expect("nothing is asserted");
        seen.into_inner()
    }

    #[test]
    fn a_seed_gives_the_same_inputs_in_every_run_and_another_seed_others() {
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    #[should_panic(expected = "smallest input: 100")]
    fn what_does_not_hold_is_told_by_its_smallest_input() {
        holds(0u32..100_000, |n| {
            prop_assert!(n < 100, "too large");
            Ok(())
        });
    }
}
