//! One boot of the guest: what it is given, how long it may take, and what comes back.
//!
//! No network and no shared folder: programs come on a second disk, the plan on a third, lines go out by one virtio port as
//! they are printed and files by another, as a tar.

use super::{image::Image, tool};
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// QEMU's word for the machine. The smaller microvm hung at every second boot; q35 never did.
const MACHINE: &[&str] = &["-M", "q35", "-cpu", "max", "-smp", "2", "-accel", "tcg,thread=multi"];
const NOTHING_ELSE: &[&str] = &["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"];
/// panic=-1 and reboot=t: whatever goes wrong, QEMU ends. The others take away what only costs time under emulation.
const KERNEL_LINE: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nokaslr tsc=reliable \
                           no_timer_check random.trust_cpu=on";

/// The root file system of a machine.
#[derive(Debug)]
pub enum Disk {
    /// The image itself; what is written is forgotten.
    Forgotten(PathBuf),
    /// A copy that outlives a boot.
    Kept(PathBuf),
}

impl Disk {
    /// A disk for a scene of so many boots; a kept one is a sparse copy in `folder`.
    pub fn of(image: &Image, boots: usize, folder: &Path) -> Result<Disk> {
        if boots == 1 {
            return Ok(Disk::Forgotten(image.root()));
        }
        let copy = folder.join("root.ext4");
        run::output(Command::new("cp").arg("--sparse=always").arg(image.root()).arg(&copy))?;
        Ok(Disk::Kept(copy))
    }

    fn drive(&self) -> String {
        // unsafe: the guest's flushes stop at this machine's memory, which no scene takes away.
        match self {
            Disk::Forgotten(path) => format!("if=none,id=root,file={},format=raw,snapshot=on", path.display()),
            Disk::Kept(path) => format!("if=none,id=root,file={},format=raw,cache=unsafe", path.display()),
        }
    }
}

/// How a boot ends when its tests passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At once; nothing comes after it.
    Off,
    /// By `systemctl reboot`.
    Reboot,
    /// Without a word.
    Cut,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            End::Off => "off",
            End::Reboot => "reboot",
            End::Cut => "cut",
        }
    }
}

/// What one boot is to do.
#[derive(Debug)]
pub struct Plan {
    /// Full names of tests.
    pub tests: Vec<String>,
    /// Also the long parts.
    pub full: bool,
    /// How it ends.
    pub end: End,
    /// For the tests; the boot and its end get [`AROUND`] besides.
    pub limit: Duration,
}

/// What a boot and its end may take on a machine that is slow: 12 s each on a quiet one. An orderly reboot may wait for
/// every unit's own time limit.
const AROUND: Duration = Duration::from_secs(600);

impl Plan {
    /// As the guest's runner reads it. Names of tests are words of letters, digits, `_` and `:`.
    fn text(&self) -> String {
        let full = if self.full { "1" } else { "" };
        let (tests, limit, end) = (self.tests.join(" "), self.limit.as_secs(), self.end.word());
        format!("TESTS='{tests}'\nFULL={full}\nLIMIT={limit}\nEND={end}\n")
    }
}

/// A boot about to be.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The image.
    pub image: &'a Image,
    /// Its root.
    pub disk: &'a Disk,
    /// The programs' disk.
    pub programs: &'a Path,
    /// Memory in MiB.
    pub memory: u32,
    /// Where console and files go.
    pub folder: PathBuf,
}

impl Boot<'_> {
    /// Boots, hands on each line, and returns when QEMU is gone; files that the guest sent are in `folder`/files.
    ///
    /// # Errors
    /// QEMU failed or was ended by the time limit; the console is in `folder`.
    pub fn run(&self, plan: &Plan, mut each: impl FnMut(&str)) -> Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| format!("creating {}", self.folder.display()))?;
        let mut text = plan.text().into_bytes();
        text.resize(text.len().next_multiple_of(64 << 10), 0);
        fs::write(self.folder.join("plan"), text)?;
        let (said, files) = (self.folder.join("qemu.txt"), self.folder.join("files.tar"));
        let mut qemu = self.command(plan.limit + AROUND);
        qemu.stdin(Stdio::null()).stderr(fs::File::create(&said)?);
        let mut kept = fs::File::create(self.folder.join("said.txt"))?;
        let good = run::lines(&mut qemu, |line| {
            // What is shown counts more than what is kept.
            let _ = writeln!(kept, "{line}");
            each(line);
        })?;
        self.unpack(&files)?;
        if !good {
            let said = fs::read_to_string(said).unwrap_or_default();
            bail!("the machine failed or took too long; its console is {}\n{said}", self.console().display());
        }
        Ok(())
    }

    /// What the kernel printed.
    pub fn console(&self) -> PathBuf {
        self.folder.join("console.txt")
    }

    fn unpack(&self, tar: &Path) -> Result<()> {
        let to = self.folder.join("files");
        fs::create_dir_all(&to)?;
        if fs::metadata(tar).is_ok_and(|m| m.len() > 0) {
            // A guest that was ended in the middle sent a part; what is whole in it is kept.
            let _part = run::output(Command::new("tar").arg("-C").arg(&to).arg("-xf").arg(tar));
        }
        Ok(())
    }

    fn command(&self, limit: Duration) -> Command {
        let seconds = limit.as_secs().to_string();
        let mut qemu = tool("timeout");
        qemu.args(["--foreground", "-k", "10", &seconds, "qemu-system-x86_64"]).args(MACHINE).args(NOTHING_ELSE);
        qemu.arg("-m").arg(self.memory.to_string());
        qemu.arg("-kernel").arg(self.image.kernel()).arg("-initrd").arg(self.image.initrd());
        qemu.args(["-append", KERNEL_LINE]).arg("-serial").arg(format!("file:{}", self.console().display()));
        let disk = |id: &str, file: &Path| format!("if=none,id={id},file={},format=raw,readonly=on", file.display());
        let drives = [self.disk.drive(), disk("programs", self.programs), disk("plan", &self.folder.join("plan"))];
        for (id, drive) in ["root", "programs", "plan"].into_iter().zip(drives) {
            qemu.arg("-drive").arg(drive).arg("-device").arg(format!("virtio-blk-pci,drive={id}"));
        }
        qemu.args(["-device", "virtio-serial-pci"]);
        // Our own end of a pipe: a file would be overwritten from its start, and stdio closes the port when stdin ends.
        let out = self.folder.join("files.tar").display().to_string();
        for (id, path) in [("out", out.as_str()), ("log", "/dev/fd/1")] {
            qemu.arg("-chardev").arg(format!("file,id={id},path={path}"));
            qemu.arg("-device").arg(format!("virtserialport,chardev={id},name={id}"));
        }
        qemu
    }
}

/// Makes a read-only file system of a folder, with room for its own tables.
pub fn disk_of(folder: &Path, to: &Path) -> Result<()> {
    let used = run::output(Command::new("du").arg("-smL").arg(folder))?;
    let used: u64 = used.split_whitespace().next().and_then(|n| n.parse().ok()).context("du printed no number")?;
    let _old = fs::remove_file(to);
    let mut mke2fs = tool("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d"]).arg(folder).arg(to);
    run::output(mke2fs.arg(format!("{}M", used + used / 20 + 16))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_what_a_shell_reads() {
        let plan =
            Plan { tests: vec!["a::b".into(), "c".into()], full: true, end: End::Cut, limit: Duration::from_secs(5) };
        assert_eq!(plan.text(), "TESTS='a::b c'\nFULL=1\nLIMIT=5\nEND=cut\n");
    }
}
