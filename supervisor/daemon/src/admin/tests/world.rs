//! A fake loop that answers commands from a small world, and a server on a real socket before it.

use crate::admin::{AdminHandle, AdminServer, Change, Command, Feed, Limits, PeerCheck, bind, channel};
use socialweb_core::GroupName;
use socialweb_wire as wire;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Notify, broadcast};

/// What the fake loop knows, and what it was asked for.
pub struct World {
    pub groups: BTreeMap<String, wire::GroupStatus>,
    pub changes: Vec<Change>,
    pub commands: usize,
    pub past: Vec<Arc<wire::LogLine>>,
    pub log: broadcast::Sender<Arc<wire::LogLine>>,
    pub events: broadcast::Sender<Arc<wire::EventLine>>,
    /// Drops replies, as a loop that ends would.
    pub mute: bool,
}

/// A server with its world. Dropping it ends both.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub world: Arc<Mutex<World>>,
    pub changed: Arc<Notify>,
    pub handle: AdminHandle,
    pub client: reqwest::Client,
}

pub fn group(name: &str, phase: wire::Phase) -> wire::GroupStatus {
    wire::GroupStatus {
        name: name.into(),
        phase,
        since_s: 3,
        reason: String::new(),
        retry_in_s: None,
        generation: 1,
        declared: true,
        url: Some("https://127.0.0.1:61000".into()),
        kubeconfig: None,
        ports: BTreeMap::from([("https".into(), 61000)]),
        last_start_ms: Some(4_200),
        datastore_bytes: Some(2 << 20),
        stop_deadline_s: 60,
        survivors: vec![],
        usage: Default::default(),
        bounds: BTreeMap::new(),
        bounds_missing: Vec::new(),
        components: vec![wire::ComponentStatus {
            name: "kine".into(),
            rank: 1,
            state: "Ready".into(),
            detail: String::new(),
            pid: Some(42),
            birth: Some(5),
            since_s: 2,
            restarts: 1,
            last_exit: None,
            last_end: None,
            last_end_s: None,
            rss_bytes: Some(46 << 20),
            cpu_usec: Some(1_500_000),
            usage: Default::default(),
            log: None,
        }],
    }
}

pub fn log_line(group: &str, component: &str, text: impl Into<String>) -> Arc<wire::LogLine> {
    Arc::new(wire::LogLine {
        time_ms: 1,
        group: group.into(),
        component: component.into(),
        birth: Some(5),
        level: wire::Level::Info,
        text: text.into(),
    })
}

pub fn event_line(seq: u64, group: Option<&str>) -> Arc<wire::EventLine> {
    Arc::new(wire::EventLine {
        seq,
        time_ms: 1,
        group: group.map(str::to_string),
        component: None,
        birth: None,
        level: wire::Level::Info,
        text: "something".into(),
    })
}

pub fn anyone() -> PeerCheck {
    Arc::new(|_| Ok(()))
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(Limits::default(), anyone())
    }

    pub fn with(limits: Limits, check: PeerCheck) -> Rig {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let world = Arc::new(Mutex::new(World {
            groups: BTreeMap::from([("demo".into(), group("demo", wire::Phase::Ready))]),
            changes: vec![],
            commands: 0,
            past: vec![],
            log: broadcast::channel(64).0,
            events: broadcast::channel(64).0,
            mute: false,
        }));
        let (handle, mut port) = channel();
        let changed = Arc::new(Notify::new());
        let (asked, bump) = (world.clone(), changed.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = bump.notified() => port.changed(),
                    command = port.commands.recv() => match command {
                        Some(command) => asked.lock().unwrap().answer(command),
                        None => return,
                    }
                }
            }
        });
        let path = dir.path().join("admin.sock");
        let server = AdminServer::new(bind(&path).unwrap(), check, limits, handle.clone());
        tokio::spawn(server.run(std::future::pending()));
        let client = reqwest::Client::builder().unix_socket(path).no_proxy().build().unwrap();
        Rig { dir, world, changed, handle, client }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("admin.sock")
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub async fn get(&self, path: &str) -> reqwest::Response {
        self.client.get(format!("http://admin{path}")).send().await.unwrap()
    }

    pub async fn post(&self, path: &str) -> reqwest::Response {
        self.client.post(format!("http://admin{path}")).send().await.unwrap()
    }

    /// Waits until GET /healthz is answered: the server lives and has a free place.
    pub async fn is_well(&self) {
        for _ in 0..6_000 {
            if let Ok(answer) = self.client.get("http://admin/healthz").send().await
                && answer.status() == 200
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the server does not answer any more");
    }

    pub async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.unwrap()
    }

    /// Sends raw bytes, ends the sending side, and returns all that comes back.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        read_all(&mut stream).await
    }
}

