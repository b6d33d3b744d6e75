//! `guest`: the tests that need a real systemd, in a machine of their own.
//!
//! QEMU boots a small Debian with systemd, where an account without root lingers as on a real host. Our units are installed
//! for it as README says, and tests/guest runs as that account. KVM is used where it works and is not needed.
//!
//! - [`image`]: the root file system, in build/guest, kept by a digest of what it is made of. [`kernel`]: kernel and initramfs.
//! - [`machine`]: one boot: disks, ports, time limit, what comes back.
//! - [`scene`]: which tests share a machine, and how each boot of it ends. [`suite`]: all scenes, counted.

mod image;
mod kernel;
mod machine;
mod scene;
mod suite;

use crate::repo::Repo;
use crate::run;
use crate::setup::Install;
use anyhow::Result;
use std::process::Command;

/// Verbs of `cargo x guest`.
#[derive(clap::Subcommand)]
pub enum Verb {
    /// Build the guest's image, unless it is there (`systemd` does it by itself)
    Image {
        /// Install nothing; say what is missing
        #[arg(long)]
        no_install: bool,
    },
    /// Run tests/guest in a Debian with real systemd
    Systemd(suite::Args),
}

/// `cargo x guest`.
pub fn guest(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Image { no_install } => {
            let image = image::ensure(&Repo::find()?, Install::unless(*no_install))?;
            println!("the guest's image is in {}", image.folder().display());
            Ok(())
        }
        Verb::Systemd(args) => suite::systemd(args),
    }
}

/// A program that may lie where only root's PATH looks.
fn tool(program: &str) -> Command {
    let mut command = Command::new(run::on_path(program).unwrap_or_else(|| format!("/usr/sbin/{program}").into()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(path) = std::env::join_paths(folders) {
        command.env("PATH", path);
    }
    command
}
