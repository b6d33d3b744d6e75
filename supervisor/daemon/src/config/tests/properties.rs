//! For any text in the files: it is read or refused, with places and readable words; nothing panics.

use super::*;
use crate::config::value::{Cores, HumanDuration, Limit, PortRange, SignalName, Size};
use crate::config::words::Words;
use serde::Deserialize;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use socialweb_property::{Verdict, holds, holds_in};

/// A value as somebody may write it, of the right kind or not.
fn value() -> impl Strategy<Value = String> {
    let right = prop::sample::select(vec![
        "\"exec\"",
        "\"sh\"",
        "[\"true\"]",
        "[[\"true\"]]",
        "true",
        "\"10s\"",
        "1",
        "\"KILL\"",
        "{ grace = \"1s\" }",
        "{ kind = \"tcp\", address = \"127.0.0.1:1\" }",
        "{ kind = \"notify\" }",
        "{ PATH = \"/bin\" }",
        "\"alone\"",
        "[\"web\"]",
        "\"1MiB\"",
        "[\"61000-61009\"]",
        "\"off\"",
        "\"{dir}/x\"",
        "\"{port.web}\"",
        "\"one-shot\"",
    ]);
    prop_oneof![
        4 => right.prop_map(str::to_string),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => any::<f64>().prop_map(|n| format!("{n:e}")),
        1 => ".{0,12}".prop_map(|text| toml::Value::String(text).to_string()),
        1 => "[ -~]{0,12}",
        1 => prop::sample::select(vec!["[]", "{}", "[[]]", "[{}]", "\"\"", "1979-05-27", "nan", "-0", "[1, \"a\"]"]).prop_map(str::to_string),
    ]
}

/// A key that exists, or one that does not.
fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "kind",
        "name",
        "argv",
        "env",
        "env_pass",
        "cwd",
        "needs",
        "ports",
        "pre",
        "post",
        "hook_timeout",
        "restart",
        "backoff",
        "stop",
        "nofile",
        "oom_score_adj",
        "readiness",
        "liveness",
        "account",
        "tls_san",
        "timeouts",
        "readiness.kind",
        "stop.grace",
        "backoff.base",
        "kine.dsn",
        "running",
        "state_dir",
        "ports.ranges",
        "log.journal",
        "budgets.restart_burst",
        "watchdog",
        "defaults.liveness",
        "binaries.search",
        "cgroup",
        "limits.cpu",
        "limits.memory_max",
        "limits.core_count",
        "limits",
    ]);
    prop_oneof![
        8 => known.prop_map(str::to_string),
        1 => "[a-z_]{1,8}(\\.[a-z]{1,4}){0,3}",
        1 => ".{0,6}".prop_map(|text| toml::Value::String(text).to_string()),
    ]
}

fn file() -> impl Strategy<Value = String> {
    let table = prop::sample::select(vec![
        "[[component]]",
        "[component]",
        "[log]",
        "[budgets]",
        "[ports]",
        "[defaults.timeouts.kine]",
        "[[",
        "[a.b]",
    ]);
    let line = prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| format!("{key} = {value}")),
        2 => table.prop_map(str::to_string),
        1 => ".{0,20}",
    ];
    vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

/// Every finding has a place in the file and can be shown on a terminal.
fn is_well_told(error: &ConfigError, text: &str) -> Verdict {
    prop_assert!(!error.findings.is_empty() && error.findings.len() <= 25, "{} findings", error.findings.len());
    let lines = text.lines().count().max(1) + 1;
    for finding in &error.findings {
        if let Some(at) = finding.position {
            prop_assert!(at.line >= 1 && at.line as usize <= lines && at.column >= 1, "{finding}");
        }
        let shown = finding.to_string();
        prop_assert!(!shown.chars().any(char::is_control), "{shown:?}");
        prop_assert!(!finding.message.trim().is_empty());
    }
    Ok(())
}

#[test]
fn any_cluster_file_is_read_or_refused_with_a_place() {
    holds(file(), |text| match cluster(&text) {
        Ok(_) => Ok(()),
        Err(error) => {
            prop_assert!(error.findings.iter().all(|f| f.position.is_some()), "{error}");
            is_well_told(&error, &text)
        }
    });
}

