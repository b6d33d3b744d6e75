//! Daemon time.

use socialweb_core::Time;
use std::time::{Duration, Instant};

/// Milliseconds since the daemon's start, from CLOCK_MONOTONIC (law L12).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    pub fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The moment as tokio wants it. Rounded up by a millisecond: a timer that fires a fraction early would find its
    /// deadline not yet due and spin.
    pub fn instant(self, at: Time) -> tokio::time::Instant {
        (self.0 + Duration::from_millis(at.0.saturating_add(1))).into()
    }
}
