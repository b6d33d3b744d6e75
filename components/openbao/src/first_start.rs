//! `internal openbao-first-start`: builds the tenant's vault aside, proves it, and puts it in place by one rename.
//!
//! ```text
//! data there? -> done
//! remove leftovers -> run bao on a side folder -> init -> client CA in, role, login -> root token away
//!   -> prove (superuser yes, others no, root dead) -> stop bao -> fsync -> rename to data
//! ```
//!
//! Killed anywhere, the next run begins anew; killed after the rename, it is done. What OpenBao is told is decided here:
//!
//! - Its only secret is a copy of the client CA, so a lost vault is rebuilt: move `openbao/data` away and start the group.
//! - The root token is revoked. What stays is an AppRole that may issue the superuser and nothing else, and the recovery key,
//!   with which a later version can make a root token to add a role. Neither opens anything that the seal key and the CA in
//!   the same folder do not open already; both are 0600 and live in `data`, so that they appear with it.

use crate::api::{self, Api, ApiError};
use crate::child::{Bao, LOOK};
use crate::mint::{self, Login, MASTERS, MAX_LIFE, MintError, ROLE, SUPERUSER};
use crate::{Ports, config};
use serde_json::json;
use socialweb_credentials::{Layout, store};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All of it; the task's own limit is 60 s. On two noisy cores it takes 2 s.
const LIMIT: Duration = Duration::from_secs(50);

/// A stop right after the first start takes 0.1 s; OpenBao's own shutdown limit is in the same range as this.
const STOP: Duration = Duration::from_secs(10);

const SIDE: &str = "first-start.";

/// Name of the login and of its policy.
const LOGIN: &str = "superuser-mint";

/// What the task needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstStart {
    /// Absolute path of `bao`.
    pub binary: PathBuf,
    /// The group's state folder, with its credentials.
    pub group_dir: PathBuf,
    /// The leased ports; free, and used for as long as this takes.
    pub ports: Ports,
}

/// What the task found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The vault was there.
    AlreadyDone,
    /// The vault was made.
    Made,
}