#[test]
fn any_bytes_in_place_of_the_files_are_read_or_refused() {
    let bytes = prop_oneof![vec(any::<u8>(), 0..200), file().prop_map(String::into_bytes)];
    let site = Site::new("", &[]);
    holds_in(2, (bytes.clone(), bytes), |(supervisor, cluster)| {
        fs::write(site.path("supervisor.toml"), supervisor.as_slice()).unwrap();
        fs::write(site.path("clusters.d/web.toml"), cluster.as_slice()).unwrap();
        let (own, other) = (String::from_utf8_lossy(&supervisor), String::from_utf8_lossy(&cluster));
        match site.load(&[]) {
            Err(error) => is_well_told(&error, &own),
            Ok(loaded) => {
                prop_assert_eq!(loaded.declared.clusters.len(), 1, "a broken file is an entry, not an absent one");
                match &loaded.declared.clusters[0] {
                    Ok(_) => Ok(()),
                    Err(error) => is_well_told(error, &other),
                }
            }
        }
    });
}

fn parsed<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    #[derive(Deserialize)]
    struct File<T> {
        key: T,
    }
    let file = toml::Value::Table([("key".to_string(), toml::Value::String(text.into()))].into_iter().collect());
    file.try_into::<File<T>>().ok().map(|file| file.key)
}

#[test]
fn what_is_written_as_a_duration_or_a_size_is_read_as_that() {
    let units = prop::sample::select(vec![("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)]);
    let year = 366 * 24 * 60 * 60 * 1000_u64;
    holds((0..=year, any::<u32>(), units, " {0,2}"), |(ms, n, (unit, shift), space)| {
        let duration = std::time::Duration::from_millis(ms);
        let text = humantime::format_duration(duration).to_string();
        prop_assert_eq!(parsed::<HumanDuration>(&text).map(|d| d.0), Some(duration), "{}", text);
        let text = format!("{n}{space}{unit}");
        prop_assert_eq!(parsed::<Size>(&text).map(|s| s.0), u64::from(n).checked_shl(shift), "{}", text);
        Ok(())
    });
}

#[test]
fn any_word_in_place_of_a_small_value_is_read_or_refused() {
    let word =
        prop_oneof![".{0,20}", "[0-9]{1,20} ?(ms|s|m|h|d|w|y|GiB|KiB)", "[0-9]{0,7}-[0-9]{0,7}", "(SIG)?[A-Z0-9]{1,6}"];
    holds(word, |text| {
        if let Some(HumanDuration(duration)) = parsed(&text) {
            // Two of them, and a hundred, must fit into the clock that they are added to.
            prop_assert!(
                duration.checked_mul(1000).is_some() && duration.as_secs() < 1 << 40,
                "{text:?} is {duration:?}"
            );
        }
        if let Some(PortRange(range)) = parsed(&text) {
            prop_assert!(range.start() <= range.end() && *range.start() > 0, "{range:?}");
        }
        if let Some(SignalName(signal)) = parsed(&text) {
            prop_assert!((1..=64).contains(&signal), "{signal}");
        }
        if let Some(Limit(Some(limit))) = parsed(&text) {
            prop_assert!(limit >= 1);
        }
        if let Some(Cores(thousandths)) = parsed(&text) {
            prop_assert!(thousandths <= 1_000_000_000, "{text:?}");
        }
        let _ = parsed::<Size>(&text);
        Ok(())
    });
}

#[test]
fn placeholders_are_filled_and_what_is_none_stays() {
    let ports = BTreeMap::from([("web".to_string(), 61000)]);
    let words = Words { group: "g", component: "c", dir: "/d", runtime: "/r", ports: &ports };
    let piece = prop_oneof![
        ".{0,6}",
        "[{}$]{1,4}",
        Just("{dir}".to_string()),
        Just("{port.web}".to_string()),
        "\\{[a-z.]{1,8}\\}"
    ];
    holds(vec(piece, 0..8), |pieces| {
        let text = pieces.concat();
        if let Ok(filled) = words.fill(&text) {
            prop_assert!(text.contains('{') || filled == text, "{text:?} became {filled:?}");
        }
        Ok(())
    });
    holds("[a-z][a-z.]{0,8}", |word| {
        prop_assert_eq!(words.fill(&format!("{{{{{word}}}}}")), Ok(format!("{{{word}}}")));
        Ok(())
    });
}
