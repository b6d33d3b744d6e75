//! The cases in regressions/: each a life that once broke a law, or that breaks it with a deliberate fault of core switched on.
//!
//! `SIM_SAVE=1 cargo test -p socialweb-core --test world mutants` looks for a case for every fault that has none, makes it small
//! and writes it there.

use crate::schedules::report;
use crate::sim::case::Case;
use std::path::PathBuf;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/world/regressions")
}

/// The committed cases with their names.
pub fn all() -> Vec<(String, Case)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let case = serde_json::from_str(&std::fs::read_to_string(path).unwrap());
        (name.clone(), case.unwrap_or_else(|error| panic!("{name} is no case: {error}")))
    };
    paths.iter().map(read).collect()
}

#[test]
fn each_kept_case_is_lawful() {
    let cases = all();
    assert!(cases.len() >= 20, "{} cases", cases.len());
    for (name, case) in cases {
        if let Some(report) = report(&name, &case) {
            panic!("{report}");
        }
    }
}
