//! kine and kube-server, from the one Go module of pinned upstreams: one build for both, skipped when nothing changed.

use super::{Pins, Server};
use crate::repo::Repo;
use crate::run;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often a long build says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The cold build of both, on 2 cores: 8 to 13 minutes; said beforehand, so that nobody thinks it hangs.
const COLD: &str = "the first time takes 8 to 13 minutes on 2 cores";

/// Sees that build/bin has kine, and kube-server unless there is a k3s.
pub fn ensure(repo: &Repo, pins: &Pins, server: &Server) -> Result<()> {
    let programs: &[(&str, &str)] = match server {
        Server::K3s(_) => &[("kine", "github.com/k3s-io/kine")],
        Server::KubeServer => &[("kine", "github.com/k3s-io/kine"), ("kube-server", "./kube-server")],
    };
    let _one_at_a_time = lock(repo)?;
    let key = key(repo, programs)?;
    let stamp = repo.bin().join("go.stamp");
    let there = programs.iter().all(|(program, _)| repo.bin().join(program).is_file());
    if there && fs::read_to_string(&stamp).is_ok_and(|have| have == key) {
        return Ok(());
    }
    let _absent = fs::remove_file(&stamp);
    build(repo, pins, programs)?;
    fs::write(&stamp, key).with_context(|| format!("writing {}", stamp.display()))
}

/// Two Go builds at once would do the same work twice; whoever comes second waits for the first.
pub fn lock(repo: &Repo) -> Result<fs::File> {
    fs::create_dir_all(repo.build())?;
    let file = fs::File::create(repo.build().join("go.lock")).context("creating build/go.lock")?;
    if file.try_lock().is_err() {
        println!("    waiting for another Go build in this clone");
        file.lock().context("locking build/go.lock")?;
    }
    Ok(file)
}

/// `go` in the upstream module, as every verb calls it.
pub fn go(repo: &Repo) -> Command {
    let mut command = Command::new("go");
    command.current_dir(repo.upstream()).env("CGO_ENABLED", "1").env("GOWORK", "off");
    command
}

fn version(repo: &Repo) -> Result<String> {
    run::output(go(repo).arg("version")).context(
        "Go is needed to build kine and kube-server: put go on PATH (components/upstream/go.mod names the version), \
         or put k3s on PATH and kine into build/bin",
    )
}

/// Everything that the binaries depend on, as one hash.
fn key(repo: &Repo, programs: &[(&str, &str)]) -> Result<String> {
    let mut files = Vec::new();
    sources(&repo.upstream(), &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    hash.update(version(repo)?);
    hash.update(format!("{programs:?}"));
    for file in files {
        let content = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        hash.update(format!("{}\0{}\0", file.display(), content.len()));
        hash.update(content);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            sources(&path, into)?;
        } else if !name.ends_with("_test.go") && !name.ends_with(".md") {
            // Not only *.go: kube-server embeds files of default arguments.
            into.push(path);
        }
    }
    Ok(())
}

fn ldflags(pins: &Pins) -> Result<String> {
    let (major, minor) = pins.kubernetes_parts()?;
    // Without these kubectl version fails on a placeholder.
    let kube = "k8s.io/component-base/version";
    let kine = "github.com/k3s-io/kine/pkg/version";
    Ok(format!(
        "-s -w -X {kube}.gitVersion=v{} -X {kube}.gitMajor={major} -X {kube}.gitMinor={minor} -X {kine}.Version=v{}",
        pins.kubernetes, pins.kine
    ))
}

fn build(repo: &Repo, pins: &Pins, programs: &[(&str, &str)]) -> Result<()> {
    let names = programs.iter().map(|(program, _)| *program).collect::<Vec<_>>().join(" and ");
    println!("==> building {names} ({COLD})");
    let began = Instant::now();
    let mut command = go(repo);
    command.args(["build", "-v", "-trimpath", "-mod=readonly", "-tags", &pins.go_tags, "-ldflags", &ldflags(pins)?]);
    // The trailing slash makes it a folder for several programs.
    command.arg("-o").arg(repo.bin().join("")).args(programs.iter().map(|(_, package)| package));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("starting go build")?;
    let mut last = VecDeque::new();
    if let Some(err) = child.stderr.take() {
        show(err, &mut last, began);
    }
    if !child.wait().context("waiting for go build")?.success() {
        bail!("go build failed; its last lines:\n{}", Vec::from(last).join("\n"));
    }
    println!("    building {names}: done in {}", run::seconds(began.elapsed()));
    Ok(())
}

/// `go build -v` names each package as it is compiled: counted, and the last lines kept for an error.
fn show(err: impl std::io::Read, last: &mut VecDeque<String>, began: Instant) {
    let mut said = Instant::now();
    let mut packages = 0;
    run::each_line(err, |line| {
        packages += 1;
        if last.len() == 30 {
            last.pop_front();
        }
        last.push_back(line.to_string());
        if said.elapsed() >= HEARTBEAT {
            said = Instant::now();
            println!("    go build: {packages} packages, {}, now {line}", run::seconds(began.elapsed()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_pins() {
        let pins =
            Pins { kubernetes: "1.37.0".into(), kine: "0.18.0".into(), openbao: "2".into(), go_tags: String::new() };
        let flags = ldflags(&pins).unwrap();
        for part in ["gitVersion=v1.37.0", "gitMajor=1", "gitMinor=37", "Version=v0.18.0"] {
            assert!(flags.contains(part), "{flags}");
        }
    }
}
