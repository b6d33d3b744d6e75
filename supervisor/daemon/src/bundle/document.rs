//! Documents without secrets, by their structure: values of environments, contents of files, what has a telling name, what
//! follows a telling flag. The names stay, so that a reader sees what was there.

use super::LEFT_OUT;
use super::scrub::{Scrub, is_secret_name};
use serde_json::Value;

/// Keys whose values go, whatever is in them: an environment's values, and what a launch writes into files.
const WHOLE: [&str; 2] = ["env", "content"];

/// A JSON document, or one of several lines; one that is no JSON is scrubbed as text.
pub fn json(scrub: &Scrub, text: &str) -> String {
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        walk(scrub, &mut value);
        return pretty(&value);
    }
    let line = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            walk(scrub, &mut value);
            value.to_string() + "\n"
        }
        Err(_) => scrub.text(line),
    };
    text.lines().map(line).collect()
}

/// A TOML file, written anew: comments are not taken over, they may hold anything. One that is not TOML is left out.
pub fn toml(scrub: &Scrub, text: &str) -> String {
    let Ok(mut value) = toml::from_str::<Value>(text) else {
        return "# this file is no TOML, and nothing tells what in it is a secret: it is left out\n".into();
    };
    walk(scrub, &mut value);
    toml::to_string_pretty(&value).unwrap_or_else(|error| format!("# it cannot be written again: {error}\n"))
}

/// A value of ours as JSON.
pub fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// The values of every environment in a document: what must not turn up anywhere else either.
pub fn environment_values(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("env", Value::Object(env)) => env.values().filter_map(Value::as_str).for_each(&mut *found),
                    (name, Value::String(text)) if is_secret_name(name) => found(text),
                    _ => environment_values(value, found),
                }
            }
        }
        Value::Array(items) => {
            secrets_in_argv(items).for_each(&mut *found);
            items.iter().for_each(|item| environment_values(item, found));
        }
        _ => {}
    }
}

fn walk(scrub: &Scrub, value: &mut Value) {
    match value {
        Value::String(text) => *text = scrub.text(text).trim_end_matches('\n').to_string(),
        Value::Array(items) => {
            let secret: Vec<usize> = flags_before(items).collect();
            for (n, item) in items.iter_mut().enumerate() {
                if secret.contains(&n) { *item = LEFT_OUT.into() } else { walk(scrub, item) }
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if WHOLE.contains(&key.as_str()) || is_secret_name(key) { blot(value) } else { walk(scrub, value) }
            }
        }
        _ => {}
    }
}

/// Every text in it goes; numbers and names stay.
fn blot(value: &mut Value) {
    match value {
        Value::String(text) => *text = LEFT_OUT.into(),
        Value::Array(items) => items.iter_mut().for_each(blot),
        Value::Object(fields) => fields.values_mut().for_each(blot),
        _ => {}
    }
}

/// Places that follow a flag with a telling name and no value of its own.
fn flags_before(items: &[Value]) -> impl Iterator<Item = usize> + '_ {
    let telling =
        |item: &Value| item.as_str().is_some_and(|t| t.starts_with('-') && !t.contains('=') && is_secret_name(t));
    items.iter().enumerate().filter(move |(_, item)| telling(item)).map(|(n, _)| n + 1)
}

fn secrets_in_argv(items: &[Value]) -> impl Iterator<Item = &str> {
    let next = flags_before(items).filter_map(|n| items.get(n)?.as_str());
    let given = items.iter().filter_map(|item| item.as_str()?.split_once('=')).filter(|(name, _)| is_secret_name(name));
    next.chain(given.map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = r#"
# the password is hunter1
kind = "exec"
[[component]]
name = "web"
argv = ["web", "--port", "80", "--password", "hunter2", "--token=hunter3"]
env = { DB = "hunter4", HOME = "/home/x" }
"#;

    #[test]
    fn a_cluster_file_keeps_its_shape_and_loses_its_secrets() {
        let text = toml(&Scrub::default(), CLUSTER);
        assert!(!text.contains("hunter") && !text.contains("/home/x"), "{text}");
        for kept in ["name = \"web\"", "--port", "80", "--password", "DB = ", "HOME = "] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        assert!(!toml(&Scrub::default(), "password = hunter2").contains("hunter2"));
    }

    #[test]
    fn what_a_document_keeps_secret_is_known_everywhere() {
        let mut all = Vec::new();
        environment_values(&toml::from_str(CLUSTER).unwrap(), &mut |text| all.push(text.to_string()));
        all.sort();
        assert_eq!(all, ["/home/x", "hunter2", "hunter3", "hunter4"]);
    }

    #[test]
    fn documents_of_one_value_and_of_many_lines_are_scrubbed() {
        let spec =
            r#"{"launch":{"argv":["a"],"env":{"K":"hunter2"},"files":[{"path":"/x","content":"hunter3"}]},"n":7}"#;
        let whole = json(&Scrub::default(), spec);
        assert!(!whole.contains("hunter") && whole.contains("\"n\": 7") && whole.contains("/x"), "{whole}");
        let lines = json(&Scrub::default(), &format!("{spec}\n{spec}\npassword=hunter5\n"));
        assert!(!lines.contains("hunter") && lines.lines().count() == 3, "{lines}");
    }
}
