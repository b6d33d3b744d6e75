//! A real tenant: real kine, real OpenBao, a real API server, kubectl from outside. One tenant per test, one test at a
//! time (`SERIAL`): each takes half a gigabyte.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod tenant;
mod witness;

use socialweb_wire::Phase;
use std::fs;
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{send, skip, wait_for};
use tenant::Tenant;
use witness::Witness;

static SERIAL: Mutex<()> = Mutex::new(());

fn serial() -> MutexGuard<'static, ()> {
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_tenant_is_ready_with_zero_nodes_and_goes_down_in_reverse_leaving_nothing() {
    let _one = serial();
    let Some(mut tenant) = Tenant::ready("a_tenant_is_ready") else { return };
    assert_eq!(tenant.namespaces(), ["default", "kube-node-lease", "kube-public", "kube-system", "users"]);
    assert_eq!(tenant.kubectl(&["get", "nodes", "-o", "name"]).trim(), "");
    let users = tenant.kubectl(&["get", "namespace", "users", "-o", "jsonpath={.metadata.annotations}"]);
    assert!(users.contains("socialweb.computer/applied-by") && users.contains("control-plane"), "{users}");
    tenant.kubeconfig_holds_no_secret();
    tenant.secrets_are_private_and_nowhere_else();
    let port = tenant.port();
    tenant.daemon.stop();
    tenant.daemon.assert_nothing_left();
    TcpListener::bind(("127.0.0.1", port)).expect("no listening port is left");
    let receipts = tenant.daemon.receipts("demo");
    let order: Vec<_> = receipts.last().unwrap().components.iter().map(|c| c.component.clone()).collect();
    let place = |name: &str| order.iter().position(|c| c == name).unwrap();
    assert!(place("bring-up") < place("k3s") && place("k3s") < place("kine").min(place("openbao")), "{order:?}");
    assert_eq!(place("credentials"), order.len() - 1);
}

#[test]
fn kill_9_of_each_part_ends_with_the_same_tenant_on_the_same_port_and_nothing_twice() {
    let _one = serial();
    let Some(mut tenant) = Tenant::ready("kill_9_of_each_part") else { return };
    let port = tenant.port();
    tenant.kubectl(&["create", "configmap", "before", "--from-literal=a=b"]);
    for part in ["kine", "k3s", "openbao"] {
        let old = tenant.pid(part);
        send(old, 9);
        wait_for(&format!("{part} is another process and the group Ready"), || {
            let group = tenant.daemon.group("demo");
            let new = group.component(part)?.pid?;
            (group.phase == Phase::Ready && new != old).then_some(())
        });
        tenant.still_the_same(port);
    }
    let old: Vec<u32> = ["kine", "k3s", "openbao"].map(|part| tenant.pid(part)).to_vec();
    tenant.daemon.kill_9();
    tenant.daemon.start();
    tenant.daemon.wait_phase("demo", Phase::Ready);
    tenant.still_the_same(port);
    let running = tenant.daemon.marked();
    assert!(
        old.iter().all(|pid| !running.iter().any(|(p, _)| p == pid)),
        "nothing of the old run is left: {running:?}"
    );
    for part in ["kine", "bao"] {
        assert_eq!(running.iter().filter(|(_, comm)| comm == part).count(), 1, "{part} runs once: {running:?}");
    }
    let servers = running.iter().filter(|(_, comm)| comm == "kube-server" || comm.starts_with("k3s")).count();
    assert_eq!(servers, 1, "one server: {running:?}");
    tenant.daemon.stop();
    tenant.daemon.assert_nothing_left();
}

