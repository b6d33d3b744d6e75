//! `internal bring-up`: makes a running API server a tenant's cluster, and writes the operator's kubeconfig.
//!
//! ```text
//! superuser from OpenBao -> operator's kubeconfig -> namespace `users`, marked ours -> see that all five are there
//! ```
//!
//! Idempotent. What can be a matter of moments (an API server that still loads, a namespace that its controller has not yet
//! made) is tried again until the deadline; the last cause is then reported.

use reqwest::{Certificate, Client, Identity as ClientIdentity, StatusCode};
use serde_json::{Value, json};
use socialweb_core::ComponentSpec;
use socialweb_credentials::recipe::{one_shot, path_text};
use socialweb_credentials::{Identity, Layout, Operator, OperatorError, operator_kubeconfig};
use socialweb_openbao::{Mint, MintError, OpenBao, mint_superuser};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::recipe::Server;

/// What every cluster has after its bring-up. Four are Kubernetes' own; `users` is ours.
pub const NAMESPACES: [&str; 5] = ["default", "kube-node-lease", "kube-public", "kube-system", "users"];

/// The one that is ours.
const OURS: &str = "users";

/// Field manager, and the value of [`MARK`].
const CONTROL_PLANE: &str = "control-plane";

/// Marks what we applied: it never counts as demand for a node.
const MARK: &str = "socialweb.computer/applied-by";

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// The component's limit (tables.md), and the task's own below it, so that the task can still say what it waited for.
const LIMIT: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_secs(55);

/// What the bring-up needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BringUp {
    /// Absolute path of `socialweb-computer`.
    pub program: PathBuf,
    /// The group's state folder.
    pub group_dir: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// Leased port of the API server.
    pub https_port: u16,
    /// OpenBao's API port.
    pub openbao_port: u16,
}

/// What was seen when it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Where the API server answers.
    pub url: String,
    /// The operator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// All namespaces that the server lists, sorted.
    pub namespaces: Vec<String>,
}

/// Why the cluster is not brought up.
#[derive(Debug, thiserror::Error)]
pub enum BringUpError {
    /// No superuser.
    #[error("cluster {cluster} has no superuser for its bring-up")]
    Mint {
        /// The cluster.
        cluster: String,
        /// The cause.
        #[source]
        source: MintError,
    },
    /// The kubeconfig could not be written.
    #[error("the operator's kubeconfig was not written")]
    Operator(#[from] OperatorError),
    /// A file of the group's credentials.
    #[error("cannot read {path}; were the group's credentials made?")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No client could be made of the certificates.
    #[error("cannot set up the TLS client for {url}")]
    Client {
        /// The server.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server did not answer within the deadline.
    #[error("{url} did not answer within {DEADLINE:?} when asked to {what}; see the log of the component k3s")]
    Unanswered {
        /// The server.
        url: String,
        /// What was asked.
        what: &'static str,
        /// The cause of the last try.
        #[source]
        source: reqwest::Error,
    },
    /// The server says no.
    #[error("{url} refused to {what}: {status} {message}")]
    Refused {
        /// The server.
        url: String,
        /// What was asked.
        what: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// What the server says about it.
        message: String,
    },
    /// Namespaces did not appear.
    #[error("cluster {cluster} has no namespace {missing} after {DEADLINE:?}; see the log of the component k3s")]
    Missing {
        /// The cluster.
        cluster: String,
        /// Those that are missing, with commas.
        missing: String,
    },
}

impl BringUp {
    /// Its name in `needs`.
    pub const NAME: &'static str = "bring-up";

    /// The component: once per start of the group.
    pub fn component(&self) -> ComponentSpec {
        let layout = Layout::new(&self.group_dir);
        let argv = vec![
            path_text(&self.program),
            "internal".into(),
            "bring-up".into(),
            "--group-dir".into(),
            path_text(&self.group_dir),
            "--cluster".into(),
            self.cluster.clone(),
            "--https-port".into(),
            self.https_port.to_string(),
            "--openbao-port".into(),
            self.openbao_port.to_string(),
        ];
        let launch = layout.launch(argv, self.group_dir.clone());
        one_shot(Self::NAME, 3, &[Server::NAME, OpenBao::NAME], launch, LIMIT)
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.https_port)
    }
}

/// Brings the cluster up. See the module's text.
pub async fn bring_up(task: &BringUp) -> Result<Done, BringUpError> {
    let (superuser, kubeconfig) = operator_credential(task).await?;
    let cluster = Cluster::new(task, &superuser)?;
    cluster.ensure_ours().await?;
    let namespaces = cluster.await_namespaces(&task.cluster).await?;
    Ok(Done { url: task.url(), kubeconfig, namespaces })
}

/// Mints the superuser and writes the operator's kubeconfig with it. Its certificate lives for a day: run this again for a
/// fresh one.
pub async fn operator_credential(task: &BringUp) -> Result<(Identity, PathBuf), BringUpError> {
    let mint = Mint { group_dir: task.group_dir.clone(), api_port: task.openbao_port };
    let superuser =
        mint_superuser(&mint).await.map_err(|source| BringUpError::Mint { cluster: task.cluster.clone(), source })?;
    let kubeconfig = operator_kubeconfig(&Operator {
        group_dir: &task.group_dir,
        cluster: &task.cluster,
        server: &task.url(),
        cert_pem: &superuser.cert_pem,
        key_pem: &superuser.key_pem,
        ca_pem: &server_ca(task)?,
    })?;
    Ok((superuser, kubeconfig))
}

fn server_ca(task: &BringUp) -> Result<String, BringUpError> {
    let path = Layout::new(&task.group_dir).server_ca().cert;
    std::fs::read_to_string(&path).map_err(|source| BringUpError::File { path, source })
}

/// A client of one cluster.
struct Cluster {
    client: Client,
    url: String,
    until: Instant,
}

impl Cluster {
    /// Trusts this cluster's server CA and nothing else; knows no proxy.
    fn new(task: &BringUp, identity: &Identity) -> Result<Self, BringUpError> {
        let (url, ca) = (task.url(), server_ca(task)?);
        let build = || {
            let pem = format!("{}\n{}", identity.cert_pem, identity.key_pem);
            Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .tls_certs_only([Certificate::from_pem(ca.as_bytes())?])
                .identity(ClientIdentity::from_pem(pem.as_bytes())?)
                .timeout(Duration::from_secs(15))
                .build()
        };
        let client = build().map_err(|source| BringUpError::Client { url: url.clone(), source })?;
        Ok(Cluster { client, url, until: Instant::now() + DEADLINE })
    }

