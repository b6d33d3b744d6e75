//! What a run says by itself, raised from outside the room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A handle that one side raises and a [`super::Prober`] waits for. Cheap to clone; raising never waits and may come before
/// anybody waits.
#[derive(Debug, Clone, Default)]
pub struct Signalled {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ever: AtomicBool,
    wake: Notify,
}

impl Signalled {
    /// A handle that was never raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// The run said it: READY=1, a newline, a line, or for a watchdog WATCHDOG=1.
    pub fn raise(&self) {
        self.shared.ever.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }

    /// Whether it was ever raised.
    pub fn is_raised(&self) -> bool {
        self.shared.ever.load(Ordering::Acquire)
    }

    /// Waits until it was raised once, in the past or the future.
    pub async fn raised(&self) {
        while !self.is_raised() {
            self.shared.wake.notified().await;
        }
    }

    /// Waits for a raise since the last call of this; several in between count once. One waiter at a time.
    pub async fn next(&self) {
        self.shared.wake.notified().await;
    }
}
