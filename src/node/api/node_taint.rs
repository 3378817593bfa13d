//! The taint of a node that waits for its daemons.
//!
//! Owns the write. It is made only after the API server has shown, by a dry run, that the policy in front of the right
//! refuses another change of the Node. The list of taints is replaced as a whole, so the write carries the version that
//! it was read in. Must not decide when it is made.

use kube::Api;
use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::STARTING_TAINT;
use crate::core::startup_taint;
use crate::core::startup_taint::POLICY;
use crate::core::startup_taint::probe;
use crate::core::upstream::api_server;
use crate::node::api::confirm;
use crate::node::api::confirm::GetResult;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// The kubelet and controllers write the Node, too: how often the write is made again with what they wrote.
const TRIES: usize = 5;

/// What becomes of the taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TaintChange {
    Set,
    Remove,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TaintResult {
    /// The Node is as it is to be.
    Done,
    /// The API server took a dry run that the policy has to refuse: nothing was written.
    NoPolicy,
    /// Nothing was written; the failure of the last request.
    Failed(ApiFailure),
}

/// Makes the change to the Node `name`, unless it has another UID than `uid`.
pub(super) async fn change(client: &kube::Client, name: &str, uid: Option<&str>, change: TaintChange) -> TaintResult {
    let nodes: Api<RawObject> = Api::all_with(client.clone(), &object::api_resource("", "Node", "nodes"));
    let mut is_shown = false;
    let mut conflict = ApiFailure::new(FailureKind::Conflict, "the Node changes all the time");
    for _ in 0..TRIES {
        let node = match confirm::get_unnamespaced(client, ("Node", "nodes"), name).await {
            GetResult::Object(node) => node,
            GetResult::NotFound => {
                return TaintResult::Failed(ApiFailure::new(FailureKind::NotFound, format!("there is no Node {name}")));
            }
            GetResult::Error(failure) => return TaintResult::Failed(failure),
        };
        if uid.is_some_and(|uid| node.str_at(["metadata", "uid"]) != uid) {
            let message = format!("the Node {name} is another one now");
            return TaintResult::Failed(ApiFailure::new(FailureKind::Conflict, message));
        }
        let Some(patch) = patch(&node, change) else { return TaintResult::Done };
        if !is_shown {
            match show_policy(&nodes, name).await {
                TaintResult::Done => is_shown = true,
                other => return other,
            }
        }
        match nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return TaintResult::Done,
            Err(kube::Error::Api(status)) if status.code == 409 => conflict = ApiFailure::status(&status),
            Err(error) => return TaintResult::Failed(ApiFailure::from_kube(&error)),
        }
    }
    TaintResult::Failed(conflict)
}

/// Whether the policy, and not only a missing right, refuses another change.
async fn show_policy(nodes: &Api<RawObject>, name: &str) -> TaintResult {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    match nodes.patch(name, &dry_run, &Patch::Merge(probe())).await {
        Ok(_) => TaintResult::NoPolicy,
        Err(kube::Error::Api(status)) if api_server::is_refused_by(&status.message, POLICY) => TaintResult::Done,
        Err(error) => TaintResult::Failed(ApiFailure::from_kube(&error)),
    }
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
