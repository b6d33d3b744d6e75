//! Lines without secrets: by what secrets look like, by the name before them, and by what is known to be one.

use super::LEFT_OUT;
use std::collections::BTreeSet;

/// Names of things whose values are secrets, in lower case; a part of a name counts.
const NAMES: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "credential",
    "private",
    "authorization",
    "cookie",
    "unseal",
    "dsn",
    "bearer",
];
/// A PEM block without its end is left out for this many lines.
const PEM_LINES: usize = 200;

/// Scrubs text.
#[derive(Debug, Clone, Default)]
pub struct Scrub {
    /// Secrets of this host, the longest first, so that a part of one does not spoil the whole.
    known: Vec<String>,
}

impl Scrub {
    /// Knows these secrets; a short one would blot out half of every text and is not looked for.
    pub fn knowing(secrets: &BTreeSet<String>) -> Scrub {
        let mut known: Vec<String> = secrets.iter().filter(|secret| secret.len() >= 6).cloned().collect();
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Scrub { known }
    }

    /// The text, line by line; a PEM block over several lines is one secret.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut inside = 0;
        for line in text.lines() {
            if inside > 0 {
                inside = if line.contains("-----END ") { 0 } else { inside - 1 };
                continue;
            }
            let (line, open) = without_pem(line);
            inside = if open { PEM_LINES } else { 0 };
            out.push_str(&self.line(&line));
            out.push('\n');
        }
        out
    }

    /// One line that is part of no PEM block.
    pub fn line(&self, line: &str) -> String {
        let mut line = line.to_string();
        for secret in &self.known {
            if line.contains(secret.as_str()) {
                line = line.replace(secret.as_str(), LEFT_OUT);
            }
        }
        let line = without_userinfo(&without_named(&line));
        without_random(&line)
    }
}

/// True for a name whose value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|word| name.contains(word))
}

/// PEM blocks of one line; true when the last one has no end.
fn without_pem(line: &str) -> (String, bool) {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("-----BEGIN ") {
        out.push_str(&rest[..at]);
        out.push_str(LEFT_OUT);
        let Some(end) = rest[at..].find("-----END ") else { return (out, true) };
        let after = &rest[at + end + "-----END ".len()..];
        rest = after.find("-----").map_or("", |close| &after[close + 5..]);
    }
    out.push_str(rest);
    (out, false)
}

/// Values that follow a telling name: `token=x`, `"token": "x"`, `Authorization: Bearer x`, `--password x`.
fn without_named(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut out = String::with_capacity(line.len());
    let mut at = 0;
    while let Some((from, to)) = next_value(line, &lower, at) {
        out.push_str(&line[at..from]);
        out.push_str(LEFT_OUT);
        at = to;
    }
    out.push_str(&line[at..]);
    out
}

/// The next value after a telling name at or behind `from`, as bytes of the line.
fn next_value(line: &str, lower: &str, from: usize) -> Option<(usize, usize)> {
    let mut search = from;
    loop {
        // The name that begins first.
        let hits = NAMES.iter().filter_map(|name| lower[search..].find(name).map(|at| (search + at, name.len())));
        let (start, length) = hits.min()?;
        let name_end = start
            + length
            + lower[start + length..].find(|c: char| !is_name(c)).unwrap_or(lower.len() - start - length);
        if let Some(value) = value_at(line, start, name_end).filter(|(from, to)| from < to) {
            return Some(value);
        }
        search = name_end;
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The value that belongs to the name that ends there, if one does.
fn value_at(line: &str, name_start: usize, name_end: usize) -> Option<(usize, usize)> {
    let rest = &line[name_end..];
    let quotes = |c: char| matches!(c, '"' | '\'' | '\\' | '`');
    let unquoted = rest.trim_start_matches(quotes);
    let flag = line[..name_start]
        .rsplit(char::is_whitespace)
        .next()
        .is_some_and(|word| word.starts_with('-') || word.starts_with("\"-"));
    let flag = flag || line[name_start..].starts_with('-');
    let value = match unquoted.trim_start().strip_prefix([':', '=']) {
        Some(value) => value.trim_start(),
        // A flag's value is the next word.
        None if flag && unquoted.starts_with([' ', ',', '\t']) => unquoted.trim_start_matches([' ', ',', '\t']),
        None => return None,
    };
    let quoted = value.starts_with(quotes);
    let value = value.trim_start_matches(quotes);
    let from = line.len() - value.len();
    let ends =
        |c: char| quotes(c) || (!quoted && (c.is_whitespace() || matches!(c, ',' | ';' | '&' | '}' | ']' | ')')));
    let mut to = from + value.find(ends).unwrap_or(value.len());
    // The scheme is no secret, what follows it is.
    if matches!(value[..to - from].to_ascii_lowercase().as_str(), "bearer" | "basic" | "token") {
        let next = line[to..].trim_start();
        let begin = line.len() - next.len();
        to = begin + next.find(|c: char| c.is_whitespace() || quotes(c)).unwrap_or(next.len());
    }
    Some((from, to))
}

/// `user:password@`, in URLs and DSNs.
fn without_userinfo(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for word in line.split_inclusive(char::is_whitespace) {
        let begin = word.find("://").map_or(0, |at| at + 3);
        match word[begin..].rfind('@').map(|at| begin + at) {
            Some(at) if word[begin..at].contains(':') => {
                out.push_str(&word[..begin]);
                out.push_str(LEFT_OUT);
                out.push_str(&word[at..]);
            }
            _ => out.push_str(word),
        }
    }
    out
}

/// Runs of characters that nobody chose: keys, tokens, digests, encoded bytes.
fn without_random(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_encoded) {
        out.push_str(&rest[..start]);
        let run = &rest[start..];
        let end = run.find(|c| !is_encoded(c)).unwrap_or(run.len());
        out.push_str(if looks_random(&run[..end]) { LEFT_OUT } else { &run[..end] });
        rest = &run[end..];
    }
    out.push_str(rest);
    out
}

fn is_encoded(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-' | '.')
}

fn looks_random(run: &str) -> bool {
    run.split(['/', '=']).any(|part| {
        let count = |is: fn(&u8) -> bool| part.bytes().filter(is).count();
        let (digits, upper, lower) =
            (count(u8::is_ascii_digit), count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase));
        let mixed = part.len() >= 16 && digits >= 2 && upper >= 2 && lower >= 2;
        let hex = part
            .split(['-', '.', '_'])
            .any(|word| word.len() >= 32 && digits > 0 && word.bytes().all(|b| b.is_ascii_hexdigit()));
        mixed || hex || is_bootstrap_token(part) || part.starts_with("eyJ") && part.len() > 10
    })
}

