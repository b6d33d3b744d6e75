//! Certificate authorities: made once, loaded ever after, never replaced.

use crate::layout::Pair;
use crate::store;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use time::{Duration, OffsetDateTime};

/// Ten years, as k3s's own CAs. A CA's end is the end of the cluster's certificates: leaves are capped by it.
const CA_LIFE: Duration = Duration::days(3650);

/// Clocks of guests differ a little from the host's; more backdating would only lengthen a life that is asked for.
pub(crate) const BACKDATE: Duration = Duration::minutes(1);

/// A CA that can sign.
pub(crate) struct Ca {
    pub(crate) cert_der: Vec<u8>,
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) not_after: OffsetDateTime,
}

/// Why a CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// One of the two files is missing. Ours appear together, so somebody removed it.
    #[error(
        "{missing} is missing beside its other half; restore it from a backup of this cluster's folder, or delete the cluster (it is never made anew: certificates in use would stop working)"
    )]
    HalfPair {
        /// The missing file.
        missing: PathBuf,
    },
    /// Certificate or key cannot be understood, or they do not belong together.
    #[error(
        "the CA {path} cannot be used: {why}; restore it from a backup of this cluster's folder, or delete the cluster"
    )]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Its last day is over.
    #[error("the CA {path} ended on {end}; a cluster cannot outlive its CA: move its work to a new one")]
    Ended {
        /// The certificate.
        path: PathBuf,
        /// Its last moment.
        end: OffsetDateTime,
    },
    /// The file system refused.
    #[error("cannot read or write {path}; check that the state folder is writable and not full")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A key or a certificate could not be made.
    #[error("cannot make the CA {path}")]
    Make {
        /// The certificate.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
}

/// SHA-256 of a certificate's DER, in hex.
pub(crate) fn fingerprint(der: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(der))
}

/// Loads a CA; None when neither file is there.
pub(crate) fn load(pair: &Pair, now: OffsetDateTime) -> Result<Option<Ca>, CaError> {
    let read =
        |path: &PathBuf| store::read_if_present(path).map_err(|source| CaError::Io { path: path.clone(), source });
    let (cert, key) = match (read(&pair.cert)?, read(&pair.key)?) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(CaError::HalfPair { missing: pair.key.clone() }),
        (None, Some(_)) => return Err(CaError::HalfPair { missing: pair.cert.clone() }),
        (Some(cert), Some(key)) => (cert, key),
    };
    let ca = parse(cert, key).map_err(|why| CaError::Unusable { path: pair.cert.clone(), why })?;
    if ca.not_after <= now {
        return Err(CaError::Ended { path: pair.cert.clone(), end: ca.not_after });
    }
    Ok(Some(ca))
}

fn parse(cert: Vec<u8>, key: Vec<u8>) -> Result<Ca, String> {
    let cert_pem = String::from_utf8(cert).map_err(|_| "the certificate is no text".to_owned())?;
    let key_pem = String::from_utf8(key).map_err(|_| "the key is no text".to_owned())?;
    let key = KeyPair::from_pem(&key_pem).map_err(|e| format!("its key: {e}"))?;
    let (_, block) =
        x509_parser::pem::parse_x509_pem(cert_pem.as_bytes()).map_err(|e| format!("its certificate is no PEM: {e}"))?;
    let cert = block.parse_x509().map_err(|e| format!("its certificate: {e}"))?;
    if cert.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("certificate and key do not belong together".into());
    }
    if !cert.is_ca() {
        return Err("its certificate is not a CA's".into());
    }
    let not_after = cert.validity().not_after.to_datetime();
    let issuer = Issuer::from_ca_cert_pem(&cert_pem, key).map_err(|e| e.to_string())?;
    Ok(Ca { cert_der: block.contents, issuer, not_after })
}

/// Makes a CA and puts both files in place at once.
pub(crate) fn create(pair: &Pair, name: &str, now: OffsetDateTime) -> Result<Ca, CaError> {
    let failed = |source| CaError::Make { path: pair.cert.clone(), source };
    let io = |source| CaError::Io { path: pair.cert.clone(), source };
    let key = KeyPair::generate().map_err(failed)?;
    // The suffix keeps the CAs of two clusters apart in a client that trusts both.
    let unique = data_encoding::HEXLOWER.encode(&store::random::<4>().map_err(io)?);
    let mut params = CertificateParams::default();
    params.distinguished_name = Default::default();
    params.distinguished_name.push(DnType::CommonName, format!("socialweb-{name}@{unique}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - BACKDATE;
    params.not_after = now + CA_LIFE;
    let cert_pem = params.self_signed(&key).map_err(failed)?.pem();
    let key_pem = key.serialize_pem();
    let dir = pair.cert.parent().expect("a CA's file lies in a folder of its own");
    store::install_dir(dir, &[("ca.crt", cert_pem.as_bytes()), ("ca.key", key_pem.as_bytes())]).map_err(io)?;
    parse(cert_pem.into_bytes(), key_pem.into_bytes()).map_err(|why| CaError::Unusable { path: pair.cert.clone(), why })
}
