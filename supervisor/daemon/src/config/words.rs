//! Placeholders in the texts of a component: `{port.web}`, `{group}`, `{component}`, `{dir}`, `{runtime}`.
//!
//! Only braces around a lower-case word count, and not after `$`, so that JSON and shell in an argv stay what they are;
//! `{{word}}` stands for the text `{word}`.

use super::finding::closest;
use std::collections::BTreeMap;

/// What the placeholders stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    pub group: &'a str,
    pub component: &'a str,
    pub dir: &'a str,
    pub runtime: &'a str,
    pub ports: &'a BTreeMap<String, u16>,
}

impl Words<'_> {
    /// The text with every placeholder filled in, or what is wrong with one.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, tail) = rest.split_at(at);
            out.push_str(before);
            if let Some((word, after)) = tail.strip_prefix("{{").and_then(word).filter(|(_, a)| a.starts_with('}')) {
                out.push_str(&format!("{{{word}}}"));
                rest = &after[1..];
            } else if let Some((word, after)) = word(&tail[1..]).filter(|_| !before.ends_with('$')) {
                out.push_str(&self.value(word)?);
                rest = after;
            } else {
                out.push('{');
                rest = &tail[1..];
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&self, word: &str) -> Result<String, String> {
        match word {
            "group" => Ok(self.group.into()),
            "component" => Ok(self.component.into()),
            "dir" => Ok(self.dir.into()),
            "runtime" => Ok(self.runtime.into()),
            _ => self.port(word),
        }
    }

    fn port(&self, word: &str) -> Result<String, String> {
        let itself = format!("for the text itself write {{{{{word}}}}}");
        if let Some(role) = word.strip_prefix("port.") {
            let near = closest(role, self.ports.keys().map(String::as_str));
            return match (self.ports.get(role), near) {
                (Some(port), _) => Ok(port.to_string()),
                (None, Some(near)) => Err(format!("unknown placeholder {{{word}}}; did you mean {{port.{near}}}?")),
                (None, None) => {
                    Err(format!("no component of this group has the port {role:?}; add it to a component's \"ports\""))
                }
            };
        }
        let known = ["group", "component", "dir", "runtime", "port.ROLE"];
        Err(match closest(word, known) {
            Some(near) => format!("unknown placeholder {{{word}}}; did you mean {{{near}}}? Or {itself}"),
            None => format!("unknown placeholder {{{word}}}; there are {{{}}}; {itself}", known.join("}, {")),
        })
    }
}

/// The word before the next closing brace, and what follows the brace.
fn word(text: &str) -> Option<(&str, &str)> {
    let (word, after) = text.split_once('}')?;
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-' || c == '_';
    (word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(good)).then_some((word, after))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let ports = BTreeMap::from([("web".to_string(), 61000)]);
        let words = Words { group: "g", component: "c", dir: "/d", runtime: "/r", ports: &ports };
        match (words.fill(text), expect) {
            (Ok(got), Ok(want)) => assert_eq!(got, want),
            (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
            (got, want) => panic!("{text}: {got:?} instead of {want:?}"),
        }
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_left_alone() {
        check("{dir}/x:{port.web}", Ok("/d/x:61000"));
        check("{group}-{component} {runtime}", Ok("g-c /r"));
        check("{\"a\": {}} ${HOME} f() { :; } {A} { dir }", Ok("{\"a\": {}} ${HOME} f() { :; } {A} { dir }"));
        check("awk '{{print}}'", Ok("awk '{print}'"));
        check("{{dir}} {dir}", Ok("{dir} /d"));
        check("{", Ok("{"));
        check("{dir", Ok("{dir"));
        check("}{{", Ok("}{{"));
    }

    #[test]
    fn an_unknown_placeholder_is_refused_with_a_suggestion() {
        check("{port.wep}", Err("did you mean {port.web}?"));
        check("{grup}", Err("did you mean {group}?"));
        check("{port.x}", Err("no component of this group has the port \"x\""));
        check(
            "{zzz}",
            Err("there are {group}, {component}, {dir}, {runtime}, {port.ROLE}; for the text itself write {{zzz}}"),
        );
    }
}