#[test]
fn no_ambient_kubeconfig_proxy_or_home_is_read() {
    // Law L13, as far as one can poison it: a KUBECONFIG and a HOME whose kubeconfig point elsewhere, proxies that lead
    // nowhere; and the kernel's word on who opened those files and the server's own admin kubeconfig.
    let _one = serial();
    let Some(tenant) = Tenant::prepare("no_ambient_kubeconfig") else { return };
    let home = tenant.daemon.dir.join("home");
    fs::create_dir_all(home.join(".kube")).unwrap();
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let server = format!("https://{}", trap.local_addr().unwrap());
    let poison = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: x, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\nusers: [{{name: x, user: {{token: x}}}}]\ncurrent-context: x\n"
    );
    fs::write(home.join(".kube/config"), &poison).unwrap();
    let witness = Witness::of(&tenant.daemon.dir);
    let mut tenant = tenant
        .with_env("HOME", home.to_str().unwrap())
        .with_env("KUBECONFIG", home.join(".kube/config").to_str().unwrap())
        .with_env("HTTPS_PROXY", &server)
        .with_env("https_proxy", &server)
        .with_env("ALL_PROXY", &server)
        .with_env("VAULT_ADDR", &server)
        .with_env("BAO_ADDR", &server)
        .start();
    assert_eq!(tenant.namespaces().len(), 5);
    assert!(trap.accept().is_err(), "somebody followed an ambient file or variable");
    tenant.daemon.stop();
    let Some(opened) = witness.map(|w| w.opened()) else {
        return skip(
            "no_ambient_kubeconfig",
            "fanotify: the kernel does not tell who opens a file; the rest was tested",
        );
    };
    let traps: Vec<_> =
        opened.iter().filter(|(_, path)| path.contains("/home/.kube") || path.contains("admin-do-not-read")).collect();
    let server = ["kube-server", "k3s", "k3s-server"];
    let others: Vec<_> = traps.iter().filter(|(comm, _)| !server.contains(&comm.as_str())).collect();
    assert!(others.is_empty(), "these read what is not theirs: {others:?}");
    assert!(!traps.is_empty(), "the server itself writes its admin kubeconfig; a witness that saw nothing is blind");
}

#[test]
fn a_group_can_be_stopped_and_deleted_at_every_step_of_its_bring_up() {
    // kubermatic/kubermatic 3720 and rancher/k3k 1169: deletion works before the control plane was ever up, and asks
    // nothing of the thing being deleted.
    let _one = serial();
    for step in ["credentials", "openbao", "k3s", "bring-up"] {
        let Some(tenant) = Tenant::prepare("stopped_at_every_step") else { return };
        let mut tenant = tenant.start_without_waiting();
        wait_for(&format!("{step} has begun"), || {
            let group = tenant.daemon.try_status()?.group("demo")?.clone();
            let state = &group.component(step)?.state;
            (state != "Idle" && state != "Waiting").then_some(())
        });
        tenant.daemon.remove_cluster("demo");
        // A second file, so that the folder is not empty, which would read as a lost mount.
        tenant
            .daemon
            .write_cluster("other", "kind = \"exec\"\n[[component]]\nname = \"a\"\nargv = [\"/bin/sleep\", \"9\"]\n");
        tenant.daemon.ctl(&["reload"]);
        tenant.daemon.wait_phase("demo", Phase::Parked);
        tenant.daemon.ctl_ok(&["delete", "demo", "--yes"]);
        assert!(!tenant.daemon.state().join("groups/demo").exists(), "deleted during {step}");
        tenant.daemon.stop();
        tenant.daemon.assert_nothing_left();
    }
}

#[test]
fn a_token_or_ca_that_changed_is_an_error_and_never_a_new_cluster() {
    // k3s-io/k3s 12388 and 10363, rancher/k3k 278: a lost token or another CA must not silently make another cluster.
    let _one = serial();
    let Some(mut tenant) = Tenant::ready("a_token_or_ca_that_changed") else { return };
    tenant.daemon.stop();
    let group = tenant.daemon.state().join("groups/demo");
    let token = find(&group, "server-token").expect("the server token");
    let kept = fs::read(&token).unwrap();
    fs::write(&token, "another").unwrap();
    tenant.daemon.start();
    wait_for("the changed token is named", || {
        let group = tenant.daemon.group("demo");
        let logs = tenant.daemon.ctl_ok(&["logs", "demo/credentials"]);
        (group.phase != Phase::Ready && logs.contains("server-token")).then_some(())
    });
    fs::write(&token, kept).unwrap();
    tenant.daemon.ctl_ok(&["start", "demo"]);
    tenant.daemon.wait_phase("demo", Phase::Ready);
    assert_eq!(tenant.namespaces().len(), 5);
    tenant.daemon.stop();
}

fn find(dir: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|n| n.to_string_lossy().contains(name)) {
            return Some(path);
        }
    }
    None
}
