//! For any text in an answer: what is printed holds nothing that a terminal obeys, and no line that the daemon did not write.

use super::{lines, metrics, plan, receipt, status, tree};
use serde::de::DeserializeOwned;
use serde_json::Value;
use socialweb_property::proptest::prelude::*;
use socialweb_property::{Verdict, holds};
use socialweb_wire::{EventLine, Level, LogLine};

/// Any text, and often what terminals obey.
fn hostile() -> impl Strategy<Value = String> {
    let trick = prop::sample::select(vec![
        "\u{1b}[2J",
        "\u{1b}]0;owned\u{7}",
        "\r",
        "\n",
        "\u{9b}1m",
        "\u{8}\u{8}",
        "\u{202e}txt",
        "\u{2066}",
        "\0",
        "\u{7f}",
        "\nfake  Ready",
        "\u{2028}",
        "\t",
        "\u{1b}",
        "plain",
        "\u{200f}",
    ]);
    prop_oneof![3 => trick.prop_map(str::to_string), 1 => ".{0,12}", 1 => any::<String>()]
}

/// An answer of the daemon's, and where in it a text may be any text.
struct Answer {
    golden: Value,
    texts: Vec<String>,
}

impl Answer {
    /// The places are found by trying: a word of a closed set cannot be replaced.
    fn read<T: DeserializeOwned>(name: &str) -> Answer {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let golden: Value = serde_json::from_str(&text).expect("a golden file is JSON");
        let mut places = Vec::new();
        collect(&golden, String::new(), &mut places);
        let mut answer = Answer { golden, texts: places };
        let places = answer.texts.clone();
        let free = |place: &String| answer.with::<T>(std::slice::from_ref(place), &["?".into()]).is_some();
        answer.texts = places.into_iter().filter(free).collect();
        assert!(!answer.texts.is_empty(), "{name} has no text");
        answer
    }

    fn poisoned<T: DeserializeOwned>(&self, texts: &[String]) -> T {
        self.with(&self.texts, texts).expect("every place was tried")
    }

    fn with<T: DeserializeOwned>(&self, places: &[String], texts: &[String]) -> Option<T> {
        let mut value = self.golden.clone();
        for (place, text) in places.iter().zip(texts.iter().cycle()) {
            *value.pointer_mut(place)? = Value::String(text.clone());
        }
        serde_json::from_value(value).ok()
    }

    /// Lines that the rendering may have at most: one for each value, and some around.
    fn rows(&self) -> usize {
        serde_json::to_string_pretty(&self.golden).map_or(0, |text| text.lines().count()) + 20
    }
}

fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::String(_) => places.push(at),
        Value::Array(items) => (0..).zip(items).for_each(|(i, item)| collect(item, format!("{at}/{i}"), places)),
        Value::Object(map) => map.iter().for_each(|(key, item)| collect(item, format!("{at}/{key}"), places)),
        _ => {}
    }
}

fn is_harmless(shown: &str, rows: usize) -> Verdict {
    let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || super::turns_text(c);
    prop_assert!(!shown.chars().any(obeyed), "{shown:?}");
    prop_assert!(shown.lines().count() <= rows, "more lines than the daemon wrote: {shown}");
    Ok(())
}

fn try_all<T: DeserializeOwned>(name: &str, show: impl Fn(&T, bool) -> String) {
    let answer = Answer::read::<T>(name);
    let texts = prop::collection::vec(hostile(), 1..6);
    holds((texts, any::<bool>()), |(texts, wide)| is_harmless(&show(&answer.poisoned(&texts), wide), answer.rows()));
}

#[test]
fn no_text_in_an_answer_reaches_the_terminal_as_more_than_text() {
    try_all("status.json", status::host);
    try_all("status-group.json", status::group);
    try_all("tree.json", |answer, _| tree::group(answer));
    try_all("receipt.json", |answer, _| receipt::receipt(answer));
    try_all("plan.json", |answer, _| plan::plan(answer));
}

#[test]
fn a_log_line_and_an_event_are_one_line_each() {
    let level = prop::sample::select(vec![Level::Error, Level::Warning, Level::Info, Level::Debug]);
    holds((hostile(), hostile(), hostile(), level, any::<u64>()), |(group, component, text, level, time_ms)| {
        let line = LogLine {
            time_ms,
            group: group.clone(),
            component: component.clone(),
            birth: None,
            level,
            text: text.clone(),
        };
        is_harmless(&lines::log(&line, true), 1)?;
        is_harmless(&lines::log(&line, false), 1)?;
        let event =
            EventLine { seq: 1, time_ms, group: Some(group), component: Some(component), birth: None, level, text };
        is_harmless(&lines::event(&event), 1)
    });
}

#[test]
fn any_page_of_metrics_is_read_as_far_as_it_is_one() {
    let line = prop_oneof![hostile(), "[a-z_]{1,6}(\\{[a-z]{1,3}=\"[ -~]{0,6}\"\\})? [0-9.e+-]{1,5}", "[ -~]{0,20}"];
    holds(prop::collection::vec(line, 0..6), |page| {
        let page = page.join("\n");
        prop_assert!(metrics::parse(&page).len() <= page.lines().count());
        Ok(())
    });
}
