//! Turns the daemon's own recorded spec of a group into a plan for tests/bench/plain.sh: the same programs, environment,
//! graph and probes, so that the comparison stays fair when the recipes change.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An etcd RangeRequest for one key, as gRPC frames it: no compression, 8 bytes, field 1.
const RANGE: &[u8] = b"\0\0\0\0\x08\x0a\x06health";

/// The part of core's GroupSpec that a shell script needs.
#[derive(Debug, Deserialize)]
pub struct Spec {
    components: Vec<Component>,
}

#[derive(Debug, Deserialize)]
struct Component {
    name: String,
    needs: Vec<String>,
    kind: String,
    pre: Vec<Task>,
    launch: Launch,
    readiness: Readiness,
}

#[derive(Debug, Deserialize)]
struct Task {
    launch: Launch,
}

#[derive(Debug, Deserialize)]
struct Launch {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: PathBuf,
    dirs: Vec<PathBuf>,
    files: Vec<File>,
}

#[derive(Debug, Deserialize)]
struct File {
    path: PathBuf,
    mode: u32,
    content: String,
}

#[derive(Debug, Deserialize)]
struct Readiness {
    probe: Probe,
    interval: Duration,
    timeout: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Probe {
    Running,
    Http {
        url: String,
        expect: Vec<u16>,
        tls: Option<Tls>,
    },
    EtcdRange {
        socket: String,
        tls: Tls,
    },
    Exec {
        launch: Box<Launch>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Tls {
    ca: String,
    identity: Option<(String, String)>,
}

impl Spec {
    /// The spec of the last Declared event of a recorded log (`record_events = true`).
    pub fn recorded(log: &Path) -> Result<Spec> {
        let text = fs::read_to_string(log).with_context(|| format!("reading the event log {}", log.display()))?;
        let entries = text.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let declared = entries.into_iter().find(|entry| entry["event"] == "declared");
        let spec = declared.with_context(|| format!("{} has no declared event", log.display()))?["spec"].take();
        serde_json::from_value(spec).context("the recorded spec has another shape than bench/plain.rs reads")
    }

    /// Writes the plan below `folder`, which is emptied first.
    pub fn write_plan(&self, folder: &Path) -> Result<()> {
        let _absent = fs::remove_dir_all(folder);
        for component in &self.components {
            let here = folder.join(&component.name);
            fs::create_dir_all(&here).with_context(|| format!("creating {}", here.display()))?;
            let write = |name: &str, content: &[u8]| {
                fs::write(here.join(name), content).with_context(|| format!("writing {name} of {}", component.name))
            };
            let needs: String = component.needs.iter().map(|need| format!("{need}\n")).collect();
            write("needs", needs.as_bytes())?;
            write("kind", component.kind.as_bytes())?;
            write("interval", component.readiness.interval.as_micros().to_string().as_bytes())?;
            write("range.bin", RANGE)?;
            for (n, task) in component.pre.iter().enumerate() {
                write(&format!("pre-{n}.sh"), script(&task.launch).as_bytes())?;
            }
            write("main.sh", script(&component.launch).as_bytes())?;
            write("probe.sh", probe(component, &here.join("range.bin"))?.as_bytes())?;
        }
        Ok(())
    }
}

/// A shell script that becomes the program.
fn script(launch: &Launch) -> String {
    let mut text = String::from("set -e\numask 077\n");
    let dirs: Vec<String> = launch.dirs.iter().chain([&launch.cwd]).map(|dir| quoted(&dir.to_string_lossy())).collect();
    let _infallible = writeln!(text, "mkdir -p {}", dirs.join(" "));
    for file in &launch.files {
        let path = quoted(&file.path.to_string_lossy());
        let _infallible = writeln!(text, "printf %s {} >{path}\nchmod {:o} {path}", quoted(&file.content), file.mode);
    }
    let _infallible = writeln!(text, "cd {}", quoted(&launch.cwd.to_string_lossy()));
    let env = launch.env.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
    let words: Vec<String> = env.chain(launch.argv.iter().map(|word| quoted(word))).collect();
    let _infallible = writeln!(text, "exec env -i {}", words.join(" "));
    text
}

/// A shell script that succeeds when the component is ready, asking what the daemon asks.
fn probe(component: &Component, range: &Path) -> Result<String> {
    let limit = component.readiness.timeout.as_secs_f64();
    let curl = |tls: &Option<&Tls>| format!("curl -s -o /dev/null --max-time {limit} {}", certificates(tls));
    Ok(match &component.readiness.probe {
        Probe::Running => "exit 0\n".to_string(),
        Probe::Exec { launch } => script(launch),
        Probe::Http { url, expect, tls } => {
            let expect: Vec<String> = expect.iter().map(u16::to_string).collect();
            let ask = format!("{} -w '%{{http_code}}' {}", curl(&tls.as_ref()), quoted(url));
            format!("case \"$({ask})\" in {}) exit 0 ;; *) exit 1 ;; esac\n", expect.join("|"))
        }
        Probe::EtcdRange { socket, tls } => {
            let range = quoted(&format!("@{}", range.display()));
            let ask = format!(
                "{} --http2 --unix-socket {} -H 'content-type: application/grpc' -H 'te: trailers' --data-binary {range} \
                 -w '%{{size_download}}' https://localhost/etcdserverpb.KV/Range",
                curl(&Some(tls)),
                quoted(socket)
            );
            // An error has no message, only trailers.
            format!("[ \"$({ask})\" -gt 5 ]\n")
        }
        Probe::Other => bail!("tests/bench/plain.sh has no way to ask {} by its kind of probe; add it", component.name),
    })
}

fn certificates(tls: &Option<&Tls>) -> String {
    let Some(tls) = tls else { return String::new() };
    let identity = tls.identity.iter().map(|(cert, key)| format!(" --cert {} --key {}", quoted(cert), quoted(key)));
    format!("--cacert {}{}", quoted(&tls.ca), identity.collect::<String>())
}

/// One word for a shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn launch(argv: &[&str], folder: &Path) -> serde_json::Value {
        serde_json::json!({"argv": argv, "env": {"WORD": "it's $HOME"}, "cwd": folder.join("cwd"), "dirs": [folder.join("dir")],
            "files": [{"path": folder.join("dir/file"), "mode": 0o600, "content": "a 'quoted' $thing\n"}],
            "stale_sockets": [], "nofile": null, "core_limit": 0, "oom_score_adj": null})
    }

    fn component(
        name: &str,
        needs: &[&str],
        kind: &str,
        launch: serde_json::Value,
        probe: serde_json::Value,
    ) -> serde_json::Value {
        serde_json::json!({"name": name, "rank": 1, "needs": needs, "kind": kind, "pre": [], "launch": launch, "post": [],
            "readiness": {"probe": probe, "interval": {"secs": 0, "nanos": 20_000_000}, "timeout": {"secs": 1, "nanos": 0}}})
    }

    #[test]
    fn the_plan_is_what_the_daemon_would_run() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        // The service becomes ready late, and the one-shot that needs it would fail before.
        let service = launch(&["/bin/sh", "-c", "sleep 0.3; printf %s \"$WORD\" >ready; exec sleep 1000"], at);
        let ask = launch(&["/bin/sh", "-c", "test -e ready"], at);
        let log = serde_json::json!({"at": 1, "event": "declared", "spec": {"components": [
            component("late", &[], "service", service, serde_json::json!({"kind": "exec", "launch": ask})),
            component("after", &["late"], "one-shot", launch(&["/bin/cp", "ready", "seen"], at), serde_json::json!({"kind": "running"})),
        ]}});
        fs::write(at.join("events.jsonl"), format!("{{\"schema\": 1}}\n{log}\n")).unwrap();
        Spec::recorded(&at.join("events.jsonl")).unwrap().write_plan(&at.join("plan")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/plain.sh");
        let out = Command::new(script).arg(at.join("plan")).stdin(std::process::Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "ready\n", "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(fs::read_to_string(at.join("cwd/seen")).unwrap(), "it's $HOME");
        assert_eq!(fs::read_to_string(at.join("dir/file")).unwrap(), "a 'quoted' $thing\n");
        let pid = fs::read_to_string(at.join("plan/late/pid")).unwrap();
        assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "the service outlived the script");
    }

    #[test]
    fn a_kind_of_probe_that_the_script_cannot_ask_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let one = component(
            "odd",
            &[],
            "service",
            launch(&["/bin/true"], folder.path()),
            serde_json::json!({"kind": "notify"}),
        );
        let spec: Spec = serde_json::from_value(serde_json::json!({"components": [one]})).unwrap();
        assert!(spec.write_plan(&folder.path().join("plan")).unwrap_err().to_string().contains("odd"));
    }
}
