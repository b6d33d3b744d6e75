//! As a plain user under systemd our own cgroup is not ours to divide, and the daemon would fall back to a weaker way of
//! keeping processes together. So `up` starts itself once more in a scope of its own that is delegated to it.

use crate::run;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Set in the relaunched process, so that it does not relaunch itself again.
const MARK: &str = "SOCIALWEB_DELEGATED";

/// Becomes the relaunched `up` where that is needed and possible; otherwise returns.
pub fn ensure_delegated() -> Result<()> {
    if std::env::var_os(MARK).is_some() || nix::unistd::geteuid().is_root() || !user_manager_runs() {
        return Ok(());
    }
    let me = std::env::current_exe().context("finding our own program")?;
    println!("==> going on in a delegated systemd scope");
    let mut scope = Command::new("systemd-run");
    scope.args(["--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"]);
    let error = scope.arg(me).args(std::env::args_os().skip(1)).env(MARK, "1").exec();
    Err(error).context("relaunching by systemd-run --user --scope")
}

fn user_manager_runs() -> bool {
    let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") else { return false };
    Path::new(&runtime).join("systemd/private").exists() && run::on_path("systemd-run").is_some()
}
