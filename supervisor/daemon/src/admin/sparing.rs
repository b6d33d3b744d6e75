//! Says the same at most once in a while: whoever knocks without end must not fill the daemon's own log.

use std::time::Duration;
use tokio::time::Instant;

/// Seldom enough for a disk, often enough for a person who looks.
const EVERY: Duration = Duration::from_secs(10);

/// When it was said last.
#[derive(Debug, Default)]
pub(super) struct Sparing {
    said: Option<Instant>,
    unsaid: u64,
}

impl Sparing {
    /// To be asked each time. Some: it is time to say it, and so often it was not said since.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.said.is_some_and(|said| now < said + EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_seldom_with_the_number_of_what_was_not_said() {
        let (mut sparing, began) = (Sparing::default(), Instant::now());
        assert_eq!(sparing.due(began), Some(0));
        assert_eq!([1, 2, 9].map(|s| sparing.due(began + Duration::from_secs(s))), [None; 3]);
        assert_eq!(sparing.due(began + EVERY), Some(3));
        assert_eq!(sparing.due(began + EVERY * 2), Some(0));
    }
}
