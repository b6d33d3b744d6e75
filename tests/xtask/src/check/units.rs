//! The systemd units, as systemd itself reads them.

use super::Outcome;
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// `systemd-analyze verify`, with a home folder that has the program that ExecStart names.
pub fn verify(repo: &Repo) -> Result<Outcome> {
    if run::on_path("systemd-analyze").is_none() {
        return Ok(Outcome::Skipped("systemd-analyze is not on PATH; it comes with systemd".into()));
    }
    let home = repo.build().join("units-check");
    let _absent = fs::remove_dir_all(&home);
    let bin = home.join(".local/bin");
    fs::create_dir_all(&bin).with_context(|| format!("creating {}", bin.display()))?;
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
    symlink("/bin/true", bin.join("socialweb-computer")).context("standing in for the program")?;
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["verify", "--user", "--man=no"]).env("HOME", &home).env("XDG_RUNTIME_DIR", &home);
    let out = analyze.args(unit_files(&repo.path("units"))?).output().context("starting systemd-analyze")?;
    fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    let said = String::from_utf8_lossy(&out.stderr);
    // A key that systemd does not know is only a warning to it; other units of the machine are none of our business.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("socialweb")).collect();
    if !out.status.success() || !ours.is_empty() {
        bail!("systemd-analyze verify: {}\n{}", out.status, said.trim());
    }
    Ok(Outcome::Good)
}

/// The units of the account; the folder beside them has drop-ins for root, which are no units by themselves.
fn unit_files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// systemd's default KillMode would TERM every process at once, and a cgroup that is not delegated is not ours to divide.
    #[test]
    fn the_unit_leaves_the_order_of_the_stop_to_the_daemon() {
        let unit = fs::read_to_string(Repo::find().unwrap().path("units/socialweb-computer-gateway.service")).unwrap();
        for line in
            ["KillMode=mixed", "Delegate=yes", "OOMPolicy=continue", "Type=notify", "RestartPreventExitStatus=2"]
        {
            assert!(unit.lines().any(|l| l == line), "{line}");
        }
    }
}
