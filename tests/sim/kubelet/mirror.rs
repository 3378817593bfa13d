//! The mirror pods of what the kubelet runs.

use serde_json::Value;
use serde_json::json;

use super::Phase;
use super::Pod;

pub(super) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
}

pub(super) fn mirror(pod: &Pod, name: &str, node: &str, owner: &Value, status: Value) -> Value {
    let mut mirror = Value::clone(&pod.manifest.whole);
    mirror["metadata"]["name"] = name.into();
    if let Some(metadata) = mirror["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    for annotation in ["kubernetes.io/config.mirror", "kubernetes.io/config.hash"] {
        mirror["metadata"]["annotations"][annotation] = pod.manifest.uid.clone().into();
    }
    mirror["metadata"]["annotations"]["kubernetes.io/config.source"] = "file".into();
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true}]);
    mirror["spec"]["nodeName"] = node.into();
    mirror["status"] = status;
    mirror
}

pub(super) fn status(pod: &Pod, is_running: bool) -> Value {
    let since = match pod.phase {
        Phase::Running { since } => since,
        _ => 0,
    };
    let since = jiff::Timestamp::from_second(since / 1_000).unwrap_or_default().to_string();
    let ready = if is_running { "True" } else { "False" };
    let phase = if is_running { "Running" } else { "Pending" };
    let state = match is_running {
        true => json!({"running": {"startedAt": since}}),
        false if pod.manifest.is_bad && pod.restarts > 0 => json!({"waiting": {"reason": "CrashLoopBackOff",
            "message": "back-off restarting failed container"}}),
        false if pod.is_held => json!({"waiting": {"reason": "CreateContainerConfigError"}}),
        false => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    let transition = if is_running { json!(since) } else { Value::Null };
    json!({"phase": phase,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": transition}],
        "containerStatuses": [{"name": "main", "ready": is_running, "restartCount": pod.restarts, "state": state,
            "image": "img", "imageID": "img"}]})
}
