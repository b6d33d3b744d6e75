//! Where things are.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The clone we work in.
#[derive(Debug, Clone)]
pub struct Repo {
    root: PathBuf,
}

impl Repo {
    /// The clone around the current folder.
    pub fn find() -> Result<Repo> {
        let here = std::env::current_dir().context("reading the current folder")?;
        for folder in here.ancestors() {
            if folder.join("tests/xtask/Cargo.toml").is_file() {
                return Ok(Repo { root: folder.to_path_buf() });
            }
        }
        bail!("{} is not inside a clone of socialweb-computer; change into one", here.display())
    }

    /// Its top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// What we make; ignored by git and safe to delete.
    pub fn build(&self) -> PathBuf {
        self.root.join("build")
    }

    /// The programs that a tenant needs.
    pub fn bin(&self) -> PathBuf {
        self.root.join("build/bin")
    }

    /// The Go module of upstream programs.
    pub fn upstream(&self) -> PathBuf {
        self.root.join("components/upstream")
    }

    /// The daemon's binary as cargo's `profile` folder ("debug", "release") has it.
    pub fn daemon(&self, profile: &str) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from);
        self.root.join(target).join(profile).join("socialweb-computer")
    }
}
