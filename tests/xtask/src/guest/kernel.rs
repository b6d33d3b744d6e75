//! Debian's kernel for virtual machines, unpacked and never installed, and an initramfs that loads all that the guest needs:
//! so the guest has neither udev nor modules of its own.

use super::tool;
use crate::run;
use crate::setup::{Install, debian};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// ext4 is built in; the disks and the ports are not.
pub const MODULES: &str = "virtio_pci virtio_blk virtio_console";

/// The whole of it: devices, modules, the disks of root and programs, and away. The programs must be there before the account's
/// manager starts a unit. Waits for the disks at most 10 s: their driver is loaded by then, and what is not there after that
/// does not come.
pub const INIT: &str = r#"#!/bin/busybox sh
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
for module in /modules/*.ko; do $B insmod $module; done
$B umount /proc
tries=0
while [ ! -b /dev/vdb ] && [ $tries -lt 500 ]; do $B usleep 20000; tries=$((tries+1)); done
$B mount -t ext4 -o rw,noatime /dev/vda /new || { echo "guest: no root file system"; $B reboot -f; }
$B mount -t ext4 -o ro /dev/vdb /new/in || echo "guest: no disk with programs"
$B mount --move /dev /new/dev
exec $B switch_root /new /sbin/init
"#;

/// Unpacked packages.
pub struct Fetched {
    kernel: PathBuf,
    busybox: PathBuf,
    version: String,
}

impl Fetched {
    /// The kernel itself.
    pub fn vmlinuz(&self) -> PathBuf {
        self.kernel.join("boot").join(format!("vmlinuz-{}", self.version))
    }
}

/// Downloads and unpacks kernel and busybox into `folder`.
pub fn fetch(install: Install, folder: &Path) -> Result<Fetched> {
    let package = package(install)?;
    let version = package.trim_start_matches("linux-image-").to_string();
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    // apt's own account may not write below our folder.
    let mut download = Command::new("apt-get");
    download.current_dir(folder).args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package, "busybox-static"]);
    run::run(&format!("downloading {package}"), &mut download)?;
    let fetched = Fetched { kernel: folder.join("linux"), busybox: folder.join("busybox"), version };
    unpack(folder, "linux-image-", &fetched.kernel)?;
    unpack(folder, "busybox-static_", &fetched.busybox)?;
    // The package has no modules.dep; its installation would have made one.
    run::output(tool("depmod").arg("-b").arg(&fetched.kernel).arg(&fetched.version))?;
    Ok(fetched)
}

/// The newest kernel for virtual machines of this release.
fn package(install: Install) -> Result<String> {
    let ask = || run::output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]));
    if let Ok(text) = ask()
        && let Some(package) = dependency(&text)
    {
        return Ok(package);
    }
    // The lists of packages may never have been fetched.
    debian::update(install)?;
    dependency(&ask()?).context("apt knows no kernel that linux-image-cloud-amd64 depends on; see `apt-cache policy`")
}

fn dependency(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "))?;
    line.starts_with("linux-image-").then(|| line.to_string())
}

fn unpack(folder: &Path, prefix: &str, to: &Path) -> Result<()> {
    let mut names = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let found = names.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    let Some(package) = found else { bail!("apt-get download left no {prefix}* in {}", folder.display()) };
    run::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(to)).map(drop)
}

/// Writes the initramfs. Not compressed: unpacking it under emulation costs more than reading it.
pub fn initramfs(fetched: &Fetched, folder: &Path, to: &Path) -> Result<()> {
    for name in ["bin", "modules", "dev", "proc", "new"] {
        fs::create_dir_all(folder.join(name))?;
    }
    for (number, module) in modules(fetched)?.iter().enumerate() {
        let name = Path::new(module).file_name().context("a module without a name")?.to_string_lossy();
        fs::copy(module, folder.join(format!("modules/{number:02}-{name}")))
            .with_context(|| format!("copying {module}"))?;
    }
    fs::copy(fetched.busybox.join("bin/busybox"), folder.join("bin/busybox")).context("copying busybox")?;
    fs::write(folder.join("init"), INIT)?;
    fs::set_permissions(folder.join("init"), fs::Permissions::from_mode(0o755))?;
    let archive = fs::File::create(to).with_context(|| format!("creating {}", to.display()))?;
    let mut cpio = Command::new("sh");
    cpio.current_dir(folder).args(["-c", "find . | cpio -o -H newc --quiet"]).stdout(archive).stdin(Stdio::null());
    let status = cpio.status().context("starting cpio")?;
    if !status.success() {
        bail!("cpio ended with {status}");
    }
    Ok(())
}

/// Files of the modules and of all that they need, in the order of loading.
fn modules(fetched: &Fetched) -> Result<Vec<String>> {
    let mut modprobe = tool("modprobe");
    modprobe.arg("-d").arg(&fetched.kernel).args(["-S", &fetched.version, "--show-depends", "-a"]);
    let text = run::output(modprobe.args(MODULES.split(' ')))?;
    let files = insmods(&text);
    if files.is_empty() {
        bail!("modprobe named no file for {MODULES}: {text}");
    }
    Ok(files)
}

fn insmods(text: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for file in text.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let file = file.trim().to_string();
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_two_others_need_is_loaded_once_and_before_both() {
        let text = "insmod /k/virtio.ko\ninsmod /k/blk.ko \nbuiltin ext4\ninsmod /k/virtio.ko\ninsmod /k/console.ko\n";
        assert_eq!(insmods(text), ["/k/virtio.ko", "/k/blk.ko", "/k/console.ko"]);
    }

    #[test]
    fn the_kernel_is_what_the_meta_package_depends_on() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-1-cloud-amd64\n";
        assert_eq!(dependency(text).unwrap(), "linux-image-6.1.0-1-cloud-amd64");
        assert_eq!(dependency("linux-image-cloud-amd64\n"), None);
    }
}
