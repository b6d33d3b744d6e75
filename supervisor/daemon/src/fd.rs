//! The one place where a descriptor is registered with the runtime.

use std::io;
use std::os::fd::AsRawFd;
use tokio::io::unix::AsyncFd;

/// Watches `fd` until the value is dropped.
///
/// tokio 1.54 deprecates its safe constructor because a caller's `as_raw_fd` may name a descriptor that it does not own;
/// its replacement is unsafe, and unsafe is kept out of this room. Everything registered here owns its descriptor and
/// keeps it open for as long as the value lives.
pub(crate) fn watch<T: AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    #[expect(deprecated, reason = "its successor is an unsafe fn; see above")]
    AsyncFd::new(fd)
}
