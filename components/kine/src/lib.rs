//! The recipe of kine: the datastore of one tenant's API server, on a unix socket that asks for a client certificate.
//!
//! This room starts nothing and reads nothing; it says how kine is to be run. One exception, because a database's address
//! may hold a password and arguments are public: [`exec_with_dsn`], the task `internal kine-exec`, hands it over by kine's
//! own environment variable.
//!
//! kine has no other way in: with `--trusted-ca-file` its gRPC server refuses a client without a certificate of the group's
//! kine CA, on the unix socket too, which matters because a path-named socket can be connected to from inside a sandbox.
#![forbid(unsafe_code)]

mod exec;

pub use exec::{ExecError, exec_with_dsn};

use socialweb_core::Rank;
use socialweb_core::spec::{Backoff, ComponentSpec, Kind, Liveness, Probe, Readiness, Restart, StopPolicy, TlsFiles};
use socialweb_credentials::recipe::{component_name, path_text};
use socialweb_credentials::{Credentials, Layout};
use std::path::PathBuf;
use std::time::Duration;

/// What the recipe needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kine {
    /// Absolute path of kine.
    pub binary: PathBuf,
    /// The group's state folder.
    pub group_dir: PathBuf,
    /// The group's folder for sockets.
    pub runtime_dir: PathBuf,
    /// The database.
    pub endpoint: Endpoint,
}

/// Where kine keeps what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// sqlite in the group's folder.
    Sqlite,
    /// postgres or mysql.
    Dsn {
        /// A file of mode 0600 that holds the DSN and nothing else.
        file: PathBuf,
        /// Absolute path of `socialweb-computer`, which reads the file and becomes kine.
        program: PathBuf,
    },
}

impl Kine {
    /// Its name in `needs`.
    pub const NAME: &'static str = "kine";

    /// The socket. Its file name is in kine's certificate: etcd's client checks a unix socket's server by it.
    pub fn socket(&self) -> PathBuf {
        self.runtime_dir.join("kine.sock")
    }

    /// The component.
    pub fn component(&self) -> ComponentSpec {
        let layout = Layout::new(&self.group_dir);
        let mut launch = layout.go_launch(self.argv(&layout), layout.kine());
        launch.dirs.push(self.runtime_dir.clone());
        launch.stale_sockets = vec![self.socket()];
        ComponentSpec {
            name: component_name(Self::NAME),
            rank: Rank(1),
            needs: vec![component_name(Credentials::NAME)],
            kind: Kind::Service,
            pre: Vec::new(),
            launch,
            post: Vec::new(),
            readiness: Readiness {
                probe: self.probe(&layout),
                interval: Duration::from_millis(100),
                timeout: Duration::from_secs(5),
                deadline: Duration::from_secs(60),
                // A large database is vacuumed at the start.
                cap: Duration::from_secs(20 * 60),
            },
            liveness: Some(Liveness {
                probe: self.probe(&layout),
                interval: Duration::from_secs(10),
                timeout: Duration::from_secs(5),
                failures: 3,
            }),
            restart: Restart::Alone,
            backoff: Backoff::default(),
            stop: StopPolicy::term(Duration::from_secs(5)),
            limits: Default::default(),
        }
    }

    fn argv(&self, layout: &Layout) -> Vec<String> {
        let server = layout.kine_server();
        let mut argv = match &self.endpoint {
            Endpoint::Sqlite => Vec::new(),
            Endpoint::Dsn { file, program } => vec![
                path_text(program),
                "internal".into(),
                "kine-exec".into(),
                "--dsn-file".into(),
                path_text(file),
                "--".into(),
            ],
        };
        argv.extend([
            path_text(&self.binary),
            "--listen-address".into(),
            format!("unix://{}", path_text(&self.socket())),
        ]);
        if self.endpoint == Endpoint::Sqlite {
            argv.extend(["--endpoint".into(), sqlite_dsn(layout)]);
        }
        argv.extend([
            "--server-cert-file".into(),
            path_text(&server.cert),
            "--server-key-file".into(),
            path_text(&server.key),
            "--trusted-ca-file".into(),
            path_text(&layout.kine_ca().cert),
            "--metrics-bind-address".into(),
            "0".into(),
        ]);
        argv
    }

    fn probe(&self, layout: &Layout) -> Probe {
        let client = layout.kine_client();
        Probe::EtcdRange {
            socket: self.socket(),
            tls: TlsFiles { ca: layout.kine_ca().cert, identity: Some((client.cert, client.key)) },
        }
    }
}

/// One writer at a time waits up to 30 s instead of failing with "database is locked" (k3s-io/k3s#755). `_synchronous` stays
/// at sqlite's default, FULL: what the API server was told is stored survives a power loss.
fn sqlite_dsn(layout: &Layout) -> String {
    let file = path_text(&layout.kine_database());
    format!("sqlite://{file}?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kine(endpoint: Endpoint) -> Kine {
        Kine {
            binary: "/opt/kine".into(),
            group_dir: "/s/groups/demo".into(),
            runtime_dir: "/run/sc/demo".into(),
            endpoint,
        }
    }

    const TLS: [&str; 8] = [
        "--server-cert-file",
        "/s/groups/demo/credentials/kine-server/tls.crt",
        "--server-key-file",
        "/s/groups/demo/credentials/kine-server/tls.key",
        "--trusted-ca-file",
        "/s/groups/demo/pki/kine-ca/ca.crt",
        "--metrics-bind-address",
        "0",
    ];

    #[test]
    fn the_whole_argv_with_sqlite() {
        let spec = kine(Endpoint::Sqlite).component();
        let head = [
            "/opt/kine",
            "--listen-address",
            "unix:///run/sc/demo/kine.sock",
            "--endpoint",
            "sqlite:///s/groups/demo/kine/state.db?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate",
        ];
        assert_eq!(spec.launch.argv, [&head[..], &TLS[..]].concat());
        assert_eq!(spec.launch.env["GODEBUG"], "multipathtcp=0");
        assert_eq!(spec.launch.cwd.to_str(), Some("/s/groups/demo/kine"));
    }

    #[test]
    fn a_dsn_is_named_by_its_file_and_never_in_the_argv() {
        let dsn = Endpoint::Dsn { file: "/etc/sc/demo.dsn".into(), program: "/opt/sc".into() };
        let head = ["/opt/sc", "internal", "kine-exec", "--dsn-file", "/etc/sc/demo.dsn", "--"];
        let listen = ["/opt/kine", "--listen-address", "unix:///run/sc/demo/kine.sock"];
        assert_eq!(kine(dsn).component().launch.argv, [&head[..], &listen[..], &TLS[..]].concat());
    }
}
