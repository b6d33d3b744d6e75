//! Prometheus text as data, for `metrics -o json`.

use serde::Serialize;
use std::collections::BTreeMap;

/// One sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// The samples of a page as the daemon writes it; what is no sample is left out.
pub fn parse(text: &str) -> Vec<Sample> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match head.split_once('{') {
        Some((name, rest)) => (name, labels(rest.strip_suffix('}')?)?),
        None => (head, BTreeMap::new()),
    };
    Some(Sample { name: name.to_string(), labels, value })
}

fn labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    while !text.is_empty() {
        let (label, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        found.insert(label.trim_start_matches(',').to_string(), value);
        text = rest;
    }
    Some(found)
}

/// The text up to the closing quote, unescaped, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# HELP a b\n# TYPE a gauge\na 1\nb{x=\"1\",y=\"a\\\"b\\\\c\\n, {}\"} 2.5\nnonsense\n";
        let samples = parse(text);
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].name.as_str(), samples[0].value), ("a", 1.0));
        let labels = [("x", "1"), ("y", "a\"b\\c\n, {}")].map(|(k, v)| (k.to_string(), v.to_string()));
        assert_eq!((samples[1].labels.clone(), samples[1].value), (BTreeMap::from(labels), 2.5));
    }
}
