//! The files of `config/`: each parses, the commented settings too, and no key is left out.

use super::*;

fn config(name: &str) -> PathBuf {
    // The crate's folder is supervisor/daemon.
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

/// The text with its commented settings in force.
fn uncommented(text: &str) -> String {
    let open = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest.to_string(),
        _ => line.to_string(),
    };
    text.lines().map(|line| open(line) + "\n").collect()
}

#[test]
fn the_example_of_the_daemon_shows_every_default() {
    let text = fs::read_to_string(config("supervisor.toml")).unwrap();
    let site = Site::new(&text, &[]);
    let as_it_is = site.daemon();
    assert_eq!(as_it_is.defaults, DefaultsFile::default());

    fs::write(site.path("supervisor.toml"), uncommented(&text)).unwrap();
    let open = site.daemon();
    assert_eq!((open.ports, open.log, open.watchdog), (as_it_is.ports, as_it_is.log, as_it_is.watchdog));
    assert_eq!(
        (open.budgets.restarts, open.budgets.start_hold),
        (as_it_is.budgets.restarts, as_it_is.budgets.start_hold)
    );
    assert_eq!((open.clusters_dir, open.allow_tmpfs, open.record_events), (as_it_is.clusters_dir, false, false));
    assert_eq!(open.binaries.search, as_it_is.binaries.search);
    assert!(open.defaults.liveness);
}

#[test]
fn the_examples_leave_no_key_out() {
    let daemon = fs::read_to_string(config("supervisor.toml")).unwrap();
    let tenant = fs::read_to_string(config("clusters.d/demo.toml")).unwrap();
    let web = fs::read_to_string(config("examples/web.toml")).unwrap();
    // Left out on purpose: what excludes another key or has a whole sentence in the example.
    let known = ["name", "key", "cert", "ca", "address", "path", "fd", "contains", "rank"];
    for (kind, text) in [(FileKind::Supervisor, daemon.clone()), (FileKind::Cluster, daemon + &tenant + &web)] {
        for key in keys(&schema(kind)) {
            assert!(known.contains(&key.as_str()) || text.contains(&key), "no example shows {key}");
        }
    }
}

/// Every key of every table of a schema.
fn keys(schema: &serde_json::Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    match schema {
        serde_json::Value::Object(map) => {
            if let Some(properties) = map.get("properties").and_then(|p| p.as_object()) {
                all.extend(properties.keys().cloned());
            }
            map.values().for_each(|v| all.extend(keys(v)));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|v| all.extend(keys(v))),
        _ => {}
    }
    all
}

#[test]
fn every_cluster_example_parses_and_so_do_its_commented_settings() {
    for name in ["clusters.d/demo.toml", "demo/clusters.d/demo.toml", "examples/web.toml"] {
        let path = config(name);
        let cluster = load_cluster(&path).unwrap_or_else(|e| panic!("{e}"));
        let text = uncommented(cluster.source.text());
        parse_cluster(cluster.name.clone(), Source::new(&path, &text)).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn the_demo_is_one_tenant_that_runs() {
    let (file, vars, flags) = (config("demo/supervisor.toml"), env(&[("HOME", "/h")]), Overrides::default());
    let known = BTreeSet::new();
    let loaded = load(&Inputs { file: &file, env: &vars, flags: &flags, known: &known, may_be_empty: false }).unwrap();
    let demo = loaded.declared.clusters[0].as_ref().unwrap();
    assert_eq!((demo.name.as_str(), demo.account(), demo.running()), ("demo", Some("demo"), true));
    assert_eq!(loaded.declared.clusters.len(), 1);
}

#[test]
fn the_schemas_refuse_unknown_keys_and_say_what_is_required() {
    let cluster = schema(FileKind::Cluster);
    assert_eq!(cluster["additionalProperties"], false);
    assert_eq!(cluster["$defs"]["ComponentFile"]["required"], serde_json::json!(["name", "argv"]));
    assert_eq!(schema(FileKind::Supervisor)["additionalProperties"], false);
    assert_eq!(schema(FileKind::Supervisor)["properties"]["state_dir"]["type"], serde_json::json!(["string", "null"]));
}
