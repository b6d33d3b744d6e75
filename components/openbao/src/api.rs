//! OpenBao's HTTP API, as much of it as is used here.

use reqwest::{Certificate, Client, Method, StatusCode};
use serde_json::Value;
use socialweb_credentials::Layout;
use std::path::PathBuf;
use std::time::Duration;

/// Why a request to OpenBao failed. No message holds a token or a key.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A file that the client needs.
    #[error("cannot read {path}; were the group's credentials made?")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No client could be made.
    #[error("cannot set up the TLS client for OpenBao")]
    Client {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// No answer.
    #[error("OpenBao did not answer when asked to {what}; is the group's openbao component ready?")]
    Unanswered {
        /// What was asked.
        what: &'static str,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// An answer that says no.
    #[error("OpenBao refused to {what}: {status} {errors}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// What OpenBao says about it.
        errors: String,
    },
    /// An answer without what was asked for.
    #[error("OpenBao was asked to {what} and its answer holds no {field}; is it the pinned version?")]
    Unexpected {
        /// What was asked.
        what: &'static str,
        /// The missing field.
        field: &'static str,
    },
}

/// A client of one OpenBao, with or without a token.
pub(crate) struct Api {
    client: Client,
    base: String,
    token: Option<String>,
}

impl Api {
    /// Trusts the group's OpenBao CA and nothing else; knows no proxy.
    pub(crate) fn new(layout: &Layout, port: u16) -> Result<Self, ApiError> {
        let path = layout.openbao_ca().cert;
        let pem = std::fs::read(&path).map_err(|source| ApiError::File { path, source })?;
        let build = || {
            Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .tls_certs_only([Certificate::from_pem(&pem)?])
                .timeout(Duration::from_secs(15))
                .build()
        };
        let client = build().map_err(|source| ApiError::Client { source })?;
        Ok(Api { client, base: format!("https://127.0.0.1:{port}/v1"), token: None })
    }

    /// The same client with a token.
    pub(crate) fn with_token(&self, token: String) -> Api {
        Api { client: self.client.clone(), base: self.base.clone(), token: Some(token) }
    }

    /// Status of /sys/health; None while nothing answers.
    pub(crate) async fn health(&self) -> Option<u16> {
        let sent = self.client.get(format!("{}/sys/health", self.base)).send().await;
        sent.ok().map(|answer| answer.status().as_u16())
    }

    pub(crate) async fn get(&self, what: &'static str, path: &str) -> Result<Value, ApiError> {
        self.call(Method::GET, what, path, None).await
    }

    pub(crate) async fn post(&self, what: &'static str, path: &str, body: Value) -> Result<Value, ApiError> {
        self.call(Method::POST, what, path, Some(body)).await
    }

    async fn call(
        &self,
        method: Method,
        what: &'static str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, ApiError> {
        let mut request = self.client.request(method, format!("{}/{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("X-Vault-Token", token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let unanswered = |source| ApiError::Unanswered { what, source };
        let answer = request.send().await.map_err(unanswered)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unanswered)?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(value);
        }
        Err(ApiError::Refused { what, status, errors: errors(&value) })
    }
}

/// A text field of an answer.
pub(crate) fn text(value: &Value, what: &'static str, field: &'static str) -> Result<String, ApiError> {
    let found = field.split('.').try_fold(value, |v, key| match key.parse::<usize>() {
        Ok(index) => v.get(index),
        Err(_) => v.get(key),
    });
    found.and_then(Value::as_str).map(str::to_owned).ok_or(ApiError::Unexpected { what, field })
}

fn errors(value: &Value) -> String {
    let list = value["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::trim).collect::<Vec<_>>().join("; ")
}
