//! The table, on the screen and in docs/benchmarks.md, where a row of the same name is replaced and all else stays.

use super::Row;
use crate::repo::Repo;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- cargo x bench: begin -->";
const END: &str = "<!-- cargo x bench: end -->";
const HEAD: &str = "| what | daemon | reference | bound | met | measured on |\n|---|---|---|---|---|---|";

/// Below this, a page has no table yet.
const NEW_PAGE: &str = "# Benchmarks\n\n`cargo x bench` measures these and fails when a bound is not met. The ratios count, not \
    the seconds: both sides run in turn on the same machine. The bounds are promises (docs/promises.md).\n";

/// For the screen.
pub fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let met = if row.good { "met" } else { "NOT MET" };
        format!("{:<36} {:>10}  {:<28} {:<22} {met}", row.what, row.ours, row.reference, row.bound)
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Into docs/benchmarks.md.
pub fn keep(repo: &Repo, rows: &[Row], runs: usize) -> Result<()> {
    let path = repo.path("docs/benchmarks.md");
    let old = match path.is_file() {
        true => fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?,
        false => NEW_PAGE.to_string(),
    };
    let measured = format!("{}, median of {runs}", machine());
    fs::write(&path, merged(&old, rows, &measured)).with_context(|| format!("writing {}", path.display()))?;
    println!("docs/benchmarks.md is up to date");
    Ok(())
}

fn merged(page: &str, rows: &[Row], measured: &str) -> String {
    let (before, table, after) = split(page);
    let mut lines: Vec<String> = table.lines().skip(2).map(str::to_string).collect();
    for row in rows {
        let met = if row.good { "yes" } else { "NO" };
        let key = format!("| {} |", row.what);
        let line = format!("{key} {} | {} | {} | {met} | {measured} |", row.ours, row.reference, row.bound);
        match lines.iter_mut().find(|line| line.starts_with(&key)) {
            Some(old) => *old = line,
            None => lines.push(line),
        }
    }
    format!("{}\n\n{BEGIN}\n{HEAD}\n{}\n{END}{after}", before.trim_end(), lines.join("\n"))
}

/// What stands before the table, the table, and what follows it.
fn split(page: &str) -> (&str, &str, &str) {
    let Some((before, rest)) = page.split_once(BEGIN) else { return (page, "", "\n") };
    match rest.split_once(END) {
        Some((table, after)) => (before, table.trim(), after),
        None => (before, rest.trim(), "\n"),
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    // The version says enough; what a distribution or a host appends says whose it is.
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
    format!("{cores} cores, {} GiB, Linux {kernel}", kib / (1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, ours: &str) -> Row {
        Row { what: what.into(), ours: ours.into(), reference: "-".into(), bound: "at most 1".into(), good: true }
    }

    #[test]
    fn a_row_is_replaced_and_the_rest_of_the_page_stays() {
        let first = merged("# Page\nprose\n", &[row("a", "1"), row("b", "2")], "here");
        let page = first + "\nmore prose\n";
        let second = merged(&page, &[row("a", "9")], "there");
        assert!(second.starts_with("# Page\nprose\n\n") && second.ends_with("\nmore prose\n"), "{second}");
        assert!(second.contains("| a | 9 | - | at most 1 | yes | there |"), "{second}");
        assert!(second.contains("| b | 2 | - | at most 1 | yes | here |"), "{second}");
        assert_eq!(second.matches("| a |").count(), 1);
        assert_eq!(merged(&second, &[row("a", "9")], "there"), second);
    }
}
