//! One line per thing that was looked at: what `ctl doctor` and `ctl drill` say.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// As it should be.
    Ok,
    /// It does not work, or something will be lost.
    Fail,
    /// Somebody should look; what runs is not in danger now. Also what a reader makes of a word that it does not know.
    #[serde(other)]
    Warn,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: String,
    /// How it was found.
    pub health: Health,
    /// What was seen, in one sentence.
    pub text: String,
    /// What to do about it; empty where nothing is to be done.
    #[serde(default)]
    pub fix: String,
    /// How long it took, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &str, text: impl Into<String>) -> Check {
        Check { name: name.into(), health: Health::Ok, text: text.into(), fix: String::new(), took_ms: None }
    }

    /// Somebody should look.
    pub fn warn(name: &str, text: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { health: Health::Warn, fix: fix.into(), ..Check::ok(name, text) }
    }

    /// It does not work.
    pub fn fail(name: &str, text: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { health: Health::Fail, ..Check::warn(name, text, fix) }
    }

    /// The same with the time that it took.
    pub fn in_ms(mut self, took_ms: u64) -> Check {
        self.took_ms = Some(took_ms);
        self
    }
}

/// What was looked at, and how it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`crate::SCHEMA`].
    pub schema: u32,
    /// Whose: the daemon with its process id, or that there is none.
    pub subject: String,
    /// The worst of the checks.
    pub health: Health,
    /// In the order in which they matter.
    pub checks: Vec<Check>,
}

impl Report {
    /// A report on `subject`.
    pub fn new(subject: impl Into<String>, checks: Vec<Check>) -> Report {
        let any = |health| checks.iter().any(|c| c.health == health);
        let worst = [Health::Fail, Health::Warn].into_iter().find(|health| any(*health));
        let health = worst.unwrap_or(Health::Ok);
        Report { schema: crate::SCHEMA, subject: subject.into(), health, checks }
    }

    /// How many were found like that.
    pub fn count(&self, health: Health) -> usize {
        self.checks.iter().filter(|c| c.health == health).count()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Fail => "FAIL",
        })
    }
}
