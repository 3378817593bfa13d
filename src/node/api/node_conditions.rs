//! Conditions of this node that say whether daemons are Ready here.
//!
//! Owns the write. It is made only after the API server has shown, by a dry run, that the policy in front of the right
//! refuses another change of the Node's status. Conditions are merged by their types, so nothing that others write is
//! touched. Must not decide when it is made.

use kube::Api;
use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::node_conditions::Changes;
use crate::core::node_conditions::POLICY;
use crate::core::node_conditions::probe;
use crate::core::time::Timestamp;
use crate::core::upstream::api_server;
use crate::node::api::confirm;
use crate::node::api::confirm::GetResult;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ConditionsResult {
    Done,
    /// The API server took a dry run that the policy has to refuse: nothing was written.
    NoPolicy,
    /// Nothing was written; the failure of the last request.
    Failed(ApiFailure),
}

/// Makes the changes to the Node `name`, unless it has another UID than `uid`.
pub(super) async fn change(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    changes: &Changes,
    now: Timestamp,
) -> ConditionsResult {
    let nodes: Api<RawObject> = Api::all_with(client.clone(), &object::api_resource("", "Node", "nodes"));
    let node = match confirm::get_unnamespaced(client, ("Node", "nodes"), name).await {
        GetResult::Object(node) => node,
        GetResult::NotFound => {
            return ConditionsResult::Failed(ApiFailure::new(
                FailureKind::NotFound,
                format!("there is no Node {name}"),
            ));
        }
        GetResult::Error(failure) => return ConditionsResult::Failed(failure),
    };
    if uid.is_some_and(|uid| node.str_at(["metadata", "uid"]) != uid) {
        let message = format!("the Node {name} is another one now");
        return ConditionsResult::Failed(ApiFailure::new(FailureKind::Conflict, message));
    }
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    match nodes.patch_status(name, &dry_run, &Patch::Strategic(probe())).await {
        Ok(_) => return ConditionsResult::NoPolicy,
        Err(kube::Error::Api(status)) if api_server::is_refused_by(&status.message, POLICY) => {}
        Err(error) => return ConditionsResult::Failed(ApiFailure::from_kube(&error)),
    }
    match nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch(&node, changes, now))).await {
        Ok(_) => ConditionsResult::Done,
        Err(error) => ConditionsResult::Failed(ApiFailure::from_kube(&error)),
    }
}

/// The strategic merge patch that makes the changes. The time of a transition stays where the status does.
fn patch(node: &Value, changes: &Changes, now: Timestamp) -> Value {
    let has = |kind: &str| {
        let conditions = node.list_at(["status", "conditions"]).iter();
        conditions
            .clone()
            .find(|condition| condition.str_at("type") == kind)
            .map(|condition| condition.str_at("status"))
    };
    let one = |(kind, condition): (&String, &Option<_>)| {
        let Some(condition): &Option<crate::core::node_conditions::NodeCondition> = condition else {
            return json!({"$patch": "delete", "type": kind});
        };
        let status = condition.status.as_str();
        let mut made = json!({
            "type": kind,
            "status": status,
            "reason": condition.reason(),
            "message": condition.message(),
            "lastHeartbeatTime": now.to_string(),
        });
        if has(kind) != Some(status) {
            made["lastTransitionTime"] = now.to_string().into();
        }
        made
    };
    json!({"status": {"conditions": changes.iter().map(one).collect::<Vec<Value>>()}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::core::model::ObjectKey;
    use crate::core::node_conditions::ConditionStatus;
    use crate::core::node_conditions::NodeCondition;

    use super::*;

    #[test]
    fn the_time_of_a_transition_changes_only_with_the_status() {
        let daemon_sets = BTreeSet::from([ObjectKey::new("a", "b")]);
        let condition = NodeCondition { status: ConditionStatus::True, daemon_sets };
        let changes = Changes::from([("x/A".to_owned(), Some(condition)), ("x/B".to_owned(), None)]);
        let node = |status: &str| json!({"status": {"conditions": [{"type": "x/A", "status": status}]}});
        let made = |status: &str| patch(&node(status), &changes, Timestamp::from_secs(0));
        let conditions = made("True")["status"]["conditions"].clone();
        assert_eq!(
            conditions,
            json!([
                {"type": "x/A", "status": "True", "reason": "Ready", "message": "a/b: Ready here",
                 "lastHeartbeatTime": "1970-01-01T00:00:00Z"},
                {"$patch": "delete", "type": "x/B"},
            ])
        );
        assert_eq!(made("False")["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }
}
