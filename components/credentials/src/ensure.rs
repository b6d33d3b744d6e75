//! `internal tenant-credentials`: everything a group's components need to trust each other, before the first of them starts.
//!
//! ```text
//! record? -> CAs -> service key, tokens, seal key -> record -> copies for k3s -> leaves
//! ```
//!
//! Each step makes what is missing and checks what is there. Killed at any point, the next run completes it: a CA appears
//! with its key by one rename, and until the record is written nothing of the group has started. Once the record stands,
//! what it names must be there with the same hash. A server that meets another CA or token than the one its datastore was
//! made with hangs or invents a new identity (k3s-io/k3s#12388, rancher/k3k#278): better to stop here and say so.

use crate::ca::{self, Ca, CaError};
use crate::der;
use crate::layout::{Layout, Pair};
use crate::leaf::{self, Leaf, Signer};
use crate::store;
use data_encoding::HEXLOWER;
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// Version of the record's shape.
const SCHEMA: u32 = 1;

/// What [`ensure`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What was made for the first time.
    pub created: Vec<String>,
    /// Leaves that were made anew, and why.
    pub renewed: Vec<(String, String)>,
    /// SHA-256 of each CA certificate (DER, hex) by its name.
    pub ca_hashes: BTreeMap<String, String>,
}

/// Why the credentials of a group are not in order.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// A CA cannot be used.
    #[error("the certificate authorities are not in order")]
    Ca(#[from] CaError),
    /// The file system refused.
    #[error("cannot read or write {path}; check that the state folder is writable and not full")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A leaf or key could not be made.
    #[error("cannot make {what}")]
    Make {
        /// Its name.
        what: String,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// The record cannot be read. It is left as it is.
    #[error(
        "the record {path} cannot be understood: {why}; restore it from a backup of this cluster's folder (it is kept as it is)"
    )]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is a database or vault, but nothing that says which CAs and tokens it was made with.
    #[error(
        "{data} exists but {record} does not: new CAs and tokens would lock this cluster out of its own data; restore pki/, credentials/ and openbao/seal.key from a backup, or delete the cluster"
    )]
    DataWithoutRecord {
        /// What was found.
        data: PathBuf,
        /// What is missing.
        record: PathBuf,
    },
    /// Something permanent is gone.
    #[error("{path} is gone, and the cluster was started with it; restore it from a backup, or delete the cluster")]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Something permanent has changed.
    #[error(
        "{path} is not what the cluster was started with (sha256 {found}, recorded {recorded}); restore it from a backup, or delete the cluster"
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its hash now.
        found: String,
        /// Its hash then.
        recorded: String,
    },
    /// k3s's copy and ours differ.
    #[error(
        "{placed} differs from {master}: the server would run with another identity than its clients know; put back the file from {master}, or restore both from a backup"
    )]
    PlacedDiffers {
        /// k3s's copy.
        placed: PathBuf,
        /// Ours.
        master: PathBuf,
    },
}

/// Makes what is missing, checks what is there, renews leaves. See the module's text.
pub fn ensure(group_dir: &Path) -> Result<Report, EnsureError> {
    ensure_at(&Layout::new(group_dir), OffsetDateTime::now_utc())
}

pub(crate) fn ensure_at(layout: &Layout, now: OffsetDateTime) -> Result<Report, EnsureError> {
    for dir in [layout.pki(), layout.credentials(), layout.openbao(), layout.k3s_tls()] {
        store::ensure_dir(&dir).map_err(io(&dir))?;
    }
    let record = read_record(layout)?;
    let mut run = Run { layout, now, known: record.as_ref(), report: Report::default(), hashes: BTreeMap::new() };
    let cas = run.cas()?;
    run.secrets()?;
    let Run { mut report, hashes, .. } = run;
    report.ca_hashes =
        hashes.iter().filter(|(name, _)| name.ends_with("-ca")).map(|(n, h)| (n.clone(), h.clone())).collect();
    if record.is_none_or(|known| known.sha256 != hashes) {
        write_record(layout, hashes)?;
    }
    place_for_k3s(layout)?;
    for leaf in leaf::all(layout) {
        ensure_leaf(&leaf, cas.signer(leaf.signer), now, &mut report)?;
    }
    Ok(report)
}

/// What a cluster was started with: SHA-256 by name. The secrets among them are 32 random bytes or a private key, so their
/// hashes tell nothing.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    sha256: BTreeMap<String, String>,
}

struct Cas {
    client: Ca,
    kine: Ca,
    openbao: Ca,
}

impl Cas {
    fn signer(&self, signer: Signer) -> &Ca {
        match signer {
            Signer::Client => &self.client,
            Signer::Kine => &self.kine,
            Signer::Openbao => &self.openbao,
        }
    }
}

struct Run<'a> {
    layout: &'a Layout,
    now: OffsetDateTime,
    known: Option<&'a Record>,
    report: Report,
    hashes: BTreeMap<String, String>,
}