    /// Server-side apply: makes the namespace, or takes over our annotation on one that is there.
    async fn ensure_ours(&self) -> Result<(), BringUpError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": OURS, "annotations": { MARK: CONTROL_PLANE } },
        });
        let path = format!("/api/v1/namespaces/{OURS}?fieldManager=socialweb-{CONTROL_PLANE}&force=true");
        self.ask("apply the namespace users", &path, Some(&object)).await.map(drop)
    }

    async fn await_namespaces(&self, cluster: &str) -> Result<Vec<String>, BringUpError> {
        loop {
            let list = self.ask("list namespaces", "/api/v1/namespaces", None).await?;
            let found = names(&list);
            let missing: Vec<_> = NAMESPACES.iter().filter(|n| !found.contains(**n)).copied().collect();
            if missing.is_empty() {
                return Ok(found.into_iter().collect());
            }
            if Instant::now() > self.until {
                return Err(BringUpError::Missing { cluster: cluster.into(), missing: missing.join(", ") });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// GET, or with an object a server-side apply. Tries again until the deadline while the server does not answer or says
    /// that it is not up to it yet.
    async fn ask(&self, what: &'static str, path: &str, object: Option<&Value>) -> Result<Value, BringUpError> {
        loop {
            let failed = match self.ask_once(what, path, object).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            if !is_passing(&failed) || Instant::now() > self.until {
                return Err(failed);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn ask_once(&self, what: &'static str, path: &str, object: Option<&Value>) -> Result<Value, BringUpError> {
        let url = format!("{}{path}", self.url);
        let request = match object {
            None => self.client.get(url),
            // JSON is YAML, and the API server takes the older of the two media types in every version.
            Some(object) => {
                self.client.patch(url).header("Content-Type", "application/apply-patch+yaml").body(object.to_string())
            }
        };
        let unanswered = |source| BringUpError::Unanswered { url: self.url.clone(), what, source };
        let answer = request.send().await.map_err(unanswered)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unanswered)?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or(&text).to_owned();
        Err(BringUpError::Refused { url: self.url.clone(), what, status, message })
    }
}

/// 403 passes too: the default roles of system:masters need none, but an API server that is just up may still deny.
fn is_passing(error: &BringUpError) -> bool {
    match error {
        BringUpError::Unanswered { .. } => true,
        BringUpError::Refused { status, .. } => status.is_server_error() || [403, 409, 429].contains(&status.as_u16()),
        _ => false,
    }
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_passing(status: u16, passing: bool) {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        let refused = BringUpError::Refused { url: String::new(), what: "", status, message: String::new() };
        assert_eq!(is_passing(&refused), passing, "{status}");
    }

    #[test]
    fn only_what_can_pass_is_asked_again() {
        for status in [500, 503, 429, 409, 403] {
            check_passing(status, true);
        }
        for status in [400, 401, 404, 422] {
            check_passing(status, false);
        }
    }

    #[test]
    fn the_whole_argv() {
        let spec = BringUp {
            program: "/opt/sc".into(),
            group_dir: "/s/groups/demo".into(),
            cluster: "demo".into(),
            https_port: 61000,
            openbao_port: 61003,
        }
        .component();
        assert_eq!(
            spec.launch.argv.join(" "),
            "/opt/sc internal bring-up --group-dir /s/groups/demo --cluster demo --https-port 61000 --openbao-port 61003"
        );
        assert_eq!(spec.needs.iter().map(|n| n.as_str()).collect::<Vec<_>>(), ["k3s", "openbao"]);
    }
}
