//! Each deliberate fault of core (`socialweb_core::mutant`) is caught, by a law of its number, with a kept case. A check that
//! cannot fail is a defect.

use crate::regressions::{all, folder};
use crate::sim::case::Case;
use crate::sim::chance;
use crate::sim::laws::Violation;
use crate::sim::shrink::shrink;
use socialweb_core::mutant;
use std::path::Path;

/// The faults that the source of core asks for, by name.
fn faults() -> Vec<&'static str> {
    let mut names = Vec::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    names.sort();
    names.into_iter().map(|name| &*Box::leak(name.into_boxed_str())).collect()
}

fn gather(path: &Path, names: &mut Vec<String>) {
    if path.is_dir() {
        return std::fs::read_dir(path).unwrap().for_each(|entry| gather(&entry.unwrap().path(), names));
    }
    if path.file_name().is_some_and(|name| name != "mutant.rs") {
        let text = std::fs::read_to_string(path).unwrap();
        let found = text.split("mutant!(\"").skip(1).filter_map(|rest| rest.split('"').next());
        names.extend(found.map(String::from));
    }
}

/// The law that a case breaks with that fault.
fn broken(fault: &'static str, case: &Case) -> Option<Violation> {
    mutant::with(fault, || case.run(false).violation)
}

/// `l2-ranks-together` is a fault of the law `l2_...`.
fn is_of(law: &str, fault: &str) -> bool {
    law.split('_').next() == fault.split('-').next()
}

#[test]
fn every_fault_has_a_name_of_its_own() {
    let names = faults();
    assert!(names.len() >= 20, "{names:?}");
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_fault_is_caught_by_the_law_that_it_breaks() {
    if std::env::var_os("SIM_SAVE").is_some() {
        save_missing();
    }
    let cases = all();
    let mut missed = Vec::new();
    for fault in faults() {
        let Some((name, case)) = cases.iter().find(|(_, case)| case.mutant == fault) else {
            missed.push(format!("{fault}: no case in regressions/ is for it"));
            continue;
        };
        match broken(fault, case) {
            None => missed.push(format!("{fault}: {name} breaks no law")),
            Some(v) if v.law != case.law => missed.push(format!("{fault}: {name} breaks {}, not {}", v.law, case.law)),
            Some(v) if !is_of(v.law, fault) => missed.push(format!("{fault}: is caught by {}", v.law)),
            Some(_) => {}
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    let unknown: Vec<_> =
        cases.iter().filter(|(_, c)| !c.mutant.is_empty() && !faults().contains(&&*c.mutant)).collect();
    assert!(unknown.is_empty(), "cases for faults that are not there: {unknown:?}");
}

/// Looks for a life in which a fault shows as a broken law of its number, and keeps it small.
fn save_missing() {
    let kept = all();
    for fault in faults().into_iter().filter(|fault| kept.iter().all(|(_, case)| case.mutant != *fault)) {
        let of_its_number = |v: &Violation| is_of(v.law, fault);
        let found = (0..20_000).map(chance::case).find_map(|case| {
            let v = broken(fault, &case).filter(of_its_number)?;
            Some((case, v.law))
        });
        let Some((case, law)) = found else {
            println!("{fault}: not found");
            continue;
        };
        let small = shrink(case, |c| broken(fault, c).is_some_and(|v| v.law == law));
        let small = Case { law: law.into(), mutant: fault.into(), ..small };
        std::fs::write(folder().join(format!("{fault}.json")), serde_json::to_string_pretty(&small).unwrap() + "\n")
            .unwrap();
    }
}
