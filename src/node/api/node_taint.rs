//! The taint of a node that waits for its daemons.
//!
//! Owns the write. It is made only after the API server has shown, by a dry run, that the policy in front of the right
//! refuses another change of the Node. The list of taints is replaced as a whole, so the write carries the version that
//! it was read in. Must not decide when it is made.

use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::STARTING_TAINT;
use crate::core::startup_taint;
use crate::core::startup_taint::POLICY;
use crate::core::startup_taint::probe;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::own_node;
use crate::node::api::own_node::NodeWriteResult;

/// The kubelet and controllers write the Node, too: how often the write is made again with what they wrote.
const TRIES: usize = 5;

/// What becomes of the taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TaintChange {
    Set,
    Remove,
}

/// Makes the change to the Node `name`, unless it has another UID than `uid`.
pub(super) async fn change(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    change: TaintChange,
) -> NodeWriteResult {
    try_change(client, name, uid, change).await.err().unwrap_or(NodeWriteResult::Done)
}

async fn try_change(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    change: TaintChange,
) -> Result<(), NodeWriteResult> {
    let nodes = own_node::nodes(client);
    let mut is_shown = false;
    let mut conflict = ApiFailure::new(FailureKind::Conflict, "the Node changes all the time");
    for _ in 0..TRIES {
        let node = own_node::read(client, name, uid).await?;
        let Some(patch) = patch(&node, change) else { return Ok(()) };
        if !is_shown {
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            own_node::refused(POLICY, nodes.patch(name, &dry_run, &Patch::Merge(probe())).await)?;
            is_shown = true;
        }
        match nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => conflict = ApiFailure::status(&status),
            Err(error) => return Err(ApiFailure::from_kube(&error).into()),
        }
    }
    Err(conflict.into())
}

/// The merge patch that makes the change; `None`: the Node is as it is to be.
fn patch(node: &Value, change: TaintChange) -> Option<Value> {
    let before = node.list_at(["spec", "taints"]);
    let others = before.iter().filter(|taint| taint.str_at("key") != STARTING_TAINT);
    let ours = json!({"key": STARTING_TAINT, "effect": "NoSchedule"});
    let after: Vec<Value> = others.cloned().chain((change == TaintChange::Set).then_some(ours)).collect();
    let version = node.str_at(["metadata", "resourceVersion"]);
    let is_done = match change {
        TaintChange::Set => startup_taint::is_set(node),
        TaintChange::Remove => !startup_taint::is_named(node),
    };
    (!is_done).then(|| json!({"metadata": {"resourceVersion": version}, "spec": {"taints": after}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: Value) -> Value {
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"podCIDR": "10.0.0.0/24", "taints": taints}})
    }

    #[test]
    fn only_our_taint_changes_and_only_in_the_version_that_was_read() {
        let other = json!({"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let ours = json!({"key": STARTING_TAINT, "effect": "NoSchedule"});
        let registered = json!({"key": STARTING_TAINT, "value": "", "effect": "NoSchedule"});
        let to = |taints: Value| Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}));
        assert_eq!(patch(&node(Value::Null), TaintChange::Set), to(json!([ours])));
        assert_eq!(patch(&node(json!([other])), TaintChange::Set), to(json!([other, ours])));
        assert_eq!(patch(&node(json!([registered, other])), TaintChange::Remove), to(json!([other])));
        assert_eq!(patch(&node(json!([other, registered])), TaintChange::Set), None);
        assert_eq!(patch(&node(json!([other])), TaintChange::Remove), None);
        let soft = json!({"key": STARTING_TAINT, "effect": "PreferNoSchedule"});
        assert_eq!(patch(&node(json!([soft])), TaintChange::Set), to(json!([ours])), "pods would still come");
        assert_eq!(patch(&node(json!([soft])), TaintChange::Remove), to(json!([])));
    }
}
