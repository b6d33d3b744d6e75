//! Commands that come from Debian packages. Found by the command, so that any way of having it counts.

use super::Install;
use crate::run;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// A command, its package, and what needs it.
struct Need {
    command: &'static str,
    package: &'static str,
}

const NEEDS: [Need; 5] = [
    // kine's sqlite is C.
    Need { command: "gcc", package: "gcc libc6-dev" },
    // Tests look at certificates with a second implementation.
    Need { command: "openssl", package: "openssl" },
    // bao and kubectl come as wheels.
    Need { command: "python3", package: "python3 python3-pip" },
    // The spawn benchmark and the teardown tests use setsid and flock.
    Need { command: "setsid", package: "util-linux" },
    // Go modules without a proxy, and the checks of tracked files.
    Need { command: "git", package: "git" },
];

/// Installs what is missing when it may and can; else says what to install in one line.
pub fn ensure(install: Install) -> Result<()> {
    ensure_packages(install, &missing(|command| run::on_path(command).is_some()))
}

/// The same for one command that only some verb needs.
pub fn ensure_command(install: Install, command: &str, package: &str) -> Result<()> {
    match run::on_path(command) {
        Some(_) => Ok(()),
        None => ensure_packages(install, &[package]),
    }
}

/// The same for several commands, each with its package.
pub fn ensure_commands(install: Install, needs: &[(&str, &'static str)]) -> Result<()> {
    // Some of them lie where only root's PATH looks.
    let present = |command: &str| run::on_path(command).is_some() || Path::new("/usr/sbin").join(command).exists();
    let packages: Vec<&str> =
        needs.iter().filter(|(command, _)| !present(command)).map(|(_, package)| *package).collect();
    ensure_packages(install, &packages)
}

/// Fetches the lists of packages.
pub fn update(install: Install) -> Result<()> {
    may_install(install, "apt has no lists of packages; on Debian: apt-get update")?;
    run::run("apt-get update", apt_get().args(["-qq", "update"]))
}

fn may_install(install: Install, otherwise: &str) -> Result<()> {
    if install == Install::Refused || !nix::unistd::geteuid().is_root() || run::on_path("apt-get").is_none() {
        bail!("{otherwise}");
    }
    Ok(())
}

fn missing(present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    NEEDS.iter().filter(|need| !present(need.command)).flat_map(|need| need.package.split(' ')).collect()
}

fn ensure_packages(install: Install, packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    may_install(install, &format!("missing programs; on Debian: apt-get install {list}"))?;
    update(install)?;
    let mut command = apt_get();
    command.args(["-qq", "install", "-y", "--no-install-recommends"]).args(packages);
    run::run(&format!("apt-get install {list}"), &mut command)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    // Another installation on this machine is waited for, 5 minutes at most, instead of failing beside it.
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_packages_of_missing_commands_are_asked_for() {
        assert!(missing(|_| true).is_empty());
        assert_eq!(missing(|command| command != "gcc"), ["gcc", "libc6-dev"]);
    }

    #[test]
    fn without_leave_to_install_the_error_is_the_line_to_type() {
        let error = ensure_packages(Install::Refused, &["gcc", "libc6-dev"]).unwrap_err().to_string();
        assert!(error.ends_with("apt-get install gcc libc6-dev"), "{error}");
    }
}
