//! Typed names. Parsed once at the edge; inside, a wrong name cannot be built.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Longest group or component name, in bytes. A group's name becomes a directory of a unix socket path (limit 107) and
/// a prefix of node names (limit 63), so it is well below both.
pub const MAX_NAME: usize = 40;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no character.
    #[error("the name is empty; give it 1 to {MAX_NAME} characters, such as \"demo\"")]
    Empty,
    /// The name is longer than [`MAX_NAME`].
    #[error("the name {name:?} has {len} characters; at most {MAX_NAME} fit into socket paths and node names")]
    TooLong {
        /// What was given.
        name: String,
        /// Its length in bytes.
        len: usize,
    },
    /// The name is no DNS label.
    #[error(
        "the name {name:?} is not a DNS label: use lower-case letters, digits and '-', begin with a letter and do not end with '-'"
    )]
    NotALabel {
        /// What was given.
        name: String,
    },
}

fn check_label(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(NameError::TooLong { name: name.into(), len: name.len() });
    }
    let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !letters || !name.as_bytes()[0].is_ascii_lowercase() || name.ends_with('-') {
        return Err(NameError::NotALabel { name: name.into() });
    }
    Ok(())
}

// Shared text: a name is copied into every key, view and event, and a host has thousands of them.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a DNS label of at most [`MAX_NAME`] bytes.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                check_label(&name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label!(
    /// A group: the ranked components of one tenant cluster.
    GroupName
);
label!(
    /// A component: one supervised program of a group.
    ComponentName
);

/// One run of one process of a component. Counts up inside a group and is never used twice while a daemon lives; it is
/// the last part of the run's cgroup path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Birth(pub u64);

impl fmt::Display for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A component's place in the order of its group; a lower rank starts earlier and stops later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u16);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, good: bool) {
        assert_eq!(GroupName::new(name).is_ok(), good, "{name:?}");
    }

    #[test]
    fn names_are_dns_labels_short_enough_for_socket_paths() {
        check("demo", true);
        check("a-1", true);
        check(&"a".repeat(MAX_NAME), true);
        check(&"a".repeat(MAX_NAME + 1), false);
        check("", false);
        check("1a", false);
        check("a-", false);
        check("-a", false);
        check("A", false);
        check("a.b", false);
        check("a/b", false);
        check("..", false);
    }

    #[test]
    fn a_bad_name_in_a_record_is_refused_when_it_is_read() {
        let read: Result<GroupName, _> = serde_json::from_str("\"../x\"");
        assert!(read.is_err());
    }
}
