//! How much memory the allocator keeps for itself.

#![allow(unsafe_code)]

use libc::c_int;

/// Allocations of this size, in bytes, and larger ones get pages of their own, which go back to the kernel when they are
/// freed. glibc begins with it.
pub const OWN_PAGES: c_int = 128 * 1024;

/// Lets memory that a burst took go back to the kernel. glibc raises its threshold for large allocations, up to 32 MiB, with
/// the first of them that is freed, and twice as much may then lie unused at the end of the heap: in a process that is small
/// for weeks and large for a moment (the status of all groups, a flood of lines) that is more than it lives on.
///
/// To be called before there is a second thread. Does nothing with another C library.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and no memory of ours. It is not to be called while another thread allocates for the
    // first time: the caller has no second thread. That it may refuse (0) costs memory, nothing else.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES) };
}
