//! `config check` and `config schema`.

use crate::args::{ConfigVerb, SchemaOf};
use anyhow::Context;
use socialweb_ctl::Exit;
use socialweb_daemon::config::{Env, FileKind, Inputs, Overrides, Severity, check, schema};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Runs one of both.
///
/// # Errors
/// When the answer cannot be printed.
pub fn run(verb: ConfigVerb) -> anyhow::Result<Exit> {
    match verb {
        ConfigVerb::Check { config, state_dir, runtime_dir } => check_files(&config, state_dir, runtime_dir),
        ConfigVerb::Schema { kind } => print_schema(kind),
    }
}

/// One finding a line; an error among them is exit code 1.
fn check_files(config: &Path, state_dir: Option<PathBuf>, runtime_dir: Option<PathBuf>) -> anyhow::Result<Exit> {
    let own_exe = std::env::current_exe().context("cannot find out where this program is")?;
    let flags = Overrides { state_dir, runtime_dir, ..Overrides::default() };
    let (env, known) = (Env::of_this_process(), BTreeSet::new());
    let findings =
        check(&Inputs { file: config, env: &env, flags: &flags, known: &known, may_be_empty: false }, &own_exe);
    let text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let broken = findings.iter().any(|finding| finding.severity == Severity::Error);
    crate::print(if broken { text } else { format!("{text}{}: in order\n", config.display()) })?;
    Ok(if broken { Exit::Failed } else { Exit::Done })
}

fn print_schema(kind: SchemaOf) -> anyhow::Result<Exit> {
    let kind = match kind {
        SchemaOf::Supervisor => FileKind::Supervisor,
        SchemaOf::Cluster => FileKind::Cluster,
    };
    let text = serde_json::to_string_pretty(&schema(kind)).context("cannot write the schema")?;
    crate::print(text + "\n")?;
    Ok(Exit::Done)
}