/// Why there is no vault. Nothing is left running, and the next run begins anew.
#[derive(Debug, thiserror::Error)]
pub enum FirstStartError {
    /// `data` is there without what belongs in it. Never replaced: somebody may want to repair it.
    #[error(
        "{path} is missing from a finished vault; restore openbao/data from a backup, or move it away and start the group: it is then made anew from the client CA"
    )]
    Incomplete {
        /// The missing file.
        path: PathBuf,
    },
    /// A port is taken.
    #[error("port {port} of 127.0.0.1 is taken; find its holder with `ss -ltnp sport = :{port}` and stop it")]
    PortTaken {
        /// The port.
        port: u16,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file system refused.
    #[error("cannot write {path}; check that the state folder is writable and not full")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `bao` cannot be run.
    #[error("cannot run {binary}; is it OpenBao's `bao` for this machine?")]
    Spawn {
        /// The program.
        binary: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `bao` ended by itself.
    #[error("OpenBao ended ({status}) while it was waited for to {what}; its log above says why")]
    Ended {
        /// What was waited for.
        what: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A step failed.
    #[error("the vault could not be set up")]
    Api(#[from] ApiError),
    /// The proof failed.
    #[error("the new vault did not do what it was made for: {why}; nothing was kept")]
    Proof {
        /// What it did.
        why: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Box<MintError>>,
    },
    /// It did not stop.
    #[error("OpenBao did not end within {STOP:?} of SIGTERM; it was killed and nothing was kept")]
    Stop,
    /// All of it took too long.
    #[error("the first start took more than {LIMIT:?}; is the disk very slow? It begins anew at the next start")]
    Timeout,
}

/// Makes the vault unless it is there. See the module's text.
pub async fn first_start(task: &FirstStart) -> Result<Outcome, FirstStartError> {
    let layout = Layout::new(&task.group_dir);
    let data = layout.openbao_data();
    remove_leftovers(&layout)?;
    if data.exists() {
        return complete(&data).map(|()| Outcome::AlreadyDone);
    }
    for port in [task.ports.api, task.ports.cluster] {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|source| FirstStartError::PortTaken { port, source })?;
    }
    let side = layout.openbao().join(format!("{SIDE}{}", std::process::id()));
    let built = tokio::time::timeout(LIMIT, build(task, &layout, &side)).await.unwrap_or(Err(FirstStartError::Timeout));
    if built.is_err() {
        // The vault is useless; that removing it fails too is the lesser news, and the next run tries again.
        let _ = fs::remove_dir_all(&side);
    }
    built?;
    rename_durably(&side, &data)?;
    Ok(Outcome::Made)
}

/// Where raft keeps its files.
pub(crate) fn storage(data: &Path) -> PathBuf {
    data.join("storage")
}

fn recovery_key(data: &Path) -> PathBuf {
    data.join("recovery-key")
}

fn complete(data: &Path) -> Result<(), FirstStartError> {
    let needed = [storage(data).join("vault.db"), storage(data).join("raft"), Login::path(data)];
    match needed.into_iter().find(|path| !path.exists()) {
        Some(path) => Err(FirstStartError::Incomplete { path }),
        None => Ok(()),
    }
}

fn remove_leftovers(layout: &Layout) -> Result<(), FirstStartError> {
    let dir = layout.openbao();
    for entry in fs::read_dir(&dir).map_err(io_at(&dir))? {
        let path = entry.map_err(io_at(&dir))?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(SIDE)) {
            fs::remove_dir_all(&path).map_err(io_at(&path))?;
        }
    }
    Ok(())
}

async fn build(task: &FirstStart, layout: &Layout, side: &Path) -> Result<(), FirstStartError> {
    let raft = storage(side);
    store::ensure_dir(&raft).map_err(io_at(&raft))?;
    let config = side.join("config.json");
    write_private(&config, config::render(layout, task.ports, &raft).as_bytes())?;
    let argv = config::argv(&task.binary, &config);
    let env = layout.go_launch(Vec::new(), side.into()).env;
    let mut bao = Bao::spawn(&argv, env, side)
        .map_err(|source| FirstStartError::Spawn { binary: task.binary.clone(), source })?;
    let api = Api::new(layout, task.ports.api)?;
    let login = set_up(layout, &api, &mut bao, side).await?;
    if bao.stop(STOP).await.map_err(io_at(side))?.is_none() {
        return Err(FirstStartError::Stop);
    }
    let login_text = serde_json::to_vec(&login).expect("two strings are JSON");
    write_private(&Login::path(side), &login_text)?;
    fs::remove_file(&config).map_err(io_at(&config))?;
    complete(side)
}

async fn set_up(layout: &Layout, api: &Api, bao: &mut Bao, side: &Path) -> Result<Login, FirstStartError> {
    // 501: not initialized, 200: unsealed and active.
    wait_for(api, bao, 501, "answer").await?;
    let root = init(api, side).await?;
    wait_for(api, bao, 200, "unseal itself").await?;
    let root = api.with_token(root);
    import_client_ca(layout, &root).await?;
    let login = make_login(&root).await?;
    root.post("revoke the root token", "auth/token/revoke-self", json!({})).await?;
    prove(layout, api, &root, &login).await?;
    Ok(login)
}

async fn wait_for(api: &Api, bao: &mut Bao, status: u16, what: &'static str) -> Result<(), FirstStartError> {
    loop {
        if api.health().await == Some(status) {
            return Ok(());
        }
        if let Some(status) = bao.ended().map_err(|source| FirstStartError::Io { path: "bao".into(), source })? {
            return Err(FirstStartError::Ended { what, status });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the root token; keeps the recovery key.
async fn init(api: &Api, side: &Path) -> Result<String, FirstStartError> {
    const WHAT: &str = "initialize";
    let answer = api.post(WHAT, "sys/init", json!({ "recovery_shares": 1, "recovery_threshold": 1 })).await?;
    let key = api::text(&answer, WHAT, "recovery_keys_base64.0")?;
    write_private(&recovery_key(side), key.as_bytes())?;
    Ok(api::text(&answer, WHAT, "root_token")?)
}

async fn import_client_ca(layout: &Layout, root: &Api) -> Result<(), FirstStartError> {
    let life = format!("{}s", MAX_LIFE.as_secs());
    let mount = json!({ "type": "pki", "config": { "default_lease_ttl": life, "max_lease_ttl": life } });
    root.post("mount the PKI", "sys/mounts/pki", mount).await?;
    let ca = layout.client_ca();
    let bundle = [read(&ca.cert)?, read(&ca.key)?].join("\n");
    root.post("import the client CA", "pki/config/ca", json!({ "pem_bundle": bundle })).await?;
    let role = json!({
        "allowed_domains": [SUPERUSER],
        "allow_bare_domains": true,
        "allow_subdomains": false,
        "allow_localhost": false,
        "allow_ip_sans": false,
        "organization": [MASTERS],
        "client_flag": true,
        "server_flag": false,
        "key_type": "ec",
        "key_bits": 256,
        "key_usage": ["DigitalSignature"],
        "not_before_duration": "60s",
        "ttl": life,
        "max_ttl": life,
        // Kubernetes asks for no revocation list, so a list of what was issued would only grow.
        "no_store": true,
    });
    root.post("make the superuser's role", &format!("pki/roles/{ROLE}"), role).await?;
    Ok(())
}

async fn make_login(root: &Api) -> Result<Login, FirstStartError> {
    const WHAT: &str = "make the login that may mint";
    let policy = format!("path \"pki/issue/{ROLE}\" {{ capabilities = [\"update\"] }}");
    root.post(WHAT, &format!("sys/policies/acl/{LOGIN}"), json!({ "policy": policy })).await?;
    root.post(WHAT, "sys/auth/approle", json!({ "type": "approle" })).await?;
    let role = format!("auth/approle/role/{LOGIN}");
    let login = json!({
        "token_policies": [LOGIN],
        "token_no_default_policy": true,
        // A batch token is written nowhere, and ends by itself.
        "token_type": "batch",
        "token_ttl": "5m",
        "token_max_ttl": "5m",
        "token_bound_cidrs": ["127.0.0.1/32"],
        "secret_id_ttl": "0",
        "secret_id_num_uses": 0,
    });
    root.post(WHAT, &role, login).await?;
    let id = root.get(WHAT, &format!("{role}/role-id")).await?;
    let secret = root.post(WHAT, &format!("{role}/secret-id"), json!({})).await?;
    Ok(Login { role_id: api::text(&id, WHAT, "data.role_id")?, secret_id: api::text(&secret, WHAT, "data.secret_id")? })
}

/// The kept login mints the superuser of this cluster's CA; it mints nobody else; the root token is dead.
async fn prove(layout: &Layout, api: &Api, root: &Api, login: &Login) -> Result<(), FirstStartError> {
    let proof = |why: &str, source| FirstStartError::Proof { why: why.into(), source };
    let api = mint::log_in(api, login).await?;
    mint::issue(layout, &api, SUPERUSER).await.map_err(|e| proof("it minted no superuser", Some(Box::new(e))))?;
    match mint::issue(layout, &api, "anybody").await {
        Err(MintError::OnlySuperuser { .. }) => {}
        Err(e) => return Err(proof("it failed instead of refusing another name", Some(Box::new(e)))),
        Ok(_) => return Err(proof("it minted another name than the superuser's", None)),
    }
    match root.get("show that the root token is dead", "auth/token/lookup-self").await {
        Err(ApiError::Refused { status, .. }) if status.as_u16() == 403 => Ok(()),
        Err(e) => Err(e.into()),
        Ok(_) => Err(proof("its root token lives", None)),
    }
}

/// OpenBao has synced its own files, and ours were synced when written; the folders' entries must be on the disk before the
/// name is.
fn rename_durably(side: &Path, data: &Path) -> Result<(), FirstStartError> {
    for dir in [&storage(side).join("raft"), &storage(side), side] {
        store::sync_dir(dir).map_err(io_at(dir))?;
    }
    fs::rename(side, data).map_err(io_at(data))?;
    data.parent().map_or(Ok(()), |dir| store::sync_dir(dir).map_err(io_at(dir)))
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), FirstStartError> {
    store::create_private(path, content).map_err(io_at(path))
}

fn read(path: &Path) -> Result<String, ApiError> {
    fs::read_to_string(path).map_err(|source| ApiError::File { path: path.into(), source })
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FirstStartError {
    let path = path.to_owned();
    move |source| FirstStartError::Io { path, source }
}
