//! A reload's plan for people.

use super::clean;
use socialweb_wire::{GroupPlan, PlannedChange, ReloadPlan, Severity};
use std::fmt::Write;

/// The plan, and whether it is done.
pub fn plan(plan: &ReloadPlan) -> String {
    let mut out = String::new();
    for group in &plan.groups {
        push_group(&mut out, group);
    }
    for problem in &plan.problems {
        // Writing to a String cannot fail, here and below.
        let text = problem.to_string();
        let text = clean(&text);
        let _ = match problem.severity {
            Severity::Error => writeln!(out, "error: {text}"),
            Severity::Warning => writeln!(out, "warning: {text}"),
        };
    }
    out.push_str(match (plan.groups.is_empty(), plan.applied) {
        (true, _) => "nothing changed\n",
        (false, true) => "applied\n",
        (false, false) => "not applied\n",
    });
    out
}

fn push_group(out: &mut String, group: &GroupPlan) {
    let _ = writeln!(out, "{}: {}", clean(&group.group), group.effect);
    for change in &group.changes {
        let _ = writeln!(out, "  {}{}: {}", clean(&subject(change)), place(change), change.effect);
    }
}

fn subject(change: &PlannedChange) -> String {
    match (&change.component, change.key.as_str()) {
        (Some(component), "") => component.clone(),
        (Some(component), key) => format!("{component}.{key}"),
        (None, key) => key.to_string(),
    }
}

fn place(change: &PlannedChange) -> String {
    match (&change.file, change.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", clean(file)),
        (Some(file), None) => format!(" ({})", clean(file)),
        _ => String::new(),
    }
}
