//! Where each file of a group lies, in one place: `<state>/groups/<cluster>/...`.

use std::path::{Path, PathBuf};

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// The private key, mode 0600.
    pub key: PathBuf,
}

/// The paths of one group. Nothing is created or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    group_dir: PathBuf,
}

impl Layout {
    /// The layout of the group whose state folder this is.
    pub fn new(group_dir: impl Into<PathBuf>) -> Self {
        Layout { group_dir: group_dir.into() }
    }

    /// The group's state folder; HOME of its components.
    pub fn group_dir(&self) -> &Path {
        &self.group_dir
    }

    /// TMPDIR of its components: on the state folder's own disk, because /tmp may be memory.
    pub fn tmp(&self) -> PathBuf {
        self.group_dir.join("tmp")
    }

    /// Master copies of the CAs and of the service-account key.
    pub fn pki(&self) -> PathBuf {
        self.group_dir.join("pki")
    }

    /// The hashes of what must never change.
    pub fn record(&self) -> PathBuf {
        self.pki().join("record.json")
    }

    /// Signs every client of the tenant's API server.
    pub fn client_ca(&self) -> Pair {
        self.ca("client-ca")
    }

    /// Signs what the tenant's API server presents.
    pub fn server_ca(&self) -> Pair {
        self.ca("server-ca")
    }

    /// Signs the API server's front proxy.
    pub fn request_header_ca(&self) -> Pair {
        self.ca("request-header-ca")
    }

    /// Signs both ends of kine's socket.
    pub fn kine_ca(&self) -> Pair {
        self.ca("kine-ca")
    }

    /// Signs what OpenBao presents.
    pub fn openbao_ca(&self) -> Pair {
        self.ca("openbao-ca")
    }

    /// Signs service-account tokens.
    pub fn service_key(&self) -> PathBuf {
        self.pki().join("service.key")
    }

    /// Tokens and leaf certificates.
    pub fn credentials(&self) -> PathBuf {
        self.group_dir.join("credentials")
    }

    /// k3s's server token. With it k3s encrypts what it keeps in the datastore: it must never change.
    pub fn server_token(&self) -> PathBuf {
        self.credentials().join("server-token")
    }

    /// k3s's agent token.
    pub fn agent_token(&self) -> PathBuf {
        self.credentials().join("agent-token")
    }

    /// Client certificate of the readiness probe: a user without any group.
    pub fn probe(&self) -> Pair {
        self.leaf("probe")
    }

    /// What kine presents.
    pub fn kine_server(&self) -> Pair {
        self.leaf("kine-server")
    }

    /// Client certificate for kine: the API server's and the probe's.
    pub fn kine_client(&self) -> Pair {
        self.leaf("kine-client")
    }

    /// What OpenBao presents.
    pub fn openbao_server(&self) -> Pair {
        self.leaf("openbao-server")
    }

    /// The operator's certificate files (tls.crt, tls.key, ca.crt).
    pub fn operator(&self) -> PathBuf {
        self.credentials().join("operator")
    }

    /// The operator's kubeconfig.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.credentials().join("operator.kubeconfig")
    }

    /// kine's working folder, with the sqlite database.
    pub fn kine(&self) -> PathBuf {
        self.group_dir.join("kine")
    }

    /// kine's sqlite database.
    pub fn kine_database(&self) -> PathBuf {
        self.kine().join("state.db")
    }

    /// OpenBao's folder.
    pub fn openbao(&self) -> PathBuf {
        self.group_dir.join("openbao")
    }

    /// The 32 bytes with which OpenBao unseals itself.
    pub fn seal_key(&self) -> PathBuf {
        self.openbao().join("seal.key")
    }

    /// The finished vault; it appears by one rename.
    pub fn openbao_data(&self) -> PathBuf {
        self.openbao().join("data")
    }

    /// k3s's --data-dir.
    pub fn k3s(&self) -> PathBuf {
        self.group_dir.join("k3s")
    }

    /// Where k3s looks for CAs that it did not make.
    pub fn k3s_tls(&self) -> PathBuf {
        self.k3s().join("server").join("tls")
    }

    fn ca(&self, name: &str) -> Pair {
        let dir = self.pki().join(name);
        Pair { cert: dir.join("ca.crt"), key: dir.join("ca.key") }
    }

    fn leaf(&self, name: &str) -> Pair {
        let dir = self.credentials().join(name);
        Pair { cert: dir.join("tls.crt"), key: dir.join("tls.key") }
    }
}
