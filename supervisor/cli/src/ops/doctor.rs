//! `ctl doctor`.

use super::{look, whole};
use socialweb_ctl::{Ctl, Exit, render};
use socialweb_daemon::doctor;
use socialweb_wire::Health;
use std::path::PathBuf;

/// Looks at the host and says what is wrong; a failure among it is exit code 1.
pub(super) async fn run(ctl: &Ctl, config: Option<PathBuf>) -> anyhow::Result<Exit> {
    let found = look(ctl, config).await;
    let report = doctor::examine(&found.place);
    crate::print(whole(ctl.output, &report, || render::check::report(&report))?)?;
    Ok(if report.health == Health::Fail { Exit::Failed } else { Exit::Done })
}
