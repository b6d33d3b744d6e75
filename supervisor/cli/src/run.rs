//! `run`: the daemon.

use crate::args::RunArgs;
use socialweb_ctl::Exit;
use socialweb_daemon::RunOptions;

/// Runs the daemon until it is told to go down.
///
/// # Errors
/// What keeps it from coming up.
pub fn run(args: RunArgs) -> anyhow::Result<Exit> {
    let RunArgs { config, state_dir, runtime_dir, allow_tmpfs, cgroup, log } = args;
    socialweb_daemon::run(RunOptions { config, state_dir, runtime_dir, cgroup, allow_tmpfs, log })?;
    Ok(Exit::Done)
}
