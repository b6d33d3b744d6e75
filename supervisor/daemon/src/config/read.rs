//! TOML to a type, with every error and not only the first: after each one the offending entry is taken out of the
//! parsed tree and the rest is tried again.

use super::finding::{Finding, closest};
use super::source::Source;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

/// More findings than this in one file help nobody.
const MAX_FINDINGS: usize = 20;
/// Syntax errors after the first few are mostly echoes of them.
const MAX_SYNTAX: usize = 3;

/// Parses a whole file; the findings, if any, are in no certain order.
pub(super) fn parse<T: DeserializeOwned>(source: &Source) -> Result<T, Vec<Finding>> {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    if !errors.is_empty() {
        return Err(errors.iter().take(MAX_SYNTAX).map(|e| syntax(source, e)).collect());
    }
    let mut rest = root.clone();
    let (mut findings, mut removed) = (Vec::new(), Vec::new());
    loop {
        let error = match T::deserialize(Deserializer::from(rest.clone())) {
            Ok(value) if findings.is_empty() => return Ok(value),
            Ok(_) => return Err(findings),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        if !removed.iter().any(|r: &Removed| r.explains(&error, &span)) {
            findings.push(explain(source, &error, &path_of(root.get_ref(), &span).unwrap_or_default()));
        }
        let around = rest.span();
        match strip_table(rest.get_mut(), around, &span) {
            Some(entry) if findings.len() < MAX_FINDINGS => removed.push(entry),
            _ => return Err(findings),
        }
    }
}

/// An entry that was taken out.
struct Removed {
    table: Range<usize>,
    key: String,
}

impl Removed {
    /// True when the key is only missing because it was taken out.
    fn explains(&self, error: &Error, span: &Range<usize>) -> bool {
        error.message() == format!("missing field `{}`", self.key) && self.table == *span
    }
}

fn syntax(source: &Source, error: &Error) -> Finding {
    let span = error.span().unwrap_or(0..0);
    let message = match (error.message(), source.text().get(span.clone())) {
        ("duplicate key", Some(key)) => {
            format!("key \"{}\" is given twice; remove one", key.trim_matches(['[', ']', '"']))
        }
        (other, _) => format!("not TOML: {other}"),
    };
    Finding::error(source.path(), Some(source.position(span.start)), message)
}

/// Removes the innermost entry that `span` points at, or else the smallest one around it; `at` is the table's own span.
fn strip_table(table: &mut DeTable<'_>, at: Range<usize>, span: &Range<usize>) -> Option<Removed> {
    // An array of tables has the span of its first table: look inside first.
    if let Some(entry) = table.iter_mut().find_map(|(_, v)| strip_value(v, span)) {
        return Some(entry);
    }
    let exact = |(k, v): &(&Spanned<_>, &Spanned<DeValue<'_>>)| k.span() == *span || v.span() == *span;
    let hit = table.iter().find(exact).or_else(|| table.iter().find(|(_, v)| contains(&v.span(), span)));
    let key = hit?.0.get_ref().to_string();
    table.remove(key.as_str())?;
    Some(Removed { table: at, key })
}

fn strip_value(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Removed> {
    let at = value.span();
    match value.get_mut() {
        DeValue::Table(table) if !table.is_empty() => strip_table(table, at, span),
        DeValue::Array(items) => {
            if let Some(entry) =
                (0..items.len()).find_map(|i| items.get_mut(i).and_then(|item| strip_value(item, span)))
            {
                return Some(entry);
            }
            let i = items.iter().position(|item| item.span() == *span)?;
            *items = items.iter().enumerate().filter(|(n, _)| *n != i).map(|(_, item)| item.clone()).collect();
            Some(Removed { table: at, key: String::new() })
        }
        _ => None,
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && !outer.is_empty()
}

/// The dotted path of the innermost entry at `span`, without array indexes: the line tells which element it is.
fn path_of(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        match path_in(value, span) {
            Some(inner) if !inner.is_empty() => Some(format!("{name}.{inner}")),
            Some(_) => Some(name.to_string()),
            None if key.span() == *span || value.span() == *span => Some(name.to_string()),
            None => None,
        }
    })
}

/// The same inside a value; empty for the element of an array itself.
fn path_in(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    match value.get_ref() {
        DeValue::Table(table) => path_of(table, span),
        DeValue::Array(items) => {
            items.iter().find_map(|item| path_in(item, span).or_else(|| (item.span() == *span).then(String::new)))
        }
        _ => None,
    }
}

/// Says serde's message in the words of the file.
fn explain(source: &Source, error: &Error, path: &str) -> Finding {
    let text = error.message();
    let quoted = names(text);
    let first = quoted.first().copied().unwrap_or_default();
    let known = quoted.get(1..).unwrap_or_default();
    let message = if text.starts_with("unknown field") {
        let place = path.rsplit_once('.').map(|(table, _)| format!(" in \"{table}\"")).unwrap_or_default();
        format!("unknown key \"{first}\"{place}; {}", suggest(first, known, "the keys are"))
    } else if text.starts_with("missing field") {
        let place = if path.is_empty() { String::new() } else { format!(" in \"{path}\"") };
        format!("key \"{first}\" is missing{place}; add it")
    } else if text.starts_with("unknown variant") {
        format!("\"{path}\" cannot be \"{first}\"; {}", suggest(first, known, "it is one of"))
    } else if let Some((got, want)) = mismatch(text) {
        format!("\"{path}\" must be {}, not {got}", plain(want))
    } else if path.is_empty() {
        text.to_string()
    } else {
        format!("\"{path}\": {text}")
    };
    let offset = error.span().map_or(0, |span| span.start);
    Finding::error(source.path(), Some(source.position(offset)), message)
}

fn suggest(given: &str, known: &[&str], list: &str) -> String {
    match closest(given, known.iter().copied()) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => format!("{list} {}", known.join(", ")),
    }
}

/// The parts of a message that stand between backticks.
fn names(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

fn mismatch(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    rest.rsplit_once(", expected ").map(|(got, want)| (got.trim(), want.trim()))
}

/// A Rust type's name in the words of TOML.
fn plain(want: &str) -> String {
    match want {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".into(),
        "a sequence" => "an array".into(),
        "a map" => "a table".into(),
        "path string" => "a path in quotes".into(),
        other if other.starts_with("struct ") => "a table".into(),
        other if other.starts_with("enum ") => "one of its names in quotes".into(),
        other => other.into(),
    }
}
