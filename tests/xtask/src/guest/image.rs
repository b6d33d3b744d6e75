//! The image: Debian's own systemd, and nothing that a boot under emulation would wait for.

use super::{kernel, tool};
use crate::repo::Repo;
use crate::run;
use crate::setup::{Install, debian};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The account that lingers; useradd gives it its own group of the same number.
pub const ACCOUNT: &str = "tester";
const UID: &str = "1000";

/// What the guest is made of. dbus-user-session is what makes a user manager reachable; busybox and kernel come apart.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,passwd,procps";

/// Counted up when the steps below change, because they are no file that could be hashed.
const STEPS: &str = "2";

/// Units that do nothing for our tests and cost seconds of an emulated boot.
const MASKED: &[&str] = &[
    "getty.target",
    "getty-static.service",
    "serial-getty@.service",
    "console-getty.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-random-seed.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-pstore.service",
    "systemd-firstboot.service",
    "systemd-ask-password-wall.path",
    "systemd-ask-password-console.path",
    "kmod-static-nodes.service",
    "modprobe@.service",
    "systemd-modules-load.service",
    "systemd-sysusers.service",
    "systemd-remount-fs.service",
    "systemd-journal-catalog-update.service",
    "systemd-update-done.service",
    "ldconfig.service",
    "dev-mqueue.mount",
    "dev-hugepages.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount",
    "proc-sys-fs-binfmt_misc.automount",
];

/// The programs that build and boot it, with their packages.
const NEEDS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("cpio", "cpio"),
    ("mke2fs", "e2fsprogs"),
    ("modprobe", "kmod"),
];

/// A finished image.
#[derive(Debug, Clone)]
pub struct Image {
    folder: PathBuf,
}

impl Image {
    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernel, as QEMU loads it.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The initramfs.
    pub fn initrd(&self) -> PathBuf {
        self.folder.join("initrd")
    }

    /// The root file system; never written to.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root.ext4")
    }
}

/// Builds the image unless one of the same inputs is there. One build at a time in a clone.
///
/// # Errors
/// What is missing, and how to get it.
pub fn ensure(repo: &Repo, install: Install) -> Result<Image> {
    if std::env::consts::ARCH != "x86_64" {
        bail!(
            "the guest is an x86_64 machine that runs this machine's programs; this one is {}",
            std::env::consts::ARCH
        );
    }
    debian::ensure_commands(install, NEEDS)?;
    let release = debian_release()?;
    let builds = repo.build().join("guest");
    fs::create_dir_all(&builds).with_context(|| format!("creating {}", builds.display()))?;
    let lock = fs::File::create(builds.join("image.lock")).context("creating build/guest/image.lock")?;
    lock.lock().context("waiting for another image build in this clone")?;
    let name = format!("image-{}", digest(repo, &release)?);
    let image = Image { folder: builds.join(&name) };
    if !image.folder.is_dir() {
        remove_others(&builds, &name)?;
        build(repo, install, &release, &image)?;
    }
    Ok(image)
}

/// The guest runs programs that were linked here, so it has to be the same release.
fn debian_release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let value =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|v| v.trim_matches('"').to_string());
    match (value("ID=").as_deref(), value("VERSION_CODENAME=")) {
        (Some("debian"), Some(release)) => Ok(release),
        _ => bail!("the guest is a Debian of this machine's own release, and this machine is no Debian; run it on one"),
    }
}

