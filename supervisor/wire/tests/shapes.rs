//! The JSON shapes are what other programs rely on: each is pinned here, and a change of one is a change of SCHEMA.
#![allow(clippy::unwrap_used)]

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use socialweb_wire::*;
use std::fmt::Debug;

/// `json` reads as `value`, and `value` writes as `json`.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, json: Value) {
    assert_eq!(serde_json::to_value(value).unwrap(), json);
    assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value);
}

#[test]
fn an_error_says_what_and_what_next() {
    let error = ApiError::no_group("demo");
    check(
        &error,
        json!({"code": "not-found", "error": "there is no group \"demo\"",
               "hint": "`ctl status` lists the groups; a new cluster file needs `ctl reload`"}),
    );
    assert!(error.to_string().contains("; `ctl status`"));
    assert_eq!(ApiError::new(ErrorCode::Failed, "x").to_string(), "x");
}

#[test]
fn codes_and_phases_of_a_newer_daemon_are_readable() {
    assert_eq!(serde_json::from_str::<ErrorCode>("\"teapot\"").unwrap(), ErrorCode::Failed);
    assert_eq!(serde_json::from_str::<Phase>("\"Dreaming\"").unwrap(), Phase::Unknown);
    assert_eq!(serde_json::from_str::<Level>("\"loud\"").unwrap(), Level::Info);
    assert_eq!(serde_json::from_str::<Effect>("\"explode\"").unwrap(), Effect::Unknown);
    for phase in Phase::ALL {
        check(&phase, json!(phase.as_str()));
    }
}

#[test]
fn a_stream_line_is_an_item_or_a_hole_or_an_error() {
    let line = LogLine {
        time_ms: 1,
        group: "demo".into(),
        component: "kine".into(),
        birth: Some(7),
        level: Level::Warning,
        text: "{\"missed\":3}".into(),
    };
    check(
        &StreamLine::Item(line.clone()),
        json!({"time_ms": 1, "group": "demo", "component": "kine", "birth": 7, "level": "warning",
               "text": "{\"missed\":3}"}),
    );
    check(&StreamLine::<LogLine>::Missed(Missed { missed: 3 }), json!({"missed": 3}));
    let error = ApiError::new(ErrorCode::Busy, "gone");
    check(&StreamLine::<LogLine>::Error(error), json!({"code": "busy", "error": "gone", "hint": ""}));
    // A status is an item and never taken for an error or a hole, whatever it grows.
    let newer = json!({"time_ms": 1, "group": "d", "component": "c", "birth": null, "level": "info", "text": "",
                       "missed": 1, "code": "x"});
    assert!(matches!(serde_json::from_value(newer).unwrap(), StreamLine::<LogLine>::Item(_)));
}

#[test]
fn a_receipt_reads_as_the_daemon_keeps_it_and_writes_it_back_unchanged() {
    let json = json!({
        "schema": 1, "group": "demo", "generation": 3, "why": {"why": "gave-up", "detail": "kine never ready"},
        "began": 10, "ended": 250, "elapsed_ms": 240, "path_shut": true,
        "components": [{
            "component": "kine", "rank": 1, "birth": 4, "pid": 42, "status": {"signal": 9}, "rung": "kill",
            "began": 10, "gone": 200,
            "others": [{"component": "kine", "pid": 43, "start_time": 77, "command": "sleep", "by": "cgroup-kill"}]
        }],
        "strays": [{"component": null, "pid": 44, "start_time": 0, "command": "sh", "by": "marker-kill"}],
        "removed": true
    });
    let receipt: Receipt = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(receipt.why.to_string(), "gave up: kine never ready");
    check(&receipt, json);
    let plain: Why = serde_json::from_value(json!({"why": "operator"})).unwrap();
    assert_eq!(plain.to_string(), "asked by the operator");
}

#[test]
fn a_plan_names_key_place_and_effect() {
    let plan = ReloadPlan {
        applied: false,
        groups: vec![GroupPlan {
            group: "demo".into(),
            effect: Effect::Restart,
            changes: vec![PlannedChange {
                component: Some("kine".into()),
                key: "env".into(),
                file: Some("clusters.d/demo.toml".into()),
                line: Some(7),
                effect: Effect::Restart,
            }],
        }],
        problems: vec![Problem {
            file: "clusters.d/b.toml".into(),
            line: Some(2),
            column: Some(1),
            severity: socialweb_wire::Severity::Error,
            message: "unknown key `acount`".into(),
            hint: "did you mean `account`?".into(),
        }],
    };
    assert_eq!(plan.problems[0].to_string(), "clusters.d/b.toml:2:1: unknown key `acount`; did you mean `account`?");
    check(
        &plan,
        json!({
            "applied": false,
            "groups": [{"group": "demo", "effect": "restart", "changes": [
                {"component": "kine", "key": "env", "file": "clusters.d/demo.toml", "line": 7, "effect": "restart"}]}],
            "problems": [{"file": "clusters.d/b.toml", "line": 2, "column": 1, "severity": "error", "message": "unknown key `acount`",
                          "hint": "did you mean `account`?"}]
        }),
    );
}

#[test]
fn effects_order_from_weak_to_strong() {
    assert!(Effect::InPlace < Effect::NextStart && Effect::NextStart < Effect::Restart);
    assert!(Effect::Restart < Effect::Park);
}

#[test]
fn unknown_query_keys_are_refused_and_unknown_answer_fields_ignored() {
    assert!(serde_json::from_value::<FeedQuery>(json!({"folow": true})).is_err());
    #[derive(Deserialize)]
    struct Old {
        #[allow(dead_code)]
        accepted: Accepted,
    }
    let newer = json!({"accepted": {"operation": "restart-component", "group": "g", "component": "c", "generation": 1,
        "birth": 2, "phase": "Ready", "note": "", "more": 1}});
    assert!(serde_json::from_value::<Old>(newer).is_ok());
}
