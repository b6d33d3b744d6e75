//! The little DER and PEM that rcgen does not write: a subject with several organizations.
//!
//! rcgen keeps a subject as a map, so of two organizations the first is silently lost; Kubernetes takes each organization as
//! a group. The certificate is therefore made by rcgen with its common name, and its subject is then replaced and the whole
//! signed again.

use rcgen::{KeyPair, SigningKey};
use x509_parser::prelude::{FromDer, X509Certificate};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];

/// The certificate with the subject `O=..., O=..., CN=...`, signed again by `key`. None when `cert` is no certificate.
pub(crate) fn resubject(
    cert: &[u8],
    organizations: &[String],
    common_name: &str,
    key: &KeyPair,
) -> Option<Result<Vec<u8>, rcgen::Error>> {
    let (_, parsed) = X509Certificate::from_der(cert).ok()?;
    let tbs = parsed.tbs_certificate.as_ref();
    let body = content(tbs)?;
    let old = parsed.subject().as_raw();
    // By address, not by search: a self-signed certificate holds the same bytes twice.
    let at = (old.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let new_body = [body.get(..at)?, &subject(organizations, common_name), body.get(at + old.len()..)?].concat();
    let tbs_new = tlv(SEQUENCE, &new_body);
    let algorithm_at = (tbs.as_ptr() as usize - cert.as_ptr() as usize) + tbs.len();
    let rest = cert.get(algorithm_at..)?;
    let algorithm = rest.get(..header(rest)? + content(rest)?.len())?;
    Some(key.sign(&tbs_new).map(|signature| {
        let signature = tlv(BIT_STRING, &[&[0], signature.as_slice()].concat());
        tlv(SEQUENCE, &[&tbs_new, algorithm, &signature].concat())
    }))
}

/// PEM text with the given label.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = data_encoding::BASE64.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|c| std::str::from_utf8(c).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A P-256 key as SEC 1 text ("EC PRIVATE KEY"). The API server takes the public half of its service-account key from this
/// very file, and its parser knows RSA in PKCS #8 but elliptic curves in SEC 1 only (client-go util/keyutil,
/// ParsePublicKeysPEM). None when the key is no P-256 key.
pub(crate) fn sec1_pem(key: &KeyPair) -> Option<String> {
    const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    // Inside PKCS #8 the secret follows `INTEGER 1, OCTET STRING(32)` of an ECPrivateKey.
    const BEFORE: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];
    let pkcs8 = key.serialized_der();
    let at = pkcs8.windows(BEFORE.len()).position(|w| w == BEFORE)?;
    let secret = pkcs8.get(at..at + BEFORE.len() + 32)?;
    let point = tlv(BIT_STRING, &[&[0], key.public_key_raw()].concat());
    let body = [secret, &tlv(0xa0, &P256), &tlv(0xa1, &point)].concat();
    Some(pem("EC PRIVATE KEY", &tlv(SEQUENCE, &body)))
}

fn subject(organizations: &[String], common_name: &str) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|o| attribute(&ORGANIZATION, o)).collect();
    parts.push(attribute(&COMMON_NAME, common_name));
    tlv(SEQUENCE, &parts.concat())
}

fn attribute(oid: &[u8], value: &str) -> Vec<u8> {
    tlv(SET, &tlv(SEQUENCE, &[oid, &tlv(UTF8, value.as_bytes())].concat()))
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut out = vec![tag];
    if len < 0x80 {
        out.push(len as u8);
    } else {
        let bytes = len.to_be_bytes();
        let significant = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
        out.push(0x80 | significant.len() as u8);
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

/// Length of the tag and length bytes of the element that `der` begins with.
fn header(der: &[u8]) -> Option<usize> {
    match *der.get(1)? {
        short if short < 0x80 => Some(2),
        long => Some(2 + usize::from(long & 0x7f)),
    }
}

/// The content of the element that `der` begins with.
fn content(der: &[u8]) -> Option<&[u8]> {
    let at = header(der)?;
    let len = match at {
        2 => usize::from(*der.get(1)?),
        _ => der.get(2..at)?.iter().fold(0, |n, b| n << 8 | usize::from(*b)),
    };
    der.get(at..at + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_shortest_that_der_allows() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let made = tlv(UTF8, &vec![b'x'; len]);
            assert_eq!(content(&made).map(<[u8]>::len), Some(len));
            assert_eq!(
                made.len() - len,
                match len {
                    0..=0x7f => 2,
                    0x80..=0xff => 3,
                    0x100..=0xffff => 4,
                    _ => 5,
                }
            );
        }
        assert_eq!(content(&[0x30, 0x05, 1]), None);
    }
}
