//! The operator's kubeconfig: marked as such, and without a secret inside: it names certificate files.

use crate::layout::Layout;
use crate::store;
use std::fmt;
use std::path::{Path, PathBuf};

/// What the kubeconfig is made of.
#[derive(Clone, Copy)]
pub struct Operator<'a> {
    /// The group's state folder.
    pub group_dir: &'a Path,
    /// The cluster's name.
    pub cluster: &'a str,
    /// The API server's URL.
    pub server: &'a str,
    /// The superuser's certificate, PEM.
    pub cert_pem: &'a str,
    /// The superuser's key, PEM.
    pub key_pem: &'a str,
    /// What signs the API server's certificate, PEM.
    pub ca_pem: &'a str,
}

impl fmt::Debug for Operator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("cluster", &self.cluster).field("server", &self.server).finish_non_exhaustive()
    }
}

/// Why the kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the operator's credential {path}; check that the state folder is writable and not full")]
pub struct OperatorError {
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: std::io::Error,
}

/// Writes `credentials/operator/{tls.crt,tls.key,ca.crt}` (all three at once) and `credentials/operator.kubeconfig`, mode
/// 0600, replacing older ones. Returns the kubeconfig's path.
pub fn operator_kubeconfig(operator: &Operator<'_>) -> Result<PathBuf, OperatorError> {
    let layout = Layout::new(operator.group_dir);
    let dir = layout.operator();
    let files = [
        ("tls.crt", operator.cert_pem.as_bytes()),
        ("tls.key", operator.key_pem.as_bytes()),
        ("ca.crt", operator.ca_pem.as_bytes()),
    ];
    let failed = |path: &Path, source| OperatorError { path: path.into(), source };
    store::ensure_dir(&layout.credentials()).map_err(|e| failed(&layout.credentials(), e))?;
    store::install_dir(&dir, &files).map_err(|e| failed(&dir, e))?;
    let path = layout.operator_kubeconfig();
    store::write_private(&path, render(operator, &dir).as_bytes()).map_err(|e| failed(&path, e))?;
    Ok(path)
}

/// JSON strings are YAML strings: a path with a space or a quote stays one.
fn render(operator: &Operator<'_>, dir: &Path) -> String {
    let text = |s: &str| serde_json::Value::from(s).to_string();
    let file = |name: &str| text(&dir.join(name).to_string_lossy());
    let (cluster, server) = (text(operator.cluster), text(operator.server));
    let (ca, cert, key) = (file("ca.crt"), file("tls.crt"), file("tls.key"));
    format!(
        "# OPERATOR ONLY. Superuser of this cluster (system:masters); it passes every RBAC rule. Never give it to a tenant or a
# runner. Rewritten at each start of the cluster; its certificate ends within a day of that.
apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority: {ca}
users:
- name: operator
  user:
    client-certificate: {cert}
    client-key: {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: operator
current-context: {cluster}
"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn the_kubeconfig_names_files_and_holds_no_secret() {
        let tmp = tempfile::tempdir().unwrap();
        let operator = Operator {
            group_dir: tmp.path(),
            cluster: "demo",
            server: "https://127.0.0.1:61000",
            cert_pem: "CERT",
            key_pem: "KEYMATERIAL",
            ca_pem: "CA",
        };
        let path = operator_kubeconfig(&operator).unwrap();
        let again = operator_kubeconfig(&Operator { cert_pem: "CERT2", ..operator }).unwrap();
        assert_eq!(path, again);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# OPERATOR ONLY."));
        assert!(text.contains("server: \"https://127.0.0.1:61000\""));
        for (key, name) in
            [("client-key", "tls.key"), ("client-certificate", "tls.crt"), ("certificate-authority", "ca.crt")]
        {
            assert!(
                text.contains(&format!("{key}: \"{}\"", tmp.path().join("credentials/operator").join(name).display()))
            );
        }
        for secret in ["KEYMATERIAL", "client-key-data", "client-certificate-data", "token"] {
            assert!(!text.contains(secret), "{secret}");
        }
        assert_eq!(fs::read_to_string(tmp.path().join("credentials/operator/tls.crt")).unwrap(), "CERT2");
        assert!(!format!("{operator:?}").contains("KEYMATERIAL"));
    }
}
