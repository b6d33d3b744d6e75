//! docs/promises.md: each promise names what proves it, and what it names exists.
//!
//! The last cell of a table's row is its proof. In it each code span is one of
//!
//! - a path from the root, alone or followed by names of tests: `tests/host/control.rs a_source_that_*`. The path is there,
//!   and each name, in which `*` stands for any characters, is the name of a test in that file, or in some file below that
//!   folder;
//! - a command: `cargo x bench spawn`.
//!
//! A row without a span says why: its proof begins with `cannot happen:` or `comes with:` and a reason. Every law has a row.

use super::Outcome;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/promises.md";

/// The laws are numbered from 1 to this.
const LAWS: u32 = 14;

/// What a row may say instead of naming a proof.
const EXCUSES: [&str; 2] = ["cannot happen: ", "comes with: "];

/// The step of `cargo x check`.
pub fn verify(repo: &Repo) -> Result<Outcome> {
    let text = fs::read_to_string(repo.path(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let faults = faults(&text, &|path| look(repo, path));
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(|(line, what)| format!("  {PAGE}:{line}: {what}")).collect();
        bail!("{} promises without their proof:\n{}", faults.len(), lines.join("\n"));
    }
    Ok(Outcome::Good)
}

/// What is under a path.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The tests in the file or below the folder.
    Tests(BTreeSet<String>),
}

fn look(repo: &Repo, path: &str) -> Found {
    let full = repo.path(path);
    if !full.exists() {
        return Found::Nothing;
    }
    let mut tests = BTreeSet::new();
    collect(&full, &mut tests);
    Found::Tests(tests)
}

fn collect(path: &Path, tests: &mut BTreeSet<String>) {
    if let Ok(entries) = fs::read_dir(path) {
        entries.flatten().for_each(|entry| collect(&entry.path(), tests));
    } else if path.extension().is_some_and(|e| e == "rs" || e == "go") {
        tests.extend(tests_in(&fs::read_to_string(path).unwrap_or_default()));
    }
}

/// Names of the tests in a file of Rust or Go: a function under a test attribute, `func TestX`, and a function whose name a
/// macro at the start of a line is given first (`in_worlds!(name: ...)` makes a test of it in each world).
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.contains("::test");
        } else if let Some(name) = function(line) {
            if std::mem::take(&mut is_test) || name.starts_with("Test") {
                tests.insert(name.to_string());
            }
        } else if !line.starts_with("//") {
            is_test = false;
        }
    }
    let functions: BTreeSet<&str> = text.lines().filter_map(function).collect();
    tests.extend(text.lines().filter_map(made_by_macro).filter(|name| functions.contains(name)).map(str::to_string));
    tests
}

fn made_by_macro(line: &str) -> Option<&str> {
    let (name, arguments) = line.split_once("!(")?;
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let first = arguments.split([':', ',', ')']).next()?;
    (word(name) && word(first)).then_some(first)
}

fn function(line: &str) -> Option<&str> {
    let line = ["pub ", "async "].iter().fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    let rest = line.strip_prefix("fn ").or_else(|| line.strip_prefix("func "))?;
    rest.split(['(', '<']).next()
}

/// Each fault with its line.
fn faults(page: &str, look: &dyn Fn(&str) -> Found) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut laws = BTreeSet::new();
    for (number, cells) in rows(page) {
        laws.insert(cells[0].clone());
        let proof = cells.last().map_or("", String::as_str);
        found.extend(faults_of(proof, look).into_iter().map(|what| (number, what)));
    }
    let missing = (1..=LAWS).map(|n| format!("L{n}")).filter(|law| !laws.contains(law));
    found.extend(missing.map(|law| (0, format!("law {law} has no row"))));
    found
}

/// The rows of all tables below their heads, with the numbers of their lines.
fn rows(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut rows = Vec::new();
    let mut in_body = false;
    for (i, line) in page.lines().enumerate() {
        let Some(inner) = line.trim().strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
            in_body = false;
            continue;
        };
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_string()).collect();
        if cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            in_body = true;
        } else if in_body {
            rows.push((i + 1, cells));
        }
    }
    rows
}

