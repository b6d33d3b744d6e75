//! `bump-kube`: prepares an upgrade of Kubernetes. Works on a copy of components/upstream and copies back only what resolves.

use crate::repo::Repo;
use crate::run;
use crate::setup::go;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// `cargo x bump-kube 1.37` or `1.37.0`.
pub fn bump(wanted: &str) -> Result<()> {
    let repo = Repo::find()?;
    let known = run::output(go::go(&repo).args(["list", "-m", "-versions", "k8s.io/kubernetes"]))?;
    let version = choose(wanted, &known)?;
    let copy = repo.build().join("bump-kube");
    let _absent = fs::remove_dir_all(&copy);
    copy_folder(&repo.upstream(), &copy)?;
    println!("==> resolving Kubernetes {version} in {}", copy.display());
    resolve(&copy, &version)?;
    let pins = repo.upstream().join("pins.toml");
    let old = fs::read_to_string(&pins).with_context(|| format!("reading {}", pins.display()))?;
    let new = pinned(&old, &version)?;
    for name in ["go.mod", "go.sum"] {
        let (from, to) = (copy.join(name), repo.upstream().join(name));
        let content = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        fs::write(&to, content).with_context(|| format!("writing {}", to.display()))?;
    }
    fs::write(&pins, new).with_context(|| format!("writing {}", pins.display()))?;
    fs::remove_dir_all(&copy)?;
    println!("\nwhat changed:");
    run::run(
        "git diff",
        Command::new("git").current_dir(repo.upstream()).args(["--no-pager", "diff", "--stat", "--", "."]),
    )?;
    println!(
        "\nnext: read Kubernetes {version}'s changes to kube-apiserver flags, then cargo x test --full, then cargo x bench"
    );
    Ok(())
}

/// The exact version if it exists, or the newest patch of X.Y. Versions under test (-alpha, -rc) are never chosen for X.Y.
fn choose(wanted: &str, known: &str) -> Result<String> {
    let wanted = wanted.trim_start_matches('v');
    let known: Vec<&str> = known.split_whitespace().filter_map(|word| word.strip_prefix('v')).collect();
    if known.contains(&wanted) {
        return Ok(wanted.to_string());
    }
    let patch = |version: &&str| version.strip_prefix(wanted)?.strip_prefix('.')?.parse::<u32>().ok();
    let newest = known.into_iter().filter_map(|version| Some((patch(&version)?, version))).max();
    let (_, version) = newest.with_context(|| format!("no Kubernetes {wanted} is published; give X.Y or X.Y.Z"))?;
    Ok(version.to_string())
}

/// Sets the one module and each staging replacement, then lets Go resolve the rest.
fn resolve(module: &Path, version: &str) -> Result<()> {
    let go = || {
        let mut command = Command::new("go");
        command.current_dir(module).env("GOWORK", "off").env("GOFLAGS", "-mod=mod");
        command
    };
    let json = |command: &mut Command| -> Result<serde_json::Value> {
        let text = run::output(command)?;
        serde_json::from_str(&text).with_context(|| format!("reading what `{}` said", run::line(command)))
    };
    let kubernetes = format!("k8s.io/kubernetes@v{version}");
    let its_mod = json(go().args(["mod", "download", "-json", &kubernetes]))?;
    let its_mod = its_mod["GoMod"].as_str().context("`go mod download` named no go.mod")?;
    let new = staging(&json(go().args(["mod", "edit", "-json", its_mod]))?);
    if new.is_empty() {
        bail!("{kubernetes} replaces no module by ./staging/...; its layout changed, see how it publishes them now");
    }
    let old = own_replacements(&json(go().args(["mod", "edit", "-json"]))?);
    let staged = format!("v0.{}", version.split_once('.').context("a version is X.Y.Z")?.1);
    let mut edit = go();
    edit.args(["mod", "edit", &format!("-require={kubernetes}")]);
    edit.args(old.iter().filter(|path| !new.contains(path)).map(|path| format!("-dropreplace={path}")));
    edit.args(new.iter().map(|path| format!("-replace={path}={path}@{staged}")));
    run::run("go mod edit", &mut edit).with_context(|| format!("moving {} modules to {staged}", new.len()))?;
    run::run("go mod tidy", go().args(["mod", "tidy"]))
}

