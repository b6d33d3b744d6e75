//! The names that set one tenant apart: the hash of its account, and the issuer and audience of its tokens.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

/// `a` and the first 20 characters of the lower-case base32 (RFC 4648, no padding) of the SHA-256 of the account string.
/// The `a` makes it a DNS label whatever the hash begins with.
pub fn account_hash(account: &str) -> String {
    let text = BASE32_NOPAD.encode(&Sha256::digest(account.as_bytes())).to_ascii_lowercase();
    format!("a{}", &text[..20])
}

/// Issuer of a cluster's service-account tokens, and its per-tenant audience: no two clusters share one, so a token of one is
/// refused by every other for more reasons than its signature.
pub fn issuer(cluster: &str, account: &str) -> String {
    format!("https://{cluster}.{}.socialweb.computer", account_hash(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(account: &str, hash: &str) {
        assert_eq!(account_hash(account), hash, "{account:?}");
    }

    /// Made with `printf %s ACCOUNT | sha256sum | xxd -r -p | base32 | tr A-Z a-z | cut -c1-20`.
    #[test]
    fn account_hashes_match_the_published_vectors() {
        check("demo", "afklvc3bvjnuijdg33d2u");
        check("alice@example.org", "apjsk34uhg7vja4m4xxyl");
        check("did:plc:abc123", "a6gq2fi2witiahzwek4te");
        check("", "a4oymiquy7qobjgx36tej");
    }

    #[test]
    fn the_issuer_names_cluster_and_account() {
        assert_eq!(issuer("ci", "demo"), format!("https://ci.{}.socialweb.computer", account_hash("demo")));
    }
}
