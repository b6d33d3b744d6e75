//! OpenBao for one tenant: the recipe, its first start, and the minting of the superuser.
//!
//! OpenBao holds the tenant's client CA and one role that can issue one identity: the superuser, for a day at most. Scoped
//! identities are signed from the CA on disk (`socialweb_credentials::sign_client`); asked for one, this room says so.
//!
//! It does not run OpenBao in service: the supervisor does. Only [`first_start()`] runs it as a child of its own, because an
//! OpenBao that was killed inside its initialization can never be used again: the vault is built aside and renamed.
//!
//! Map:
//! - [`OpenBao`] - the recipe.
//! - [`first_start()`] - the task `internal openbao-first-start`.
//! - [`mint_superuser`] - a client of the finished vault.
//! - `config`, `api`, `child`: OpenBao's configuration, its HTTP API, a child that does not outlive us.
#![forbid(unsafe_code)]

mod api;
mod child;
mod config;
pub mod first_start;
pub mod mint;

pub use api::ApiError;
pub use first_start::{FirstStart, FirstStartError, Outcome, first_start};
pub use mint::{Mint, MintError, SUPERUSER, mint_as, mint_superuser};

use socialweb_core::Rank;
use socialweb_core::spec::{
    Backoff, ComponentSpec, FileSpec, Kind, Liveness, Probe, Readiness, Restart, StopPolicy, Task, TlsFiles,
};
use socialweb_credentials::recipe::{component_name, path_text};
use socialweb_credentials::{Credentials, Layout};
use std::path::PathBuf;
use std::time::Duration;

/// The two leased ports: raft storage needs a TCP listener for its cluster port even alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The API's.
    pub api: u16,
    /// Raft's.
    pub cluster: u16,
}

/// What the recipe needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBao {
    /// Absolute path of `bao`.
    pub binary: PathBuf,
    /// Absolute path of `socialweb-computer`.
    pub program: PathBuf,
    /// The group's state folder.
    pub group_dir: PathBuf,
    /// Its leased ports.
    pub ports: Ports,
}

impl OpenBao {
    /// Its name in `needs`.
    pub const NAME: &'static str = "openbao";

    /// The component.
    pub fn component(&self) -> ComponentSpec {
        let layout = Layout::new(&self.group_dir);
        let config = layout.openbao().join("config.json");
        let mut launch = layout.go_launch(config::argv(&self.binary, &config), layout.openbao());
        let content = config::render(&layout, self.ports, &first_start::storage(&layout.openbao_data()));
        launch.files = vec![FileSpec { path: config, mode: 0o600, content }];
        ComponentSpec {
            name: component_name(Self::NAME),
            rank: Rank(1),
            needs: vec![component_name(Credentials::NAME)],
            kind: Kind::Service,
            pre: vec![self.first_start_task(&layout)],
            launch,
            post: Vec::new(),
            readiness: Readiness {
                probe: self.probe(&layout),
                interval: Duration::from_millis(100),
                timeout: Duration::from_secs(5),
                deadline: Duration::from_secs(60),
                cap: Duration::from_secs(60),
            },
            liveness: Some(Liveness {
                probe: self.probe(&layout),
                interval: Duration::from_secs(10),
                timeout: Duration::from_secs(5),
                // Nobody's job waits for OpenBao: a loaded host is no reason to restart it.
                failures: 6,
            }),
            restart: Restart::Alone,
            backoff: Backoff::default(),
            stop: StopPolicy::term(Duration::from_secs(10)),
            limits: Default::default(),
        }
    }

    fn first_start_task(&self, layout: &Layout) -> Task {
        let argv = vec![
            path_text(&self.program),
            "internal".into(),
            "openbao-first-start".into(),
            "--group-dir".into(),
            path_text(&self.group_dir),
            "--binary".into(),
            path_text(&self.binary),
            "--api-port".into(),
            self.ports.api.to_string(),
            "--cluster-port".into(),
            self.ports.cluster.to_string(),
        ];
        Task { launch: layout.launch(argv, layout.openbao()), timeout: Duration::from_secs(60) }
    }

    /// Sealed, standby and uninitialized all answer with another status.
    fn probe(&self, layout: &Layout) -> Probe {
        Probe::Http {
            url: format!("https://127.0.0.1:{}/v1/sys/health", self.ports.api),
            expect: vec![200],
            tls: Some(TlsFiles { ca: layout.openbao_ca().cert, identity: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> ComponentSpec {
        OpenBao {
            binary: "/opt/bao".into(),
            program: "/opt/sc".into(),
            group_dir: "/s/groups/demo".into(),
            ports: Ports { api: 61003, cluster: 61004 },
        }
        .component()
    }

    #[test]
    fn the_whole_argv_of_server_and_first_start() {
        let spec = recipe();
        assert_eq!(spec.launch.argv, ["/opt/bao", "server", "-config", "/s/groups/demo/openbao/config.json"]);
        assert_eq!(
            spec.pre[0].launch.argv,
            [
                "/opt/sc",
                "internal",
                "openbao-first-start",
                "--group-dir",
                "/s/groups/demo",
                "--binary",
                "/opt/bao",
                "--api-port",
                "61003",
                "--cluster-port",
                "61004",
            ]
        );
        assert_eq!(spec.launch.env["GODEBUG"], "multipathtcp=0");
    }

    #[test]
    fn the_whole_configuration() {
        let golden = r#"{
  "api_addr": "https://127.0.0.1:61003",
  "cluster_addr": "https://127.0.0.1:61004",
  "listener": [
    {
      "tcp": {
        "address": "127.0.0.1:61003",
        "cluster_address": "127.0.0.1:61004",
        "tls_cert_file": "/s/groups/demo/credentials/openbao-server/tls.crt",
        "tls_key_file": "/s/groups/demo/credentials/openbao-server/tls.key",
        "tls_min_version": "tls13"
      }
    }
  ],
  "seal": {
    "static": {
      "current_key": "file:///s/groups/demo/openbao/seal.key",
      "current_key_id": "1"
    }
  },
  "storage": {
    "raft": {
      "node_id": "openbao",
      "path": "/s/groups/demo/openbao/data/storage",
      "performance_multiplier": "1"
    }
  },
  "telemetry": {
    "usage_gauge_period": "none"
  },
  "ui": false
}
"#;
        assert_eq!(recipe().launch.files[0].content, golden);
    }
}
