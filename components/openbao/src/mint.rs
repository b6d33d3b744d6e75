//! The superuser of a tenant's cluster, minted by its OpenBao.

use crate::api::{self, Api, ApiError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use socialweb_credentials::{Identity, Layout};
use std::path::{Path, PathBuf};
use std::time::Duration;
use x509_parser::certificate::X509Certificate;

/// The common name of the superuser. Not `system:admin`: an audit log should tell ours from k3s's own.
pub const SUPERUSER: &str = "socialweb-operator";

/// The group that passes every RBAC rule.
pub(crate) const MASTERS: &str = "system:masters";

/// The only role of the vault.
pub(crate) const ROLE: &str = "tenant-superuser";

/// The longest life of a superuser's certificate. It cannot be revoked, so it is short; each bring-up mints a new one.
pub(crate) const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Which vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mint {
    /// The group's state folder.
    pub group_dir: PathBuf,
    /// OpenBao's API port.
    pub api_port: u16,
}

/// Why nothing was minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// Something else than the superuser was asked for.
    #[error(
        "OpenBao mints only {SUPERUSER} in {MASTERS}, and {common_name:?} was asked for; a scoped identity is signed by the client CA on disk: use `internal tenantcredential`"
    )]
    OnlySuperuser {
        /// What was asked for.
        common_name: String,
        /// What OpenBao said.
        #[source]
        source: ApiError,
    },
    /// OpenBao did not do it.
    #[error("the superuser of this cluster could not be minted")]
    Api(#[from] ApiError),
    /// The kept credential cannot be used.
    #[error(
        "{path} cannot be used; move the openbao/data folder away and start the group: the vault is then made anew from the client CA"
    )]
    Credential {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// What came back is not the superuser of this cluster.
    #[error("OpenBao issued a certificate that is not this cluster's superuser: {why}; its role or its CA was changed")]
    Wrong {
        /// What differs.
        why: String,
    },
}

/// What is kept to log in with: an AppRole, which unlike a token does not end while a cluster is parked for months.
#[derive(Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) role_id: String,
    pub(crate) secret_id: String,
}

impl Login {
    pub(crate) fn path(data: &Path) -> PathBuf {
        data.join("mint-credential.json")
    }

    fn load(data: &Path) -> Result<Login, MintError> {
        let path = Self::path(data);
        let read = || serde_json::from_slice(&std::fs::read(&path)?).map_err(std::io::Error::from);
        read().map_err(|source| MintError::Credential { path: path.clone(), source })
    }
}

/// Mints the superuser (group system:masters, at most a day) and checks that it is one: names, usage, and that this cluster's
/// client CA signed it.
pub async fn mint_superuser(mint: &Mint) -> Result<Identity, MintError> {
    mint_as(mint, SUPERUSER).await
}

/// Asks for any common name; OpenBao refuses all but the superuser's.
pub async fn mint_as(mint: &Mint, common_name: &str) -> Result<Identity, MintError> {
    let layout = Layout::new(&mint.group_dir);
    let login = Login::load(&layout.openbao_data())?;
    let api = Api::new(&layout, mint.api_port)?;
    issue(&layout, &log_in(&api, &login).await?, common_name).await
}

/// The same client with a token of a few minutes.
pub(crate) async fn log_in(api: &Api, login: &Login) -> Result<Api, ApiError> {
    const WHAT: &str = "log in to mint";
    let body = json!({ "role_id": login.role_id, "secret_id": login.secret_id });
    let answer = api.post(WHAT, "auth/approle/login", body).await?;
    Ok(api.with_token(api::text(&answer, WHAT, "auth.client_token")?))
}

pub(crate) async fn issue(layout: &Layout, api: &Api, common_name: &str) -> Result<Identity, MintError> {
    const WHAT: &str = "mint the superuser";
    let body = json!({ "common_name": common_name, "exclude_cn_from_sans": true });
    let answer = api.post(WHAT, &format!("pki/issue/{ROLE}"), body).await.map_err(|e| refused(e, common_name))?;
    // OpenBao's PEM ends without a newline; files of it would run into each other when joined.
    let cert_pem = api::text(&answer, WHAT, "data.certificate")? + "\n";
    let key_pem = api::text(&answer, WHAT, "data.private_key")? + "\n";
    let path = layout.client_ca().cert;
    let ca = std::fs::read(&path).map_err(|source| ApiError::File { path, source })?;
    let not_after = check(&cert_pem, &ca).map_err(|why| MintError::Wrong { why })?;
    Ok(Identity { cert_pem, key_pem, not_after })
}

fn refused(error: ApiError, common_name: &str) -> MintError {
    match &error {
        ApiError::Refused { status, .. } if status.as_u16() == 400 && common_name != SUPERUSER => {
            MintError::OnlySuperuser { common_name: common_name.into(), source: error }
        }
        _ => MintError::Api(error),
    }
}

/// The end of a certificate that is this cluster's superuser; otherwise what it is not.
fn check(cert: &str, ca: &[u8]) -> Result<time::OffsetDateTime, String> {
    let parse = |pem: &[u8]| x509_parser::pem::parse_x509_pem(pem).map(|(_, pem)| pem).map_err(|e| e.to_string());
    let (cert, ca) = (parse(cert.as_bytes())?, parse(ca)?);
    let cert = cert.parse_x509().map_err(|e| e.to_string())?;
    let ca = ca.parse_x509().map_err(|e| e.to_string())?;
    if cert.issuer() != ca.subject() || cert.verify_signature(Some(ca.public_key())).is_err() {
        return Err("this cluster's client CA did not sign it".into());
    }
    if names(&cert) != ([SUPERUSER.to_owned()].into(), [MASTERS.to_owned()].into()) {
        return Err(format!("its subject is {}", cert.subject()));
    }
    let usage = cert.extended_key_usage().ok().flatten().map(|u| (u.value.client_auth, u.value.server_auth));
    if usage != Some((true, false)) || cert.is_ca() {
        return Err("it is not for clients only".into());
    }
    Ok(cert.validity().not_after.to_datetime())
}

fn names(cert: &X509Certificate<'_>) -> (Vec<String>, Vec<String>) {
    let subject = cert.subject();
    let text = |n: &x509_parser::x509::AttributeTypeAndValue<'_>| n.as_str().unwrap_or_default().to_owned();
    (subject.iter_common_name().map(text).collect(), subject.iter_organization().map(text).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_this_clusters_superuser_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let [own, other] = ["a", "b"].map(|name| {
            socialweb_credentials::ensure(&tmp.path().join(name)).unwrap();
            Layout::new(tmp.path().join(name)).client_ca().cert
        });
        let sign = |name: &str| {
            socialweb_credentials::sign_client(own.parent().unwrap(), name, &["devs".into()], MAX_LIFE)
                .unwrap()
                .cert_pem
        };
        let ca = std::fs::read(&own).unwrap();
        assert!(check(&sign(SUPERUSER), &ca).unwrap_err().contains("O=devs"), "another group");
        assert!(check(&sign("x"), &ca).unwrap_err().contains("subject"));
        let elsewhere = check(&sign(SUPERUSER), &std::fs::read(&other).unwrap()).unwrap_err();
        assert!(elsewhere.contains("did not sign"), "{elsewhere}");
        assert!(check("no pem", &ca).is_err());
    }
}
