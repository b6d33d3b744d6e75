//! `[limits]`: what it comes to, what it refuses, and where a changed bound stands.

use super::*;
use socialweb_core::{ComponentName, CoreBudget, Limits};

fn exec(top: &str, component: &str) -> String {
    format!("kind = \"exec\"\n{top}\n[[component]]\nname = \"a\"\nargv = [\"/bin/sh\"]\n{component}\n")
}

fn spec(text: &str) -> socialweb_core::GroupSpec {
    let site = Site::new("", &[]);
    let (daemon, vars) = (site.daemon(), site.env());
    let binaries = Binaries::new(&daemon.binaries, &vars, Path::new("/opt/sc"));
    let ports = BTreeMap::new();
    let cluster = cluster(text).unwrap();
    expand(&cluster, &Context::new(&daemon, &cluster.name, &ports, &binaries, Path::new("/opt/sc"), &vars))
        .unwrap()
        .spec
}

#[test]
fn bounds_of_the_group_and_of_a_component_arrive_as_they_were_written() {
    let top = "[limits]\nmemory_max = \"1GiB\"\ncpu = 1.5\ncore_count = 2\n";
    let got = spec(&exec(
        top,
        "limits = { memory_high = 2097152, cpu = 2, pids_max = 9, io_weight = 7, core_max = \"1MiB\" }",
    ));
    let none = Limits::default();
    assert_eq!(got.limits, Limits { memory_max: Some(1 << 30), cpu_millis: Some(1500), ..none });
    assert_eq!(got.cores, CoreBudget { count: 2, ..CoreBudget::default() });
    let a = &got.components[0];
    let want =
        Limits { memory_high: Some(2 << 20), cpu_millis: Some(2000), pids_max: Some(9), io_weight: Some(7), ..none };
    assert_eq!((a.limits, a.launch.core_limit), (want, 1 << 20));
    let plain = spec(&exec("", ""));
    assert_eq!((plain.limits, plain.cores, plain.components[0].limits), (none, CoreBudget::default(), none));
    assert_eq!(plain.components[0].launch.core_limit, 0);
    assert_eq!(spec(&exec("[limits]\ncpu = \"0.25\"", "")).limits.cpu_millis, Some(250));
}

#[track_caller]
fn refused(text: &str, expect: &[&str]) {
    let error = cluster(text).unwrap_err();
    let got: Vec<String> = error.findings.iter().map(ToString::to_string).collect();
    assert_eq!(got, expect, "in:\n{text}");
}

#[test]
fn a_bound_that_makes_no_sense_is_refused_with_its_place() {
    refused(
        &exec("[limits]\nmemory_max = 4096\ncpu = 0.001\npids_max = 0\nio_weight = 0", ""),
        &[
            "web.toml:3:14: \"limits.memory_max\" must be at least \"1MiB\"",
            "web.toml:4:7: \"limits.cpu\" must be at least 0.01",
            "web.toml:5:12: \"limits.pids_max\" must be at least 1",
            "web.toml:6:13: \"limits.io_weight\" must be between 1 and 10000",
        ],
    );
    refused(
        &exec("", "limits = { memory_max = \"2MiB\", memory_high = \"3MiB\" }"),
        &["web.toml:6:47: component a: \"limits.memory_high\" must not be above the \"memory_max\" beside it"],
    );
    refused(
        &exec("[limits.kine]\npids_max = 5", ""),
        &["web.toml:2:9: \"limits.kine\" is for tenants; give the component its own limits = { ... }"],
    );
    refused(
        "account = \"a\"\n[limits.k3s]\nmemory_max = 1\n",
        &["web.toml:3:14: \"limits.k3s.memory_max\" must be at least \"1MiB\""],
    );
    for wrong in ["cpu = -1", "cpu = \"many\"", "cpu = nan", "memory_max = 1.5", "memory = 1", "core_max = 1"] {
        assert!(cluster(&exec(&format!("[limits]\n{wrong}"), "")).is_err(), "{wrong}");
    }
}

#[test]
fn a_changed_bound_is_found_in_its_file() {
    let cluster = cluster("account = \"a\"\n[limits]\ncpu = 1\n[limits.k3s]\ncore_max = 1\nmemory_max = \"1GiB\"\n[[component]]\nname = \"x\"\nargv = [\"/x\"]\n[component.limits]\npids_max = 5\ncore_max = 7\n").unwrap();
    let line = |component: &str, key: &str| {
        locate(&cluster, &ComponentName::new(component).unwrap(), key).map(|place| place.line)
    };
    assert_eq!(locate_group(&cluster, "limits.cpu").map(|p| p.line), Some(3));
    assert_eq!((line("k3s", "core_limit"), line("k3s", "limits.memory_max")), (Some(5), Some(6)));
    assert_eq!((line("x", "limits.pids_max"), line("x", "core_limit")), (Some(11), Some(12)));
    // A bound that was taken away stands nowhere; its component does.
    assert_eq!((line("x", "limits.cpu"), line("k3s", "limits.cpu")), (Some(7), None));
}