/// Kubernetes' `abcdef.0123456789abcdef`.
fn is_bootstrap_token(part: &str) -> bool {
    part.split_once('.').is_some_and(|(id, secret)| {
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        (id.len(), secret.len()) == (6, 16) && plain(id) && plain(secret)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line keeps `keeps` and loses `loses`.
    fn check(line: &str, loses: &str, keeps: &str) {
        let got = Scrub::default().text(line);
        assert!(!got.contains(loses), "{loses:?} is still in {got:?}");
        assert!(got.contains(keeps), "{keeps:?} is no longer in {got:?}");
    }

    #[test]
    fn values_after_telling_names_go_and_the_rest_stays() {
        check("level=info token=abc123 user=bob", "abc123", "user=bob");
        check(r#"{"root_token": "s.short", "name": "demo"}"#, "s.short", r#""name": "demo""#);
        check(r#"msg="{\"password\":\"hunter2\"}" ok"#, "hunter2", "ok");
        check("Authorization: Bearer abcdef more", "abcdef", "more");
        check("run --password hunter2 --port 80", "hunter2", "--port 80");
        check("DB_PASSWORD=hunter2", "hunter2", "DB_PASSWORD=");
        check("secret: 'two words' after", "two words", "after");
        check("unseal key 1: x", "nothing-of-it", "unseal key 1: x");
    }

    #[test]
    fn addresses_lose_their_accounts() {
        check("dialing postgres://bob:hunter2@db:5432/kine now", "hunter2", "@db:5432/kine now");
        check("bob:hunter2@tcp(db:3306)/kine", "hunter2", "tcp(db:3306)");
        check("mail to bob@example.org: sent", "nothing-of-it", "bob@example.org");
        check("https://127.0.0.1:61000/readyz", "nothing-of-it", "https://127.0.0.1:61000/readyz");
    }

    #[test]
    fn what_nobody_chose_goes() {
        check("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln back", "eyJ", "back");
        check("s.AbCdEfGh12345678AbCdEfGh", "AbCdEfGh", "");
        check("join abcdef.0123456789abcdef", "0123456789abcdef", "join");
        check(&format!("digest {}", "0123456789abcdef".repeat(4)), "0123456789abcdef", "digest");
        check("MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6AgEAAkEA/q3", "MIIB", "");
    }

    #[test]
    fn what_people_read_stays() {
        for line in [
            "cannot open /var/lib/socialweb-computer/groups/demo/kine/state.db: no such file",
            "pod nginx-5d8f7c9b4-x2x4z is 7c1f2d64-58a4-4a0e-9f0a-0c8d5b2f3a11",
            "2026-11-30T23:42:46.123Z 1764546166000 6 started, pid 4711",
            "GET https://127.0.0.1:61000/readyz: connection refused",
            "cgroup /sys/fs/cgroup/unified/socialweb-0123456789ab/demo/kine/3 has 4 processes",
        ] {
            assert_eq!(Scrub::default().text(line), format!("{line}\n"));
        }
    }

    #[test]
    fn pem_blocks_go_over_one_line_and_many() {
        let key = "a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\nabc\n-----END EC PRIVATE KEY-----\nb\n";
        assert_eq!(Scrub::default().text(key), format!("a\n{LEFT_OUT}\nb\n"));
        let one = r"x -----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE----- y";
        assert_eq!(Scrub::default().text(one), format!("x {LEFT_OUT} y\n"));
        let cut = format!("-----BEGIN X-----\n{}", "abc\n".repeat(PEM_LINES + 1));
        assert_eq!(Scrub::default().text(&cut), format!("{LEFT_OUT}\nabc\n"), "a block without end ends in time");
    }

    #[test]
    fn known_secrets_go_wherever_they_are() {
        let scrub =
            Scrub::knowing(&BTreeSet::from(["correct horse".into(), "correct horse battery".into(), "ab".into()]));
        assert_eq!(scrub.text("say correct horse battery, abc"), format!("say {LEFT_OUT}, abc\n"));
    }
}
