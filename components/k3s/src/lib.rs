//! The tenant's API server (k3s, or kube-server where there is no k3s) and what makes it a tenant's: the bring-up.
//!
//! The recipe knows neither account nor lease: it is handed ports and issuer. The bring-up is a client of the finished server
//! and of OpenBao; it never reads the kubeconfig that k3s writes, and no KUBECONFIG of anybody (law L13).
//!
//! Map:
//! - [`Server`] - the recipe of the server, with the whole argv.
//! - [`BringUp`] - the one-shot after it; [`bring_up()`] is what it runs.
#![forbid(unsafe_code)]

pub mod bring_up;
mod recipe;

pub use bring_up::{BringUp, BringUpError, Done, bring_up, operator_credential};
pub use recipe::{Flavour, Server};
