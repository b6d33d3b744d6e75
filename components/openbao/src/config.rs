//! OpenBao's configuration, in JSON (which its parser takes as well as HCL) so that no path needs quoting rules of ours.

use crate::Ports;
use serde_json::json;
use socialweb_credentials::Layout;
use socialweb_credentials::recipe::path_text;
use std::path::Path;

/// The same for the first start and for every later one, but for the place of the storage: raft keeps its node id and
/// cluster address, and both stay, so the finished folder can be renamed.
pub(crate) fn render(layout: &Layout, ports: Ports, storage: &Path) -> String {
    let tls = layout.openbao_server();
    let config = json!({
        "storage": { "raft": {
            "path": path_text(storage),
            "node_id": "openbao",
            // The default of 5 is for slow networks between nodes; alone, it only makes the first election slow.
            "performance_multiplier": "1",
        }},
        "listener": [{ "tcp": {
            "address": format!("127.0.0.1:{}", ports.api),
            "cluster_address": format!("127.0.0.1:{}", ports.cluster),
            "tls_cert_file": path_text(&tls.cert),
            "tls_key_file": path_text(&tls.key),
            "tls_min_version": "tls13",
        }}],
        "seal": { "static": {
            "current_key_id": "1",
            "current_key": format!("file://{}", path_text(&layout.seal_key())),
        }},
        "api_addr": format!("https://127.0.0.1:{}", ports.api),
        "cluster_addr": format!("https://127.0.0.1:{}", ports.cluster),
        // Nobody reads its gauges, and each of them walks the storage every ten minutes.
        "telemetry": { "usage_gauge_period": "none" },
        "ui": false,
    });
    format!("{config:#}\n")
}

pub(crate) fn argv(binary: &Path, config: &Path) -> Vec<String> {
    vec![path_text(binary), "server".into(), "-config".into(), path_text(config)]
}
