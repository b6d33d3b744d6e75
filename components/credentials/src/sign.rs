//! Scoped client certificates, signed by the client CA on disk.
//!
//! There is no revocation in Kubernetes: the life of a certificate is how long a leaked copy is useful. The superuser is not
//! made here: only OpenBao mints it, so that one place limits its life.

use crate::ca::{self, CaError};
use crate::layout::Pair;
use crate::leaf::{self, Request, Usage};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;

/// The longest life that can be asked for (8760 h).
pub const MAX_VALID_FOR: Duration = Duration::from_secs(8760 * 3600);

/// A certificate and its key, in memory.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, PEM.
    pub cert_pem: String,
    /// The private key, PEM (PKCS #8). A secret.
    pub key_pem: String,
    /// When the certificate ends (never after its CA).
    pub not_after: OffsetDateTime,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// Why a client certificate was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// No user name.
    #[error("the common name is empty; it is the user's name, such as gitlab-runner")]
    NoCommonName,
    /// An empty group.
    #[error("an organization is empty; organizations are the user's groups: give none, or names without empty entries")]
    EmptyOrganization,
    /// The superuser's group.
    #[error(
        "the organization system:masters is cluster-admin and passes every RBAC rule; only OpenBao mints it, for the operator: ask for a group of your own and bind it with RBAC"
    )]
    Superuser,
    /// Out of range.
    #[error("a validity of {seconds} s was asked for; give 1 s to 8760 h")]
    ValidFor {
        /// What was asked for, in seconds.
        seconds: u64,
    },
    /// There is no CA in that folder.
    #[error("no client CA in {dir}; is this the cluster's pki/client-ca folder, and was the cluster started once?")]
    NoCa {
        /// The folder.
        dir: PathBuf,
    },
    /// The CA cannot be used.
    #[error("the client CA cannot sign")]
    Ca(#[from] CaError),
    /// The certificate could not be made.
    #[error("cannot sign the certificate of {common_name}")]
    Sign {
        /// For whom.
        common_name: String,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
}

/// Signs a new key for a user (`common_name`) in groups (`organizations`). `ca_dir` holds `ca.crt` and `ca.key`: a group's
/// `pki/client-ca`. The life begins a minute ago, and is cut at the CA's own end.
pub fn sign_client(
    ca_dir: &Path,
    common_name: &str,
    organizations: &[String],
    valid_for: Duration,
) -> Result<Identity, SignError> {
    sign_client_at(ca_dir, common_name, organizations, valid_for, OffsetDateTime::now_utc())
}

fn sign_client_at(
    ca_dir: &Path,
    common_name: &str,
    organizations: &[String],
    valid_for: Duration,
    now: OffsetDateTime,
) -> Result<Identity, SignError> {
    check(common_name, organizations, valid_for)?;
    let pair = Pair { cert: ca_dir.join("ca.crt"), key: ca_dir.join("ca.key") };
    let ca = ca::load(&pair, now)?.ok_or_else(|| SignError::NoCa { dir: ca_dir.into() })?;
    let request = Request {
        common_name: common_name.into(),
        organizations: organizations.to_vec(),
        names: Vec::new(),
        usage: Usage::Client,
        life: time::Duration::seconds(valid_for.as_secs().cast_signed()),
    };
    let signed =
        leaf::sign(&ca, &request, now).map_err(|source| SignError::Sign { common_name: common_name.into(), source })?;
    Ok(Identity { cert_pem: signed.cert_pem, key_pem: signed.key_pem, not_after: signed.not_after })
}

fn check(common_name: &str, organizations: &[String], valid_for: Duration) -> Result<(), SignError> {
    if common_name.trim().is_empty() {
        return Err(SignError::NoCommonName);
    }
    if organizations.iter().any(|o| o.trim().is_empty()) {
        return Err(SignError::EmptyOrganization);
    }
    if organizations.iter().any(|o| o == "system:masters") {
        return Err(SignError::Superuser);
    }
    if valid_for.as_secs() == 0 || valid_for > MAX_VALID_FOR {
        return Err(SignError::ValidFor { seconds: valid_for.as_secs() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn ca_dir(tmp: &tempfile::TempDir) -> PathBuf {
        let dir = tmp.path().join("client-ca");
        let pair = Pair { cert: dir.join("ca.crt"), key: dir.join("ca.key") };
        ca::create(&pair, "client-ca", OffsetDateTime::now_utc()).unwrap();
        dir
    }

    #[test]
    fn a_scoped_certificate_names_its_user_and_groups_and_is_for_clients_only() {
        let tmp = tempfile::tempdir().unwrap();
        let groups = ["gitlab-runner".to_owned(), "builders".to_owned()];
        let made = sign_client(&ca_dir(&tmp), "gitlab-runner", &groups, DAY).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(made.cert_pem.as_bytes()).unwrap();
        let cert = pem.parse_x509().unwrap();
        assert_eq!(cert.subject().to_string(), "O=gitlab-runner, O=builders, CN=gitlab-runner");
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert!(!cert.is_ca());
    }

    #[test]
    fn a_certificate_never_outlives_its_ca() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = ca_dir(&tmp);
        let late = OffsetDateTime::now_utc() + time::Duration::days(3640);
        let made = sign_client_at(&dir, "a", &[], MAX_VALID_FOR, late).unwrap();
        assert!(made.not_after < late + time::Duration::days(11));
        let over = late + time::Duration::days(30);
        let refused = sign_client_at(&dir, "a", &[], DAY, over);
        assert!(matches!(refused, Err(SignError::Ca(CaError::Ended { .. }))), "{refused:?}");
    }

    #[test]
    fn the_superuser_and_nonsense_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = ca_dir(&tmp);
        let ask =
            |cn: &str, o: &[&str], d| sign_client(&dir, cn, &o.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>(), d);
        assert!(matches!(ask("x", &["system:masters"], DAY), Err(SignError::Superuser)));
        assert!(matches!(ask("", &[], DAY), Err(SignError::NoCommonName)));
        assert!(matches!(ask("x", &["a", ""], DAY), Err(SignError::EmptyOrganization)));
        assert!(matches!(ask("x", &[], Duration::ZERO), Err(SignError::ValidFor { .. })));
        assert!(matches!(ask("x", &[], MAX_VALID_FOR + DAY), Err(SignError::ValidFor { .. })));
        assert!(matches!(sign_client(tmp.path(), "x", &[], DAY), Err(SignError::NoCa { .. })));
    }

    #[test]
    fn a_key_is_never_printed() {
        let tmp = tempfile::tempdir().unwrap();
        let made = sign_client(&ca_dir(&tmp), "a", &[], DAY).unwrap();
        assert!(!format!("{made:?}").contains("PRIVATE"));
    }
}
