//! Waits for states, and tests that say that they did not run.

use std::fs;
use std::time::{Duration, Instant};

/// Generous, because machines are slow and shared: a test ends when its state is there, not when this passes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a state, however long a slow machine takes.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    try_wait_for(look).unwrap_or_else(|| panic!("waited {} s for: {what}", PATIENCE.as_secs()))
}

pub fn try_wait_for<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    try_wait_within(PATIENCE, Duration::from_millis(20), look)
}

/// The same with another patience, looking no more often than `between`.
pub fn try_wait_within<T>(patience: Duration, between: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(between);
    }
}

/// Says that a test could not run, and counts it.
pub fn skip(test: &str, reason: &str) {
    use std::io::Write;
    eprintln!("SKIP: {test}: {reason}");
    if let Some(file) = std::env::var_os("SOCIALWEB_SKIP_FILE") {
        let mut file = fs::File::options().create(true).append(true).open(file).unwrap();
        writeln!(file, "SKIP: {test}: {reason}").unwrap();
    }
}

/// True where the long tests were asked for (`cargo x test --full`); elsewhere counts the skip.
pub fn long(test: &str) -> bool {
    let asked = std::env::var_os("SOCIALWEB_FULL").is_some();
    if !asked {
        skip(test, "long: only with --full");
    }
    asked
}