pub async fn read_all(stream: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(120), read).await.expect("the server hung up in time");
    String::from_utf8_lossy(&answer).into_owned()
}

impl World {
    fn answer(&mut self, command: Command) {
        self.commands += 1;
        if self.mute {
            return;
        }
        match command {
            Command::Status { group, reply } => drop(reply.send(self.status(group))),
            Command::Change { change, reply } => {
                let accepted = self.accept(&change);
                self.changes.push(change);
                let _ = reply.send(accepted);
            }
            Command::Reload { dry_run, allow_empty: _, reply } => {
                let _ = reply.send(Ok(wire::ReloadPlan { applied: !dry_run, groups: vec![], problems: vec![] }));
            }
            Command::Tree { group, reply } => {
                let tree = wire::GroupTree { group: group.to_string(), components: vec![], strays: vec![] };
                let _ = reply.send(self.known(&group).map(|_| tree));
            }
            Command::Receipts { group, reply } => drop(reply.send(self.known(&group).map(|_| vec![]))),
            Command::Logs { group, tail, follow, reply, .. } => {
                let past = self.past.iter().rev().take(tail).rev().cloned().collect();
                let live = follow.then(|| self.log.subscribe());
                let _ = reply.send(self.known(&group).map(|_| Feed { past, live }));
            }
            Command::Events { follow, reply, .. } => {
                let live = follow.then(|| self.events.subscribe());
                let _ = reply.send(Ok(Feed { past: vec![event_line(1, None), event_line(2, Some("demo"))], live }));
            }
        }
    }

    fn known(&self, group: &GroupName) -> Result<&wire::GroupStatus, wire::ApiError> {
        self.groups.get(group.as_str()).ok_or_else(|| wire::ApiError::no_group(group.as_str()))
    }

    fn accept(&self, change: &Change) -> Result<wire::Accepted, wire::ApiError> {
        let (operation, group, component) = match change {
            Change::Start(g) => (wire::Operation::Start, Some(g), None),
            Change::Stop(g) => (wire::Operation::Stop, Some(g), None),
            Change::Restart(g, None) => (wire::Operation::Restart, Some(g), None),
            Change::Restart(g, Some(c)) => (wire::Operation::RestartComponent, Some(g), Some(c)),
            Change::Delete(g) => (wire::Operation::Delete, Some(g), None),
            Change::Drill(_) => (wire::Operation::Start, None, None),
            Change::Shutdown => (wire::Operation::Shutdown, None, None),
        };
        let status = group.map(|g| self.known(g)).transpose()?;
        Ok(wire::Accepted {
            operation,
            group: group.map(ToString::to_string),
            component: component.map(ToString::to_string),
            generation: status.map_or(0, |s| s.generation),
            birth: None,
            restarts: 0,
            phase: status.map(|s| s.phase),
            note: String::new(),
        })
    }

    fn status(&self, group: Option<GroupName>) -> Result<wire::HostStatus, wire::ApiError> {
        let groups = match group {
            Some(group) => vec![self.known(&group)?.clone()],
            None => self.groups.values().cloned().collect(),
        };
        Ok(wire::HostStatus {
            schema: wire::SCHEMA,
            version: "0.0.0".into(),
            pid: 1,
            started_at_ms: 0,
            uptime_s: 9,
            cgroups: "cgroup2".into(),
            state_dir: "/state".into(),
            config: "/config".into(),
            server: "kube-server".into(),
            max_tenants: 10,
            rss_bytes: 4096,
            dropped_log_lines: 2,
            dropped_events: 0,
            warnings: vec![],
            groups,
        })
    }
}
