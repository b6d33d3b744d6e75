//! What a refused request says.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// What kind of refusal it is; decides the HTTP status.
    pub code: ErrorCode,
    /// What happened, naming the thing.
    pub error: String,
    /// What to do next; empty when there is nothing to do.
    #[serde(default)]
    pub hint: String,
}

/// Kinds of refusals, by their HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// 400: the request is not understood.
    BadRequest,
    /// 403: this peer may not ask.
    Refused,
    /// 404: no such group, component or route.
    NotFound,
    /// 405: the route exists with another method.
    WrongMethod,
    /// 408: the request did not arrive in time.
    TooSlow,
    /// 409: the request contradicts the present state, such as deleting a declared group.
    Conflict,
    /// 413: the request is larger than allowed.
    TooLarge,
    /// 503: the daemon cannot answer now.
    Busy,
    /// 500: the daemon failed to do it. Also what a reader makes of a kind that it does not know.
    #[serde(other)]
    Failed,
}

impl ErrorCode {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            ErrorCode::BadRequest => 400,
            ErrorCode::Refused => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::WrongMethod => 405,
            ErrorCode::TooSlow => 408,
            ErrorCode::Conflict => 409,
            ErrorCode::TooLarge => 413,
            ErrorCode::Failed => 500,
            ErrorCode::Busy => 503,
        }
    }
}

impl ApiError {
    /// An error of this kind, without a hint.
    pub fn new(code: ErrorCode, error: impl Into<String>) -> Self {
        ApiError { code, error: error.into(), hint: String::new() }
    }

    /// The same with what to do next.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// No group of this name is declared or running.
    pub fn no_group(name: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("there is no group {name:?}"))
            .with_hint("`ctl status` lists the groups; a new cluster file needs `ctl reload`")
    }

    /// The group has no component of this name.
    pub fn no_component(group: &str, component: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("group {group} has no component {component:?}"))
            .with_hint(format!("`ctl status {group}` lists its components"))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}