/// Kubernetes' staging modules, as its own go.mod tells: those that it replaces by folders of its own.
fn staging(kubernetes: &serde_json::Value) -> Vec<String> {
    replacements(kubernetes, |_, new| new.starts_with("./staging/"))
}

/// What our go.mod replaces by another version of itself: the staging modules of the version before.
fn own_replacements(ours: &serde_json::Value) -> Vec<String> {
    replacements(ours, |old, new| old == new && old.starts_with("k8s.io/"))
}

fn replacements(module: &serde_json::Value, fits: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let pairs = module["Replace"].as_array().into_iter().flatten();
    let pairs = pairs.filter_map(|r| Some((r["Old"]["Path"].as_str()?, r["New"]["Path"].as_str()?)));
    pairs.filter(|(old, new)| fits(old, new)).map(|(old, _)| old.to_string()).collect()
}

/// pins.toml with the new version; comments and order stay.
fn pinned(text: &str, version: &str) -> Result<String> {
    let mut seen = false;
    let lines = text.lines().map(|line| match line.split_once('=') {
        Some((key, rest)) if key.trim() == "kubernetes" => {
            seen = true;
            let v = if rest.trim_start().starts_with("\"v") { "v" } else { "" };
            let comment = rest.split_once('#').map_or(String::new(), |(_, comment)| format!(" #{comment}"));
            format!("{key}= \"{v}{version}\"{comment}")
        }
        _ => line.to_string(),
    });
    let new = lines.collect::<Vec<_>>().join("\n") + "\n";
    if !seen {
        bail!("pins.toml has no line kubernetes = \"X.Y.Z\"");
    }
    Ok(new)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry?.path();
        let copy = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else {
            // Written, not copied: a read-only original must not make a copy that Go cannot change.
            fs::write(&copy, fs::read(&path)?).with_context(|| format!("writing {}", copy.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_patch_is_chosen_by_number_and_never_a_release_candidate() {
        let known = "k8s.io/kubernetes v1.36.9 v1.36.10 v1.37.0-rc.1 v1.37.0 v1.3.7\n";
        assert_eq!(choose("1.36", known).unwrap(), "1.36.10");
        assert_eq!(choose("v1.36.9", known).unwrap(), "1.36.9");
        assert_eq!(choose("1.37", known).unwrap(), "1.37.0");
        assert!(choose("1.99", known).is_err());
    }

    #[test]
    fn staging_modules_are_those_that_kubernetes_itself_replaces_by_its_folders() {
        let kubernetes = serde_json::json!({"Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "github.com/a/b"}, "New": {"Path": "github.com/c/b", "Version": "v1.0.0"}}]});
        assert_eq!(staging(&kubernetes), ["k8s.io/api"]);
        let ours = serde_json::json!({"Replace": [
            {"Old": {"Path": "k8s.io/gone"}, "New": {"Path": "k8s.io/gone", "Version": "v0.36.3"}},
            {"Old": {"Path": "github.com/a/d"}, "New": {"Path": "github.com/a/d", "Version": "v1.0.0"}}]});
        assert_eq!(own_replacements(&ours), ["k8s.io/gone"]);
    }

    #[test]
    fn the_pin_changes_and_all_else_in_the_file_stays() {
        let old = "# pins\nkubernetes = \"1.36.3\" # why\nkine = \"0.17.5\"\n";
        assert_eq!(pinned(old, "1.37.0").unwrap(), "# pins\nkubernetes = \"1.37.0\" # why\nkine = \"0.17.5\"\n");
        assert!(pinned("kine = \"1\"\n", "1.37.0").is_err());
    }
}
