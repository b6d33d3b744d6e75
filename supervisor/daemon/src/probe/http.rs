//! GET by http or https.

use super::tls::{self, Stamp};
use crate::chain::chain;
use socialweb_core::spec::TlsFiles;

/// A client that is built at its first use and again when the certificate files change.
#[derive(Debug, Default)]
pub(super) struct Client {
    built: Option<(Stamp, reqwest::Client)>,
}

/// How much of a refusing answer's body is shown, in bytes.
const SHOWN: usize = 160;

impl Client {
    pub(super) async fn check(&mut self, url: &str, expect: &[u16], files: Option<&TlsFiles>) -> Result<(), String> {
        let client = self.client(files).map_err(|why| format!("GET {url}: {why}"))?;
        let answer = client.get(url).send().await.map_err(|e| format!("GET {url}: {}", chain(&e.without_url())))?;
        let status = answer.status().as_u16();
        if expect.contains(&status) {
            return Ok(());
        }
        let wanted: Vec<String> = expect.iter().map(u16::to_string).collect();
        let detail = complaint(answer).await;
        Err(format!("GET {url} answered {status} instead of {}{detail}", wanted.join(" or ")))
    }

    fn client(&mut self, files: Option<&TlsFiles>) -> Result<reqwest::Client, String> {
        let stamp = Stamp::of(files);
        if let Some((built, client)) = &self.built
            && *built == stamp
        {
            return Ok(client.clone());
        }
        let config = tls::client(files).map_err(|e| chain(&e))?;
        let client = build(config).map_err(|e| chain(&e))?;
        self.built = Some((stamp, client.clone()));
        Ok(client)
    }
}

fn build(config: rustls::ClientConfig) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .dns_resolver(std::sync::Arc::new(super::names::Names))
        .redirect(reqwest::redirect::Policy::none())
        // Each attempt dials anew: a kept connection would go on answering when the listener is dead.
        .pool_max_idle_per_host(0)
        .build()
}

/// What the body says, shortened; of Kubernetes' check lists only what fails.
async fn complaint(mut answer: reqwest::Response) -> String {
    let first = answer.chunk().await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&first[..first.len().min(4096)]).into_owned();
    let failing: Vec<&str> = text.lines().filter(|l| l.starts_with("[-]")).collect();
    let said = if failing.is_empty() { text.lines().next().unwrap_or("").to_owned() } else { failing.join(" ") };
    let said: String = said.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if said.is_empty() { said } else { format!(": {said}") }
}
