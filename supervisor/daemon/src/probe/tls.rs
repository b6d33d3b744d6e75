//! A TLS client's trust and identity, from files and nothing else.

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use socialweb_core::spec::TlsFiles;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a client cannot be built. The files appear when the component's first start made them, so this is a reason to wait.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file.
    #[error("cannot read PEM from {}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate or key that rustls refuses.
    #[error("the certificates in {} cannot be used", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The CA file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
}

/// A client that trusts what `files` say, or nobody.
///
/// # Errors
/// [`TlsError`].
pub fn client(files: Option<&TlsFiles>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Refused { path: PathBuf::from("(built in)"), source })?;
    let Some(files) = files else {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        roots.add(certificate).map_err(|source| TlsError::Refused { path: files.ca.clone(), source })?;
    }
    let builder = builder.with_root_certificates(roots);
    match &files.identity {
        None => Ok(builder.with_no_client_auth()),
        Some((cert, key)) => {
            let pem = |source| TlsError::Pem { path: key.clone(), source };
            let private = PrivateKeyDer::from_pem_file(key).map_err(pem)?;
            let refused = |source| TlsError::Refused { path: cert.clone(), source };
            builder.with_client_auth_cert(certificates(cert)?, private).map_err(refused)
        }
    }
}

/// Whom a certificate must name for `host`, which may be a name, an address, or one of IPv6 in brackets.
///
/// # Errors
/// It is neither.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let plain = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(plain.to_owned()).map_err(|e| crate::chain::chain(&e))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem { path: path.to_owned(), source };
    let found: Vec<_> = CertificateDer::pem_file_iter(path).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

/// Tells whether files were exchanged: inode, size and change time of each (our own writer always makes a new inode).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stamp(Vec<Option<(u64, u64, i64, i64)>>);

impl Stamp {
    pub(super) fn of(files: Option<&TlsFiles>) -> Stamp {
        let Some(files) = files else { return Stamp::default() };
        let identity = files.identity.iter().flat_map(|(cert, key)| [cert, key]);
        let look = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
        };
        Stamp(std::iter::once(&files.ca).chain(identity).map(look).collect())
    }
}
