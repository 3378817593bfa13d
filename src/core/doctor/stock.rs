//! Whether a stock DaemonSet controller acts on the daemons of this node.
//!
//! Owns how it is recognised, and what of a DaemonSet that takes.

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::Mode;

use super::Finding;

/// Whether a stock DaemonSet controller acts on a daemon that runs here in its place: it has pods here, or it wrote
/// the status of the current generation.
pub(super) fn examine(daemons: &[(Value, Mode, Vec<String>)]) -> Vec<Finding> {
    const CHECK: &str = "DaemonSet controller";
    const HINT: &str = "switch the DaemonSet controller off (--controllers=*,-daemonset-controller), or label the \
                        DaemonSet daemonlet.dev/mode=bootstrap";
    let mut findings = Vec::new();
    for (daemon_set, _, pods) in daemons.iter().filter(|(_, mode, _)| *mode == Mode::Static) {
        let [namespace, name] = ["namespace", "name"].map(|field| daemon_set.str_at(["metadata", field]));
        let name = format!("{namespace}/{name}");
        if !pods.is_empty() {
            let text = format!("{name} runs here twice: pod {} is the DaemonSet controller's", pods.join(", "));
            findings.push(Finding::bad(CHECK, text, HINT));
        } else if writes_status(daemon_set) {
            let text = format!("kube-controller-manager manages the status of {name}, which is static on this node");
            findings.push(Finding::warn(CHECK, text, HINT));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "none acts on the daemons of this node"));
    }
    findings
}

/// The examined parts of a DaemonSet.
pub fn part_examined(daemon_set: &Value) -> Value {
    let of = |field: &str| daemon_set.at(["metadata", field]);
    json!({
        "metadata": {"namespace": of("namespace"), "name": of("name"), "generation": of("generation"),
            "managedFields": last_of_status(daemon_set).into_iter().collect::<Vec<_>>()},
        "status": {"observedGeneration": daemon_set.at(["status", "observedGeneration"])},
    })
}

/// Who wrote the status last.
fn last_of_status(daemon_set: &Value) -> Option<&Value> {
    let entries = daemon_set.list_at(["metadata", "managedFields"]);
    let of_status = entries.iter().filter(|entry| entry["subresource"] == "status");
    of_status.max_by_key(|entry| entry["time"].as_str().unwrap_or_default())
}

/// Whether kube-controller-manager wrote the status last, for the current generation.
fn writes_status(daemon_set: &Value) -> bool {
    let last = last_of_status(daemon_set);
    let observed = daemon_set.at(["status", "observedGeneration"]);
    observed.is_some_and(|observed| !observed.is_null())
        && observed == daemon_set.at(["metadata", "generation"])
        && last.is_some_and(|entry| entry["manager"] == "kube-controller-manager")
}
