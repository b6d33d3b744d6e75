//! The recipe of the server. Both flavours take the same argv: kube-server understands the k3s flags that are used here.

use socialweb_core::Rank;
use socialweb_core::spec::{Backoff, ComponentSpec, Kind, Liveness, Probe, Readiness, Restart, StopPolicy, TlsFiles};
use socialweb_credentials::recipe::{component_name, path_text};
use socialweb_credentials::{Credentials, Layout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which program serves. Shown to people; the argv is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// k3s.
    K3s,
    /// Our build of the three Kubernetes programs in one process.
    KubeServer,
}

impl Flavour {
    /// By the program's file name: what is called kube-server is one, anything else is taken for a k3s.
    pub fn of(binary: &Path) -> Self {
        match binary.file_name() {
            Some(name) if name == "kube-server" => Flavour::KubeServer,
            _ => Flavour::K3s,
        }
    }

    /// As shown in `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Flavour::K3s => "k3s",
            Flavour::KubeServer => "kube-server",
        }
    }
}

/// What the recipe needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Absolute path of k3s or kube-server.
    pub binary: PathBuf,
    /// The group's state folder.
    pub group_dir: PathBuf,
    /// kine's socket.
    pub datastore_socket: PathBuf,
    /// Leased port of the API; k3s takes the next one too, for its inner API server.
    pub https_port: u16,
    /// Leased port of k3s's cloud controller manager.
    pub ccm_port: u16,
    /// `socialweb_credentials::issuer(cluster, account)`: issuer of service-account tokens and per-tenant audience.
    pub issuer: String,
    /// More names or addresses for the server's certificate.
    pub extra_sans: Vec<String>,
}

/// Address of the API server inside every tenant's network.
const ADVERTISED: &str = "10.41.0.2";

impl Server {
    /// Its name in `needs`.
    pub const NAME: &'static str = "k3s";