/// Everything that decides what the image is.
fn digest(repo: &Repo, release: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for text in [STEPS, release, PACKAGES, kernel::MODULES, kernel::INIT].into_iter().chain(MASKED.iter().copied()) {
        hash.update(text);
        hash.update([0]);
    }
    for folder in [overlay(repo), system_units(repo)] {
        for path in files(&folder)? {
            hash.update(path.strip_prefix(&folder)?.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// What is laid over the packages: the guest's own runner and settings.
fn overlay(repo: &Repo) -> PathBuf {
    repo.path("tests/guest/root")
}

/// The part of our units that root installs.
fn system_units(repo: &Repo) -> PathBuf {
    repo.path("units/system")
}

/// All files below, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

fn remove_others(builds: &Path, keep: &str) -> Result<()> {
    for entry in fs::read_dir(builds)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("image-") && name != keep {
            fs::remove_dir_all(entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn build(repo: &Repo, install: Install, release: &str, image: &Image) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("building the guest's image needs root, because its files belong to several accounts");
    }
    let parts = fresh_parts(&image.folder)?;
    let done = parts.join("done");
    fs::create_dir(&done)?;
    let fetched = kernel::fetch(install, &parts.join("kernel"))?;
    fs::copy(fetched.vmlinuz(), done.join("vmlinuz")).context("copying the kernel")?;
    kernel::initramfs(&fetched, &parts.join("initrd"), &done.join("initrd"))?;
    let root = parts.join("root");
    packages(release, &root)?;
    tune(repo, &root)?;
    file_system(&root, &done.join("root.ext4"))?;
    fs::rename(&done, &image.folder).context("putting the image in place")?;
    fs::remove_dir_all(&parts).with_context(|| format!("removing {}", parts.display()))
}

/// A fresh folder beside the image; what an interrupted build left there goes first.
fn fresh_parts(folder: &Path) -> Result<PathBuf> {
    let parts = folder.with_file_name("image-parts");
    let _absent = fs::remove_dir_all(&parts);
    fs::create_dir_all(&parts).with_context(|| format!("creating {}", parts.display()))?;
    Ok(parts)
}

fn packages(release: &str, root: &Path) -> Result<()> {
    let mut debootstrap = tool("mmdebstrap");
    debootstrap.args(["--quiet", "--variant=essential", "--mode=root"]).arg(format!("--include={PACKAGES}"));
    debootstrap.arg("--aptopt=APT::Install-Recommends \"false\"");
    for unread in ["doc", "man", "locale", "info", "zoneinfo"] {
        debootstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{unread}/*"));
    }
    debootstrap.arg(release).arg(root);
    // The machine's own sources, so that a mirror that works here works there.
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    debootstrap.args(sources.iter().filter(|file| fs::metadata(file).is_ok_and(|m| m.len() > 0)).take(1));
    run::run("a Debian with systemd, by mmdebstrap", &mut debootstrap)
}

/// The account, what root installs of ours, and the runner of the tests.
fn tune(repo: &Repo, root: &Path) -> Result<()> {
    // An empty password and not a locked one: the test of a logout has to log in.
    let account = format!("useradd -m -u {UID} -s /bin/bash {ACCOUNT} && passwd -qd {ACCOUNT}");
    run::output(tool("chroot").arg(root).args(["sh", "-c", &account]))?;
    run::output(Command::new("cp").arg("-r").arg(overlay(repo)).arg("-T").arg(root))?;
    run::output(Command::new("cp").arg("-r").arg(system_units(repo)).arg("-T").arg(root.join("etc/systemd/system")))?;
    fs::set_permissions(root.join("usr/local/sbin/guest-run"), fs::Permissions::from_mode(0o755))?;
    for folder in ["var/lib/systemd/linger", "var/log/journal", "in"] {
        fs::create_dir_all(root.join(folder))?;
    }
    // What `loginctl enable-linger` does, without a bus.
    fs::write(root.join("var/lib/systemd/linger").join(ACCOUNT), "")?;
    fs::write(root.join("etc/hostname"), "guest\n")?;
    fs::write(root.join("etc/machine-id"), "5f1a0c3e9b7d4e2f8a6c1d3b5e7f9a0b\n")?;
    fs::write(root.join("etc/fstab"), "")?;
    for folder in ["var/cache/apt", "var/lib/apt/lists"] {
        fs::remove_dir_all(root.join(folder))?;
    }
    let units = root.join("etc/systemd/system");
    for unit in MASKED {
        link("/dev/null", &units.join(unit))?;
    }
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    link("/etc/systemd/system/guest-run.service", &units.join("multi-user.target.wants/guest-run.service"))?;
    link("/lib/systemd/system/multi-user.target", &units.join("default.target"))
}

fn link(to: &str, at: &Path) -> Result<()> {
    let _absent = fs::remove_file(at);
    symlink(to, at).with_context(|| format!("linking {}", at.display()))
}

/// With a journal, because one scene cuts the power; MiB of room for state and the guest's own journal.
fn file_system(root: &Path, to: &Path) -> Result<()> {
    const ROOM: u64 = 512;
    let used = run::output(Command::new("du").arg("-sm").arg(root))?;
    let used: u64 = used.split_whitespace().next().and_then(|n| n.parse().ok()).context("du printed no number")?;
    let mut mke2fs = tool("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-J", "size=8", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1"]);
    run::output(mke2fs.arg("-d").arg(root).arg(to).arg(format!("{}M", used + ROOM))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_follows_what_is_in_the_overlay_and_nothing_else() {
        let repo = Repo::find().unwrap();
        assert_eq!(digest(&repo, "bookworm").unwrap(), digest(&repo, "bookworm").unwrap());
        assert_ne!(digest(&repo, "bookworm").unwrap(), digest(&repo, "trixie").unwrap());
    }

    #[test]
    fn files_are_found_at_any_depth_in_one_order() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        for name in ["z", "b/c/x", "a"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            files(folder.path()).unwrap().iter().map(|p| p.strip_prefix(folder.path()).unwrap().to_owned()).collect();
        assert_eq!(names, ["a", "b/c/x", "z"].map(PathBuf::from));
    }
}
