//! The keys and certificates of one tenant cluster: made before anything else of its group starts, kept for its whole life.
//!
//! What is permanent (CAs, the service-account key, tokens, OpenBao's seal key) is made once, recorded by its hash, and
//! never replaced: a cluster that silently got a new CA or token is a lost cluster. What is short-lived (leaf
//! certificates) is made anew when it is two thirds through its life or does not match what is asked for.
//!
//! This room does not talk to anybody: no socket, no child process, no clock but the certificates' own validity. The
//! superuser comes from OpenBao; here only its kubeconfig is written.
//!
//! Map:
//! - [`layout`] - where each file of a group lies. The recipes take their paths from here.
//! - [`mod@ensure`] - the task `internal tenant-credentials`; all of the above, idempotent, harmless to kill.
//! - [`sign`] - scoped client certificates from the client CA on disk.
//! - [`operator`] - the operator's kubeconfig.
//! - [`account`] - account hash, issuer and audience of a tenant.
//! - [`recipe`] - the component `credentials`, and the environment that all tenant recipes share.
//! - [`store`] - private files that are either whole or absent.
//! - `ca`, `leaf`, `der`: certificate authorities, leaf certificates, the encoding that rcgen lacks.
#![forbid(unsafe_code)]

pub mod account;
mod ca;
mod der;
pub mod ensure;
pub mod layout;
mod leaf;
pub mod operator;
pub mod recipe;
pub mod sign;
pub mod store;

pub use account::{account_hash, issuer};
pub use ensure::{EnsureError, Report, ensure};
pub use layout::{Layout, Pair};
pub use operator::{Operator, OperatorError, operator_kubeconfig};
pub use recipe::Credentials;
pub use sign::{Identity, SignError, sign_client};