    /// Where the server answers; the cluster's status.url.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.https_port)
    }

    /// Which program it is.
    pub fn flavour(&self) -> Flavour {
        Flavour::of(&self.binary)
    }

    /// The component.
    pub fn component(&self) -> ComponentSpec {
        let layout = Layout::new(&self.group_dir);
        ComponentSpec {
            name: component_name(Self::NAME),
            rank: Rank(2),
            needs: vec![component_name("kine"), component_name(Credentials::NAME)],
            kind: Kind::Service,
            pre: Vec::new(),
            launch: layout.go_launch(self.argv(&layout), layout.k3s()),
            post: Vec::new(),
            readiness: Readiness {
                probe: self.probe(&layout),
                interval: Duration::from_millis(250),
                timeout: Duration::from_secs(5),
                deadline: Duration::from_secs(120),
                cap: Duration::from_secs(20 * 60),
            },
            liveness: Some(Liveness {
                probe: self.probe(&layout),
                interval: Duration::from_secs(10),
                timeout: Duration::from_secs(10),
                failures: 6,
            }),
            restart: Restart::Alone,
            backoff: Backoff::default(),
            // At a restart guests are up, and a stopping API server carries open exec streams for 60 s: cutting them can make
            // a runner report a cut job as passed. At a group's stop the guests are gone by then.
            stop: StopPolicy { grace_restart: Duration::from_secs(75), ..StopPolicy::term(Duration::from_secs(30)) },
            limits: Default::default(),
        }
    }

    fn probe(&self, layout: &Layout) -> Probe {
        let client = layout.probe();
        Probe::Http {
            url: format!("{}/readyz", self.url()),
            expect: vec![200],
            tls: Some(TlsFiles { ca: layout.server_ca().cert, identity: Some((client.cert, client.key)) }),
        }
    }

    fn argv(&self, layout: &Layout) -> Vec<String> {
        let kine = layout.kine_client();
        let mut argv: Vec<String> = vec![path_text(&self.binary), "server".into()];
        // The embedded cloud controller manager would stamp its own providerID on nodes, which can never be changed; it
        // also runs for servicelb's sake alone, so both are off (k3s-io/k3s#1049).
        for flag in ["--disable-agent", "--disable=traefik", "--disable=servicelb", "--disable-cloud-controller"] {
            argv.push(flag.into());
        }
        let pairs = [
            ("--data-dir", path_text(&layout.k3s())),
            ("--datastore-endpoint", format!("unixs://{}", path_text(&self.datastore_socket))),
            ("--datastore-cafile", path_text(&layout.kine_ca().cert)),
            ("--datastore-certfile", path_text(&kine.cert)),
            ("--datastore-keyfile", path_text(&kine.key)),
            ("--egress-selector-mode", "cluster".into()),
            ("--bind-address", "127.0.0.1".into()),
            ("--https-listen-port", self.https_port.to_string()),
            ("--advertise-address", ADVERTISED.into()),
            ("--token-file", path_text(&layout.server_token())),
            ("--agent-token-file", path_text(&layout.agent_token())),
            // k3s writes one in any case; the name says what this project does with it (law L13).
            ("--write-kubeconfig", path_text(&layout.k3s().join("admin-do-not-read"))),
        ];
        argv.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        let sans = ["127.0.0.1", "localhost", ADVERTISED].into_iter().map(str::to_owned);
        argv.extend(sans.chain(self.extra_sans.iter().cloned()).flat_map(|san| ["--tls-san".to_owned(), san]));
        argv.push(format!("--kube-cloud-controller-manager-arg=secure-port={}", self.ccm_port));
        // Their default ports are fixed, so a second tenant's server could not start (k3s-io/cluster-api-k3s#20).
        argv.push("--kube-controller-manager-arg=secure-port=0".into());
        argv.push("--kube-scheduler-arg=secure-port=0".into());
        argv.push(format!("--kube-apiserver-arg=api-audiences={}", self.audiences()));
        argv.push(format!("--kube-apiserver-arg=service-account-issuer={}", self.issuer));
        argv
    }

    /// The tenant's own first; then those that programs inside a cluster, and k3s itself, ask for. All from the first start:
    /// a token's audience cannot be added later.
    fn audiences(&self) -> String {
        format!("{},https://kubernetes.default.svc.cluster.local,k3s", self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            binary: "/opt/kube-server".into(),
            group_dir: "/s/groups/demo".into(),
            datastore_socket: "/run/sc/demo/kine.sock".into(),
            https_port: 61000,
            ccm_port: 61002,
            issuer: "https://demo.afklvc3bvjnuijdg33d2u.socialweb.computer".into(),
            extra_sans: vec!["ci.example".into()],
        }
    }

    #[test]
    fn the_whole_argv() {
        let golden = "/opt/kube-server server --disable-agent --disable=traefik --disable=servicelb --disable-cloud-controller \
            --data-dir /s/groups/demo/k3s --datastore-endpoint unixs:///run/sc/demo/kine.sock \
            --datastore-cafile /s/groups/demo/pki/kine-ca/ca.crt \
            --datastore-certfile /s/groups/demo/credentials/kine-client/tls.crt \
            --datastore-keyfile /s/groups/demo/credentials/kine-client/tls.key --egress-selector-mode cluster \
            --bind-address 127.0.0.1 --https-listen-port 61000 --advertise-address 10.41.0.2 \
            --token-file /s/groups/demo/credentials/server-token \
            --agent-token-file /s/groups/demo/credentials/agent-token \
            --write-kubeconfig /s/groups/demo/k3s/admin-do-not-read --tls-san 127.0.0.1 --tls-san localhost \
            --tls-san 10.41.0.2 --tls-san ci.example --kube-cloud-controller-manager-arg=secure-port=61002 \
            --kube-controller-manager-arg=secure-port=0 --kube-scheduler-arg=secure-port=0 \
            --kube-apiserver-arg=api-audiences=https://demo.afklvc3bvjnuijdg33d2u.socialweb.computer,\
            https://kubernetes.default.svc.cluster.local,k3s \
            --kube-apiserver-arg=service-account-issuer=https://demo.afklvc3bvjnuijdg33d2u.socialweb.computer";
        assert_eq!(server().component().launch.argv.join(" "), golden);
    }

    #[test]
    fn both_flavours_take_the_same_arguments() {
        let k3s = Server { binary: "/usr/local/bin/k3s".into(), ..server() };
        assert_eq!((k3s.flavour(), server().flavour()), (Flavour::K3s, Flavour::KubeServer));
        assert_eq!(k3s.component().launch.argv[1..], server().component().launch.argv[1..]);
    }

    #[test]
    fn the_probe_is_ours_and_never_the_kubeconfig_that_k3s_writes() {
        let spec = server().component();
        let Probe::Http { url, tls: Some(tls), .. } = spec.readiness.probe else { panic!("not https") };
        assert_eq!(url, "https://127.0.0.1:61000/readyz");
        assert_eq!(tls.ca, Path::new("/s/groups/demo/pki/server-ca/ca.crt"));
        let (cert, key) = tls.identity.expect("a client certificate");
        assert_eq!(cert, Path::new("/s/groups/demo/credentials/probe/tls.crt"));
        assert_eq!(key, Path::new("/s/groups/demo/credentials/probe/tls.key"));
        assert_eq!(spec.stop.grace_restart, Duration::from_secs(75));
    }
}
