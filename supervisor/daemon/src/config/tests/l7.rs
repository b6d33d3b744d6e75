//! Law L7: a source that cannot be read changes nothing.

use super::*;

const GOOD: &str = "account = \"x\"";

fn unreadable(declared: &Declared) -> &str {
    match &declared.state {
        SourceState::Unreadable { why } => why,
        SourceState::Read => panic!("it counts as read: {declared:?}"),
    }
}

#[test]
fn a_missing_folder_parks_nobody() {
    let site = Site::new("clusters_dir = \"gone\"", &[]);
    let declared = site.load(&["a", "b"]).unwrap().declared;
    assert!(unreadable(&declared).starts_with("the folder of cluster files cannot be read: No such file"));
    assert!(declared.absent.is_empty() && declared.clusters.is_empty());
    assert!(declared.warnings[0].to_string().contains("warning: the folder of cluster files cannot be read"));
}

#[test]
fn a_folder_that_became_empty_parks_nobody() {
    let site = Site::new("", &[]);
    let declared = site.load(&["a", "b"]).unwrap().declared;
    assert!(
        unreadable(&declared)
            .starts_with("the folder of cluster files is empty although it declared a, b; if a mount was lost")
    );
    assert!(declared.absent.is_empty());
}

#[test]
fn a_folder_that_may_be_empty_parks_all() {
    let site = Site::new("", &[]);
    let known = ["a", "b"].map(group).into();
    let declared = read_folder(&site.path("clusters.d"), &known, true);
    assert_eq!((declared.state, declared.absent), (SourceState::Read, vec![group("a"), group("b")]));
}

#[test]
fn a_folder_that_was_always_empty_is_read() {
    let declared = Site::new("", &[]).load(&[]).unwrap().declared;
    assert_eq!((declared.state, declared.clusters.len()), (SourceState::Read, 0));
}

#[test]
fn a_file_in_place_of_the_folder_parks_nobody() {
    let site = Site::new("clusters_dir = \"supervisor.toml\"", &[]);
    assert!(unreadable(&site.load(&["a"]).unwrap().declared).contains("Not a directory"));
}

#[test]
fn an_absent_file_parks_its_group_and_only_that_one() {
    let site = Site::new("", &[("a.toml", GOOD)]);
    let declared = site.load(&["a", "b"]).unwrap().declared;
    assert_eq!(declared.state, SourceState::Read);
    assert_eq!(declared.absent, [group("b")]);
    assert_eq!(declared.clusters.len(), 1);
    let warning = declared.warnings[0].to_string();
    assert!(warning.ends_with("b.toml: warning: the file of group b is gone: it is parked and its data kept; `ctl delete b` would destroy that"));
}

#[test]
fn a_broken_file_is_neither_absent_nor_in_the_way_of_others() {
    let site = Site::new("", &[("a.toml", "account ="), ("b.toml", GOOD)]);
    let declared = site.load(&["a", "b"]).unwrap().declared;
    assert!(declared.absent.is_empty());
    assert_eq!(declared.clusters[0].as_ref().unwrap_err().group, Some(group("a")));
    assert_eq!(declared.clusters[1].as_ref().unwrap().name, group("b"));
}
