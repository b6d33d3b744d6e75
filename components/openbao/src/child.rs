//! OpenBao as a child of the first-start task: it does not outlive the task.
//!
//! In service the supervisor's cgroup ends it when the task itself is killed; this guard is for all other ways out.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at the child; starting it takes about a second.
pub(crate) const LOOK: Duration = Duration::from_millis(25);

pub(crate) struct Bao {
    child: Child,
}

impl Bao {
    /// Starts it with the environment that the recipe gives it; its log goes where ours goes.
    pub(crate) fn spawn(
        argv: &[String],
        env: impl IntoIterator<Item = (String, String)>,
        cwd: &Path,
    ) -> io::Result<Bao> {
        let (program, args) = argv.split_first().ok_or_else(|| io::Error::other("an empty argv"))?;
        let child =
            Command::new(program).args(args).env_clear().envs(env).current_dir(cwd).stdin(Stdio::null()).spawn()?;
        Ok(Bao { child })
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// SIGTERM, then waits. None when it does not end within the limit.
    #[expect(clippy::disallowed_methods, reason = "our own child, not yet waited for: its pid cannot be another's")]
    pub(crate) async fn stop(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if self.ended()?.is_none() {
            kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM)?;
        }
        let began = Instant::now();
        loop {
            match self.ended()? {
                Some(status) => return Ok(Some(status)),
                None if began.elapsed() > limit => return Ok(None),
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }
}

impl Drop for Bao {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