fn faults_of(proof: &str, look: &dyn Fn(&str) -> Found) -> Vec<String> {
    let spans: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
    let excused = EXCUSES.iter().any(|excuse| proof.strip_prefix(excuse).is_some_and(|why| !why.trim().is_empty()));
    if spans.is_empty() && !excused {
        return vec![format!(
            "{proof:?} names no proof; write `path test_name`, or begin with {:?} or {:?} and say why",
            EXCUSES[0], EXCUSES[1]
        )];
    }
    spans.iter().filter(|span| !span.starts_with("cargo ")).flat_map(|span| faults_of_span(span, look)).collect()
}

fn faults_of_span(span: &str, look: &dyn Fn(&str) -> Found) -> Vec<String> {
    let mut words = span.split_whitespace();
    let path = words.next().unwrap_or_default();
    let Found::Tests(tests) = look(path) else {
        return vec![format!("`{path}` is no file or folder of this repository")];
    };
    let absent = words.filter(|pattern| !tests.iter().any(|test| fits(pattern, test)));
    absent.map(|pattern| format!("`{path}` has no test {pattern}")).collect()
}

/// `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => {
            let Some(tail) = name.strip_prefix(head) else { return false };
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| fits(rest, &tail[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
#[test]
fn a_plain_one() {
#[tokio::test(flavor = \"x\")]
#[cfg(unix)]
/// Why it is there.
async fn one_that_waits<T>() {
fn no_test() {
#[derive(Debug)]
struct Between;
fn no_test_either() {
// #[test]
fn no_longer_one() {
func TestGo(t *testing.T) {
func helper() {
in_worlds!(one_in_many_worlds: with_cgroups,
fn one_in_many_worlds(stage: Stage) {
other_macro!(not_a_function: x);
";

    #[test]
    fn only_tests_are_taken_for_tests() {
        let names: Vec<String> = tests_in(FILE).into_iter().collect();
        assert_eq!(names, ["TestGo", "a_plain_one", "one_in_many_worlds", "one_that_waits"]);
    }

    fn world(path: &str) -> Found {
        match path {
            "tests/a.rs" => Found::Tests(tests_in(FILE)),
            _ => Found::Nothing,
        }
    }

    fn check(proof: &str, want: &[&str]) {
        let got = faults_of(proof, &world);
        assert_eq!(got.len(), want.len(), "{proof}: {got:?}");
        got.iter().zip(want).for_each(|(got, want)| assert!(got.contains(want), "{proof}: {got}"));
    }

    #[test]
    fn a_proof_names_what_is_there() {
        check("`tests/a.rs`", &[]);
        check("`tests/a.rs a_plain_one one_*`, and `cargo x bench idle`", &[]);
        check("`tests/a.rs *plain* a_*_one * one_in_*`", &[]);
        check("`tests/gone.rs a_plain_one`", &["tests/gone.rs"]);
        check("`tests/a.rs a_plain a_plain_one plain_*`", &["no test a_plain", "no test plain_*"]);
        check("`tests/a.rs no_test`", &["no test no_test"]);
    }

    #[test]
    fn a_row_without_a_proof_says_why() {
        check("comes with: the sandbox", &[]);
        check("cannot happen: no pid is written down", &[]);
        check("cannot happen: ", &["names no proof"]);
        check("later", &["names no proof"]);
        check("", &["names no proof"]);
    }

    #[test]
    fn a_law_without_a_row_and_a_false_name_are_faults_with_their_lines() {
        let rows: String = (1..LAWS).map(|n| format!("| L{n} | x | `tests/a.rs a_plain_one` |\n")).collect();
        let page = format!("# P\n| law | what | proven by |\n|---|---|---|\n{rows}\n| no | table |\n");
        let found = faults(&page.replace("L3 | x | `tests/a.rs a_plain_one`", "L3 | x | `tests/a.rs gone`"), &world);
        assert_eq!(found, [(6, "`tests/a.rs` has no test gone".to_string()), (0, "law L14 has no row".to_string())]);
    }
}
