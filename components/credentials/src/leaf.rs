//! Leaf certificates: what each says, and when one is made anew.

use crate::ca::{BACKDATE, Ca};
use crate::der;
use crate::layout::{Layout, Pair};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// One year: longer than any uptime between two starts of a group that an operator should have.
const LEAF_LIFE: Duration = Duration::days(365);

/// Which side of a TLS connection a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Server,
    Client,
}

/// The CAs of a group, by what they sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signer {
    Client,
    Kine,
    Openbao,
}

/// What a leaf says.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    /// DNS names and IP addresses.
    pub(crate) names: Vec<String>,
    pub(crate) usage: Usage,
    pub(crate) life: Duration,
}

/// A leaf that each group has.
pub(crate) struct Leaf {
    pub(crate) name: &'static str,
    pub(crate) pair: Pair,
    pub(crate) signer: Signer,
    pub(crate) request: Request,
}

/// All leaves of a group.
pub(crate) fn all(layout: &Layout) -> Vec<Leaf> {
    let leaf = |name, pair, signer, common_name: &str, usage, names: &[&str]| Leaf {
        name,
        pair,
        signer,
        request: Request {
            common_name: common_name.into(),
            organizations: Vec::new(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            usage,
            life: LEAF_LIFE,
        },
    };
    vec![
        // No group: any authenticated user may read /readyz, and nothing else is needed.
        leaf("probe", layout.probe(), Signer::Client, "socialweb-probe", Usage::Client, &[]),
        // etcd's client names a unix socket's server by the last part of its path; a probe says localhost.
        leaf("kine-server", layout.kine_server(), Signer::Kine, "kine", Usage::Server, &["localhost", "kine.sock"]),
        leaf("kine-client", layout.kine_client(), Signer::Kine, "kine-client", Usage::Client, &[]),
        leaf(
            "openbao-server",
            layout.openbao_server(),
            Signer::Openbao,
            "openbao",
            Usage::Server,
            &["localhost", "127.0.0.1"],
        ),
    ]
}

/// A signed certificate and its new key.
pub(crate) struct Signed {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
    pub(crate) not_after: OffsetDateTime,
}

/// Signs a new key. The certificate never outlives its CA.
pub(crate) fn sign(ca: &Ca, request: &Request, now: OffsetDateTime) -> Result<Signed, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(request.names.clone())?;
    params.distinguished_name = Default::default();
    params.distinguished_name.push(DnType::CommonName, request.common_name.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match request.usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - BACKDATE;
    params.not_after = (now + request.life).min(ca.not_after);
    let cert = params.signed_by(&key, &ca.issuer)?;
    let cert = der::resubject(cert.der(), &request.organizations, &request.common_name, ca.issuer.key())
        .ok_or(rcgen::Error::CouldNotParseCertificate)??;
    Ok(Signed { cert_pem: der::pem("CERTIFICATE", &cert), key_pem: key.serialize_pem(), not_after: params.not_after })
}

/// Why this leaf must be made anew; None while it is good.
pub(crate) fn fault(cert: &[u8], key: &[u8], ca: &Ca, request: &Request, now: OffsetDateTime) -> Option<String> {
    check(cert, key, ca, request, now).err()
}

fn check(cert: &[u8], key: &[u8], ca: &Ca, request: &Request, now: OffsetDateTime) -> Result<(), String> {
    let key = std::str::from_utf8(key).map_err(|_| "its key is no text")?;
    let key = KeyPair::from_pem(key).map_err(|_| "its key cannot be parsed")?;
    let (_, block) = x509_parser::pem::parse_x509_pem(cert).map_err(|_| "it is no PEM")?;
    let cert = block.parse_x509().map_err(|_| "it is no certificate")?;
    if cert.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("certificate and key do not belong together".into());
    }
    let (_, ca) = x509_parser::parse_x509_certificate(&ca.cert_der).map_err(|_| "its CA cannot be parsed")?;
    if cert.issuer() != ca.subject() || cert.verify_signature(Some(ca.public_key())).is_err() {
        return Err("another CA signed it".into());
    }
    if !says(&cert, request) {
        return Err("it says something else than what is asked for now".into());
    }
    if !is_fresh(&cert, now) {
        return Err("two thirds of its life are over, or it is not yet valid".into());
    }
    Ok(())
}

fn says(cert: &X509Certificate<'_>, request: &Request) -> bool {
    let common_names: Vec<_> = cert.subject().iter_common_name().filter_map(|n| n.as_str().ok()).collect();
    let mut names: Vec<String> = match cert.subject_alternative_name() {
        Ok(Some(san)) => san.value.general_names.iter().map(plain_name).collect(),
        _ => Vec::new(),
    };
    let mut wanted = request.names.clone();
    names.sort();
    wanted.sort();
    let usage = match cert.extended_key_usage() {
        Ok(Some(usage)) => (usage.value.server_auth, usage.value.client_auth),
        _ => (false, false),
    };
    let organizations: Vec<_> = cert.subject().iter_organization().filter_map(|n| n.as_str().ok()).collect();
    common_names == [request.common_name.as_str()]
        && organizations == request.organizations
        && names == wanted
        && usage == (request.usage == Usage::Server, request.usage == Usage::Client)
}

pub(crate) fn plain_name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress([a, b, c, d]) => format!("{a}.{b}.{c}.{d}"),
        other => other.to_string(),
    }
}

/// A wall clock that jumped back makes a certificate look not yet valid: a new one is then right for both clocks' readers.
fn is_fresh(cert: &X509Certificate<'_>, now: OffsetDateTime) -> bool {
    let begin = cert.validity().not_before.to_datetime();
    let end = cert.validity().not_after.to_datetime();
    begin <= now && now < begin + (end - begin) * 2 / 3
}
