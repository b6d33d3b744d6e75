//! Running other programs: say what, show how long, and name the whole command when it fails.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `command` with its output shown, and fails when it fails.
pub fn run(what: &str, command: &mut Command) -> Result<()> {
    println!("==> {what}");
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{what}: starting `{}`", line(command)))?;
    if !status.success() {
        bail!("{what}: `{}` ended with {status}", line(command));
    }
    println!("    {what}: done in {}", seconds(began.elapsed()));
    Ok(())
}

/// Runs `command` in silence and gives back what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("starting `{}`", line(command)))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` ended with {}: {}", line(command), out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs `command` and hands each line of its standard output on; gives back whether it succeeded.
pub fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting `{}`", line(command)))?;
    if let Some(out) = child.stdout.take() {
        each_line(out, &mut each);
    }
    Ok(child.wait().context("waiting for it")?.success())
}

/// Hands on each line, whatever bytes it has.
pub fn each_line(from: impl Read, mut each: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(from.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
        each(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
        bytes.clear();
    }
}

/// SIGTERM. The caller knows that the number still means the process it means: its own child, not waited for yet, or one
/// whose start time it has just compared.
pub fn terminate(pid: u32) -> Result<()> {
    let number = nix::unistd::Pid::from_raw(i32::try_from(pid).context("a pid beyond the kernel's own limit")?);
    #[allow(clippy::disallowed_methods)]
    nix::sys::signal::kill(number, nix::sys::signal::Signal::SIGTERM)
        .with_context(|| format!("sending SIGTERM to process {pid}"))
}

/// The program as PATH finds it.
pub fn on_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let executable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(executable)
}

/// A duration as people read it.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        s => format!("{} min {:02} s", s / 60, s % 60),
    }
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("exit status: 3") && error.contains("broken"), "{error}");
    }

    #[test]
    fn lines_are_handed_on_even_without_a_last_newline_or_with_bytes_that_are_no_text() {
        let mut seen = Vec::new();
        each_line(&b"one\ntw\xff\nthree"[..], |l| seen.push(l.to_string()));
        assert_eq!(seen, ["one", "tw\u{fffd}", "three"]);
    }

    #[test]
    fn a_folder_or_a_plain_file_is_no_program() {
        assert!(on_path("sh").is_some());
        assert!(on_path("no-such-program-anywhere").is_none());
    }
}
