//! `internal kine-exec --dsn-file FILE -- kine ARGS...`: becomes kine, with the DSN in its environment.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// kine reads its endpoint from here when no `--endpoint` is given (pkg/app/app.go of v0.17.5). Only the same account can
/// read another process's environment; everybody can read its arguments.
const VARIABLE: &str = "KINE_ENDPOINT";

/// Why this process could not become kine.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The file cannot be read.
    #[error("cannot read the DSN file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Others can read the file.
    #[error("the DSN file {path} has mode {mode:o}; it may hold a password: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The content is no DSN of a kind that kine can share between hosts.
    #[error("the DSN file {path} must hold one line that begins with postgres:// or mysql://")]
    NotADsn {
        /// The file.
        path: PathBuf,
    },
    /// No program was named.
    #[error("no program is named after --")]
    NoProgram,
    /// The program could not be executed.
    #[error("cannot execute {program}")]
    Exec {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Replaces this process by `argv` with the DSN from `file` in its environment. Returns only when that failed.
pub fn exec_with_dsn(file: &Path, argv: &[String]) -> ExecError {
    let dsn = match read_dsn(file) {
        Ok(dsn) => dsn,
        Err(e) => return e,
    };
    let Some((program, args)) = argv.split_first() else { return ExecError::NoProgram };
    let source = Command::new(program).args(args).env(VARIABLE, dsn).exec();
    ExecError::Exec { program: program.clone(), source }
}

fn read_dsn(file: &Path) -> Result<String, ExecError> {
    let read = |source| ExecError::Read { path: file.into(), source };
    let mode = std::fs::metadata(file).map_err(read)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ExecError::Open { path: file.into(), mode });
    }
    let text = std::fs::read_to_string(file).map_err(read)?;
    let dsn = text.trim();
    let known = dsn.starts_with("postgres://") || dsn.starts_with("postgresql://") || dsn.starts_with("mysql://");
    if !known || dsn.lines().count() != 1 {
        return Err(ExecError::NotADsn { path: file.into() });
    }
    Ok(dsn.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn a_dsn_file_is_one_private_line_of_a_known_kind() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("dsn");
        let write = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            read_dsn(&file)
        };
        assert_eq!(write("postgres://u:p@h/db\n", 0o600).unwrap(), "postgres://u:p@h/db");
        assert!(matches!(write("postgres://u:p@h/db\n", 0o640), Err(ExecError::Open { mode: 0o640, .. })));
        assert!(matches!(write("", 0o600), Err(ExecError::NotADsn { .. })));
        assert!(matches!(write("mysql://a\nb", 0o600), Err(ExecError::NotADsn { .. })));
        let bad = write("oracle://secret", 0o600).unwrap_err();
        assert!(!bad.to_string().contains("secret"));
        fs::remove_file(&file).unwrap();
        assert!(matches!(read_dsn(&file), Err(ExecError::Read { .. })));
    }
}
