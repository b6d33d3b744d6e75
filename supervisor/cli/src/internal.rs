//! Programs of a group, started by the daemon, and of its unit, started by systemd. Their output is the component's log, or the
//! unit's.

use crate::args::Internal;
use crate::{block_on, print, replay};
use socialweb_ctl::Exit;
use socialweb_daemon::drill::child::Program;
use socialweb_k3s::{BringUp, bring_up};
use socialweb_openbao::{FirstStart, Outcome, Ports, first_start};
use socialweb_sys::cgroup::{release_all, unit_of_helper};
use std::path::{Path, PathBuf};

/// Runs one.
///
/// # Errors
/// Why the task is not done; the daemon shows it as the component's last words.
pub fn run(task: Internal) -> anyhow::Result<Exit> {
    match task {
        Internal::TenantCredentials { group_dir } => tenant_credentials(&group_dir),
        Internal::KineExec { dsn_file, argv } => Err(socialweb_kine::exec_with_dsn(&dsn_file, &argv).into()),
        Internal::OpenbaoFirstStart { group_dir, binary, api_port, cluster_port } => {
            openbao_first_start(FirstStart { binary, group_dir, ports: Ports { api: api_port, cluster: cluster_port } })
        }
        Internal::BringUp { group_dir, cluster, https_port, openbao_port } => {
            make_cluster(group_dir, cluster, https_port, openbao_port)
        }
        Internal::ReleaseControllers => release_controllers(),
        Internal::DrillChild { case, token, role, cgroup } => {
            Program { case, token, role, cgroup }.run()?;
            Ok(Exit::Done)
        }
        Internal::Replay { file, last } => replay::run(&file, last),
    }
}

fn tenant_credentials(group_dir: &Path) -> anyhow::Result<Exit> {
    let report = socialweb_credentials::ensure(group_dir)?;
    let mut text = String::new();
    for name in &report.created {
        text.push_str(&format!("made {name}\n"));
    }
    for (name, why) in &report.renewed {
        text.push_str(&format!("renewed {name}: {why}\n"));
    }
    text.push_str("the credentials are in order\n");
    print(text)?;
    Ok(Exit::Done)
}

fn openbao_first_start(task: FirstStart) -> anyhow::Result<Exit> {
    let outcome = block_on(async { Ok(first_start(&task).await?) })?;
    print(match outcome {
        Outcome::AlreadyDone => "the vault was there\n",
        Outcome::Made => "the vault is made and proven\n",
    })?;
    Ok(Exit::Done)
}

/// The next daemon's start must not fail because of what the last one left in the unit's cgroup.
fn release_controllers() -> anyhow::Result<Exit> {
    let unit = unit_of_helper().map_err(anyhow::Error::msg)?;
    let problems = release_all(&unit);
    for problem in &problems {
        let cause = std::error::Error::source(problem).map(|cause| format!(" ({cause})")).unwrap_or_default();
        print(format!("{problem}{cause}\n"))?;
    }
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Failed })
}

fn make_cluster(group_dir: PathBuf, cluster: String, https_port: u16, openbao_port: u16) -> anyhow::Result<Exit> {
    let program = std::env::current_exe()?;
    let task = BringUp { program, group_dir, cluster, https_port, openbao_port };
    let done = block_on(async { Ok(bring_up(&task).await?) })?;
    print(format!(
        "{} answers, with the namespaces {}; the operator's kubeconfig is {}\n",
        done.url,
        done.namespaces.join(" "),
        done.kubeconfig.display()
    ))?;
    Ok(Exit::Done)
}
