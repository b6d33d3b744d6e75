//! Receipts for people.

use super::{clean, clock, grid, or_dash};
use socialweb_wire::{Cause, ExitStatus, Reaped, Receipt, Rung, Stopped};
use std::fmt::Write;

/// One receipt.
pub fn receipt(receipt: &Receipt) -> String {
    let mut out = String::new();
    let when = receipt.written_at_ms.map(|at| format!(", {}", clock(at))).unwrap_or_default();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        out,
        "{}: stop of generation {} in {}.{:03} s{when}",
        clean(&receipt.group),
        receipt.generation,
        receipt.elapsed_ms / 1_000,
        receipt.elapsed_ms % 1_000,
    );
    let _ = writeln!(out, "  why         {}", clean(&receipt.why.to_string()));
    let _ = writeln!(out, "  path        {}", if receipt.path_shut { "seen shut first" } else { "was not seen shut" });
    let _ = writeln!(out, "  removed     {}", if receipt.removed { "yes, nothing is left" } else { "no" });
    if !receipt.components.is_empty() {
        out.push('\n');
        out.push_str(&components(receipt));
    }
    let others = receipt.components.iter().flat_map(|c| &c.others).chain(&receipt.strays);
    let others: Vec<&Reaped> = others.collect();
    if !others.is_empty() {
        out.push('\n');
        out.push_str(&grid(
            &["OTHER PROCESS", "PID", "COMPONENT", "HOW IT ENDED"],
            others.into_iter().map(other).collect(),
        ));
    }
    out
}

fn components(receipt: &Receipt) -> String {
    let header = ["GONE", "COMPONENT", "RANK", "PID", "MAIN PROCESS", "LADDER", "TOOK"];
    let row = |(i, stopped): (usize, &Stopped)| {
        vec![
            (i + 1).to_string(),
            stopped.component.clone(),
            stopped.rank.to_string(),
            or_dash(stopped.pid),
            stopped.end.map_or_else(|| or_dash(stopped.status), |end| end.to_string()),
            ladder(stopped),
            format!("{} ms", stopped.gone.saturating_sub(stopped.began)),
        ]
    };
    grid(&header, receipt.components.iter().enumerate().map(row).collect())
}

/// How far the ladder went. Its last rung is for the whole run: the main process may have gone at an earlier one.
fn ladder(stopped: &Stopped) -> String {
    let status = stopped.end.map(|end| end.status).or(stopped.status);
    let by_kill = matches!(stopped.end.map(|end| end.by), Some(Cause::Stop(Rung::Kill) | Cause::Liveness(Rung::Kill)));
    match (stopped.rung, status) {
        (Rung::Kill, Some(status)) if !by_kill && status != ExitStatus::Signal(9) => {
            format!("{}, of what it left", stopped.rung)
        }
        _ => stopped.rung.to_string(),
    }
}

fn other(reaped: &Reaped) -> Vec<String> {
    vec![reaped.command.clone(), reaped.pid.to_string(), or_dash(reaped.component.as_deref()), reaped.by.to_string()]
}
