//! The pods that the scheduler could not bind.

use serde_json::Value;
use serde_json::json;

use crate::core::escape;
use crate::core::json::Json;
use crate::core::model::ObjectKey;

use super::pick;

/// The scheduler's message about a pod for one node has one reason of that node, or one for each resource.
const LONGEST_REASON: usize = 512;
/// The UIDs of the API server's objects are shorter; what an owner reference calls one may be anything.
const LONGEST_UID: usize = 64;

/// A pod of `daemon` for `node` that the scheduler could not bind; none that is going. Which node it is for, the affinity says
/// that the DaemonSet controller sets (`util.GetTargetNodeName`).
pub(in crate::node::api) fn keep_pending(value: &Value, daemon: &ObjectKey, node: &str) -> Option<Value> {
    let is = |c: &Value, name: &str, text: &str| c.str_at(name) == text;
    let refused =
        |c: &&Value| is(c, "type", "PodScheduled") && is(c, "status", "False") && is(c, "reason", "Unschedulable");
    let why = value.list_at(["status", "conditions"]).iter().find(refused)?.str_at("message");
    let affinity = value.at(["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"])?;
    let fields = affinity.list_at("nodeSelectorTerms").iter().flat_map(|term| term.list_at("matchFields"));
    let of_name = |f: &&Value| is(f, "key", "metadata.name") && is(f, "operator", "In");
    fields.filter(of_name).find_map(|f| f.text_at(["values", "0"])).filter(|target| *target == node)?;
    let owns = |owner: &&Value| {
        is(owner, "kind", "DaemonSet")
            && is(owner, "name", &daemon.name)
            && owner.flag_at(["controller"])
            && owner.str_at("uid").len() <= LONGEST_UID
    };
    let metadata = value.get("metadata").filter(|metadata| metadata.get("deletionTimestamp").is_none())?;
    let owner = pick(metadata.list_at("ownerReferences").iter().find(owns)?, &["kind", "name", "uid", "controller"]);
    let mut kept = pick(metadata, &["name", "namespace", "uid"]);
    kept["ownerReferences"] = json!([owner]);
    let scheduled = json!({"type": "PodScheduled", "message": escape::short(why, LONGEST_REASON)});
    Some(json!({"metadata": kept, "status": {"conditions": [scheduled]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_waits_is_one_of_this_daemon_for_this_node() {
        let pod = || {
            let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
            json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {"x": "y"},
                    "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "o", "controller": true, "apiVersion": "apps/v1"}]},
                "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]}})
        };
        let keep = |pod: &Value| keep_pending(pod, &ObjectKey::new("a", "d"), "n");
        let owner = json!({"kind": "DaemonSet", "name": "d", "uid": "o", "controller": true});
        let kept = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "ownerReferences": [owner]},
            "status": {"conditions": [{"type": "PodScheduled", "message": "0/1"}]}});
        assert_eq!(keep(&pod()), Some(kept));
        let mut wordy = pod();
        wordy["status"]["conditions"][0]["message"] = json!("x".repeat(100 * LONGEST_REASON));
        assert!(keep(&wordy).unwrap().to_string().len() < 2 * LONGEST_REASON);
        let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
        for (pointer, value) in [
            (format!("{terms}/matchFields/0/values/0"), json!("other")),
            ("/status/conditions/0/reason".to_owned(), json!("SchedulerError")),
            ("/metadata/ownerReferences/0/name".to_owned(), json!("other")),
            ("/metadata/ownerReferences/0/kind".to_owned(), json!("Job")),
            ("/metadata/ownerReferences/0/controller".to_owned(), json!(false)),
            ("/metadata/ownerReferences/0/uid".to_owned(), json!("x".repeat(LONGEST_UID + 1))),
        ] {
            let mut pod = pod();
            *pod.pointer_mut(&pointer).unwrap() = value;
            assert_eq!(keep(&pod), None, "{pointer}");
        }
    }
}