impl Run<'_> {
    fn cas(&mut self) -> Result<Cas, EnsureError> {
        let layout = self.layout;
        let client = self.ca("client-ca", &layout.client_ca())?;
        self.ca("server-ca", &layout.server_ca())?;
        self.ca("request-header-ca", &layout.request_header_ca())?;
        let kine = self.ca("kine-ca", &layout.kine_ca())?;
        let openbao = self.ca("openbao-ca", &layout.openbao_ca())?;
        Ok(Cas { client, kine, openbao })
    }

    fn ca(&mut self, name: &str, pair: &Pair) -> Result<Ca, EnsureError> {
        let ca = match ca::load(pair, self.now)? {
            Some(ca) => ca,
            None => {
                self.may_create(name, &pair.cert)?;
                ca::create(pair, name, self.now)?
            }
        };
        self.same(name, &pair.cert, ca::fingerprint(&ca.cert_der))?;
        Ok(ca)
    }

    fn secrets(&mut self) -> Result<(), EnsureError> {
        let token = || Ok(HEXLOWER.encode(&store::random::<32>()?).into_bytes());
        let layout = self.layout;
        self.secret("service.key", &layout.service_key(), service_key)?;
        self.secret("server-token", &layout.server_token(), token)?;
        self.secret("agent-token", &layout.agent_token(), token)?;
        self.secret("seal.key", &layout.seal_key(), || Ok(store::random::<32>()?.to_vec()))
    }

    fn secret(
        &mut self,
        name: &str,
        path: &Path,
        make: impl Fn() -> std::io::Result<Vec<u8>>,
    ) -> Result<(), EnsureError> {
        let content = match store::read_if_present(path).map_err(io(path))? {
            Some(content) => content,
            None => {
                self.may_create(name, path)?;
                let content = make().map_err(io(path))?;
                store::write_private(path, &content).map_err(io(path))?;
                content
            }
        };
        self.same(name, path, ca::fingerprint(&content))
    }

    fn may_create(&mut self, name: &str, path: &Path) -> Result<(), EnsureError> {
        if self.known.is_some_and(|known| known.sha256.contains_key(name)) {
            return Err(EnsureError::Gone { path: path.into() });
        }
        self.report.created.push(name.into());
        Ok(())
    }

    fn same(&mut self, name: &str, path: &Path, found: String) -> Result<(), EnsureError> {
        if let Some(recorded) = self.known.and_then(|known| known.sha256.get(name))
            && *recorded != found
        {
            return Err(EnsureError::Changed { path: path.into(), found, recorded: recorded.clone() });
        }
        self.hashes.insert(name.into(), found);
        Ok(())
    }
}

fn read_record(layout: &Layout) -> Result<Option<Record>, EnsureError> {
    let path = layout.record();
    let Some(text) = store::read_if_present(&path).map_err(io(&path))? else {
        let data = [layout.kine_database(), layout.openbao_data()].into_iter().find(|p| p.exists());
        return match data {
            Some(data) => Err(EnsureError::DataWithoutRecord { data, record: path }),
            None => Ok(None),
        };
    };
    let record: Record =
        serde_json::from_slice(&text).map_err(|e| EnsureError::Record { path: path.clone(), why: e.to_string() })?;
    if record.schema != SCHEMA {
        let why = format!("its schema is {}, this program knows {SCHEMA}", record.schema);
        return Err(EnsureError::Record { path, why });
    }
    Ok(Some(record))
}

fn write_record(layout: &Layout, sha256: BTreeMap<String, String>) -> Result<(), EnsureError> {
    let record = Record { schema: SCHEMA, sha256 };
    let text = serde_json::to_vec_pretty(&record).expect("a map of strings is JSON");
    store::write_private(&layout.record(), &text).map_err(io(&layout.record()))
}

/// k3s takes over CAs and keys that it finds under these names at its first start. The others that it looks for there
/// (etcd's) it makes itself; they serve an embedded etcd that we do not run.
fn place_for_k3s(layout: &Layout) -> Result<(), EnsureError> {
    let mut files = vec![(layout.service_key(), "service.key".to_owned())];
    for (name, pair) in [
        ("client-ca", layout.client_ca()),
        ("server-ca", layout.server_ca()),
        ("request-header-ca", layout.request_header_ca()),
    ] {
        files.push((pair.cert, format!("{name}.crt")));
        files.push((pair.key, format!("{name}.key")));
    }
    for (master, name) in files {
        let placed = layout.k3s_tls().join(name);
        let wanted = std::fs::read(&master).map_err(io(&master))?;
        match store::read_if_present(&placed).map_err(io(&placed))? {
            None => store::write_private(&placed, &wanted).map_err(io(&placed))?,
            Some(found) if found == wanted => {}
            Some(_) => return Err(EnsureError::PlacedDiffers { placed, master }),
        }
    }
    Ok(())
}

fn ensure_leaf(leaf: &Leaf, ca: &Ca, now: OffsetDateTime, report: &mut Report) -> Result<(), EnsureError> {
    let read = |path: &PathBuf| store::read_if_present(path).map_err(io(path));
    match (read(&leaf.pair.cert)?, read(&leaf.pair.key)?) {
        (None, None) => report.created.push(leaf.name.into()),
        (Some(cert), Some(key)) => match leaf::fault(&cert, &key, ca, &leaf.request, now) {
            None => return Ok(()),
            Some(why) => report.renewed.push((leaf.name.into(), why)),
        },
        _ => report.renewed.push((leaf.name.into(), "one of its two files is missing".into())),
    }
    let signed =
        leaf::sign(ca, &leaf.request, now).map_err(|source| EnsureError::Make { what: leaf.name.into(), source })?;
    let dir = leaf.pair.cert.parent().expect("a leaf's file lies in a folder of its own");
    store::install_dir(dir, &[("tls.crt", signed.cert_pem.as_bytes()), ("tls.key", signed.key_pem.as_bytes())])
        .map_err(io(dir))
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> EnsureError {
    let path = path.to_owned();
    move |source| EnsureError::Io { path, source }
}

fn service_key() -> std::io::Result<Vec<u8>> {
    let key = KeyPair::generate().map_err(std::io::Error::other)?;
    let text = der::sec1_pem(&key).ok_or_else(|| std::io::Error::other("the new key is no P-256 key"))?;
    Ok(text.into_bytes())
}

#[cfg(test)]
#[path = "ensure_tests.rs"]
mod tests;
