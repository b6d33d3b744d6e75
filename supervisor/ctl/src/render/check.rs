//! Reports of `doctor` and `drill` for people: one line per check, and below it what to do.

use super::clean;
use socialweb_wire::{Check, Health, Report};
use std::fmt::Write;

/// The report with its sum.
pub fn report(report: &Report) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = format!("{}\n\n", clean(&report.subject));
    let width = report.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for check in &report.checks {
        push(&mut out, check, width);
    }
    let _ = writeln!(
        out,
        "\n{} ok, {} to look at, {} failed",
        report.count(Health::Ok),
        report.count(Health::Warn),
        report.count(Health::Fail)
    );
    out
}

fn push(out: &mut String, check: &Check, width: usize) {
    let took = check.took_ms.map(|ms| format!(" ({}.{:03} s)", ms / 1_000, ms % 1_000)).unwrap_or_default();
    let _ = writeln!(out, "{:<4}  {:<width$}  {}{took}", check.health, clean(&check.name), clean(&check.text));
    if !check.fix.is_empty() {
        let _ = writeln!(out, "      {:<width$}  fix: {}", "", clean(&check.fix));
    }
}
