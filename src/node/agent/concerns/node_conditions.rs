//! The conditions of this Node that say whether daemons are Ready here.
//!
//! Owns when they are written. `core::node_conditions` decides which the Node is to have.

use crate::core::json::Json;
use crate::core::knowledge::Unlinked;
use crate::core::node_conditions;
use crate::core::node_conditions::ConditionChanges;
use crate::core::node_conditions::GRANT;
use crate::core::node_conditions::NodeConditions;
use crate::core::node_conditions::POLICY;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::api::NodeWriteResult;
use crate::node::api::Scope;

use super::super::log::Log;
use super::super::node_writes::NodeWrites;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

/// What problems are about.
pub(in super::super) const OBJECT: &str = "node conditions";

/// What is known of the last write.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct NodeConditionWrites(NodeWrites<ConditionChanges>);

impl NodeConditionWrites {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        self.0.observe(observation);
        for reply in &observation.replies {
            let Reply::NodeConditions(result) = reply else { continue };
            self.0.end(observation.now, result, problem(result), log);
        }
    }

    /// The write that is due, if the Node is not as it should be. Nothing is written before the API server has listed the
    /// DaemonSets and this node's pods: unknown daemons may be Ready. `unlinked`: why the API server cannot be asked.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        wanted: &NodeConditions,
        unlinked: Option<Unlinked>,
    ) -> Option<Request> {
        let api = observation.snapshot().filter(|_| unlinked.is_none() && observation.api_answers())?;
        let has_lists = [Scope::DaemonSets, Scope::Pods].iter().all(|scope| api.lists(scope) > 0);
        let node = &api.node.as_ref().filter(|_| has_lists)?.value;
        let changes = node_conditions::changes(wanted, node);
        if changes.is_empty() {
            self.0.rest();
            return None;
        }
        let node_uid = node.text_at(["metadata", "uid"]).map(str::to_owned);
        self.0.begin(observation.now, changes.clone()).then_some(Request::NodeConditions {
            node_uid,
            changes: Some(changes),
            at: observation.now,
        })
    }

    /// When the next write may be made.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.0.due()
    }

    /// Why the conditions are not as they should be.
    pub(in super::super) fn problem(&self) -> Option<Problem> {
        self.0.problem().cloned()
    }
}

/// What a person has to know of a write that was not made.
fn problem(result: &NodeWriteResult) -> Option<Problem> {
    (*result != NodeWriteResult::Done).then(|| Problem {
        object: OBJECT.to_owned(),
        reason: format!("the Node's conditions are not written: {}; the agent tries again", result.reason(POLICY)),
        hint: result.lacks_rights().then(|| GRANT.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::core::model::ObjectKey;
    use crate::core::node_conditions::ConditionStatus;
    use crate::core::node_conditions::NodeCondition;
    use crate::node::agent::decide::tests::observation;
    use crate::node::api::Entry;
    use crate::node::api::Snapshot;

    fn seen(listed: &[Scope]) -> Observation {
        let mut api = Snapshot::default();
        for scope in listed {
            api.scopes.entry(scope.clone()).or_default().lists = 1;
        }
        let node = json!({"metadata": {"name": "n1", "uid": "n"}});
        api.node = Some(Entry { version: 1, value: Arc::new(node) });
        observation(Some(api))
    }

    #[test]
    fn nothing_is_written_before_both_lists_and_a_failure_is_reported_once_and_tried_ever_later() {
        let daemon_sets = BTreeSet::from([ObjectKey::new("a", "b")]);
        let condition = NodeCondition { status: ConditionStatus::False, daemon_sets };
        let wanted = NodeConditions::from([("daemonlet.dev/A".to_owned(), condition)]);
        let mut writes = NodeConditionWrites::default();
        let mut log = Log::default();
        assert_eq!(writes.requests(&seen(&[]), &wanted, None), None, "a DaemonSet may be Ready");
        let mut now = seen(&[Scope::DaemonSets]);
        assert_eq!(writes.requests(&now, &wanted, Some(Unlinked::AnotherCluster)), None);
        assert_eq!(writes.requests(&now, &NodeConditions::new(), None), None);
        for pause in [2, 4, 8] {
            assert!(writes.requests(&now, &wanted, None).is_some());
            assert_eq!(writes.requests(&now, &wanted, None), None, "one at a time");
            now.replies = vec![Reply::NodeConditions(NodeWriteResult::NoPolicy)];
            writes.observe(&now, &mut log);
            now.replies.clear();
            let due = writes.due().unwrap();
            assert_eq!((due - now.now).as_secs(), pause);
            now.now = due;
            writes.observe(&now, &mut log);
        }
        assert_eq!(log.0.len(), 1);
        let problem = writes.problem().unwrap();
        assert!(
            problem.reason.contains("the policy daemonlet-agent-node-status does not hold this agent"),
            "{problem:?}"
        );
        assert!(problem.hint.unwrap().contains("node-conditions.yaml"));
    }
}
