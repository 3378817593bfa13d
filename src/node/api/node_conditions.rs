//! Conditions of this node that say whether daemons are Ready here.
//!
//! Owns the write. It is made only after the API server has shown, by a dry run, that the policy in front of the right
//! refuses another change of the Node's status. Conditions are merged by their types, so nothing that others write is
//! touched. Must not decide when it is made.

use std::borrow::Cow;

use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::node_conditions;
use crate::core::node_conditions::ConditionChanges;
use crate::core::node_conditions::NodeConditions;
use crate::core::node_conditions::POLICY;
use crate::core::node_conditions::probe;
use crate::core::time::Timestamp;
use crate::node::api::error::ApiFailure;
use crate::node::api::own_node;
use crate::node::api::own_node::NodeWriteResult;

/// Makes the changes to the Node `name`, unless it has another UID than `uid`; `None`: no condition of ours stays.
pub(super) async fn change(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    changes: Option<&ConditionChanges>,
    now: Timestamp,
) -> NodeWriteResult {
    try_change(client, name, uid, changes, now).await.err().unwrap_or(NodeWriteResult::Done)
}

async fn try_change(
    client: &kube::Client,
    name: &str,
    uid: Option<&str>,
    changes: Option<&ConditionChanges>,
    now: Timestamp,
) -> Result<(), NodeWriteResult> {
    let nodes = own_node::nodes(client);
    let node = own_node::read(client, name, uid).await?;
    let changes = match changes {
        Some(changes) => Cow::Borrowed(changes),
        None => Cow::Owned(node_conditions::changes(&NodeConditions::new(), &node)),
    };
    if changes.is_empty() {
        return Ok(());
    }
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    own_node::refused(POLICY, nodes.patch_status(name, &dry_run, &Patch::Strategic(probe())).await)?;
    let patch = Patch::Strategic(patch(&node, &changes, now));
    let written = nodes.patch_status(name, &PatchParams::default(), &patch).await;
    written.map(drop).map_err(|error| ApiFailure::from_kube(&error).into())
}

/// The strategic merge patch that makes the changes. The time of a transition stays where the status does.
fn patch(node: &Value, changes: &ConditionChanges, now: Timestamp) -> Value {
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
        let changes = ConditionChanges::from([("x/A".to_owned(), Some(condition)), ("x/B".to_owned(), None)]);
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
