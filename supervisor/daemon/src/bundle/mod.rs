//! What a bug report needs, in one tar file, without secrets: `ctl bundle`.
//!
//! Nothing is left to the reader's goodwill: only files of known kinds are taken (records, leases, receipts, events, logs,
//! configuration), documents are scrubbed by their structure, and every line once more by what secrets look like and by the
//! secrets that lie on this host. Keys, tokens, kubeconfigs, databases and values of environments are never taken at all.
//!
//! It works without a daemon, from the state folder. What the daemon itself said is handed in ([`Told`]).
//!
//! Map:
//! - [`collect`](mod@collect) - which files. - [`known`]: the secrets of this host, to blot them out wherever they turn up.
//! - [`scrub`](mod@scrub) - lines of text. - [`document`]: JSON and TOML by structure. - [`archive`]: the file.

pub mod archive;
pub mod collect;
pub mod document;
pub mod known;
pub mod scrub;

#[cfg(test)]
mod tests;

pub use archive::{BundleError, Written, write};
pub use collect::{Told, collect};

/// One file of the bundle: its path inside, and its scrubbed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative, with slashes.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What stands in the place of a secret.
pub const LEFT_OUT: &str = "[left out]";
