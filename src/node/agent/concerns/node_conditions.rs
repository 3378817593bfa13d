//! The conditions of this Node that say whether daemons are Ready here.
//!
//! Owns when they are written. `core::node_conditions` decides which the Node is to have.

use crate::core::json::Json;
use crate::core::node_conditions;
use crate::core::node_conditions::GRANT;
use crate::core::node_conditions::NodeConditions;
use crate::core::node_conditions::POLICY;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ConditionsResult;
use crate::node::api::FailureKind;
use crate::node::api::Scope;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

/// Until the next write at least, after one that was made or failed; after each further failure twice as long.
const AGAIN: Span = Span::from_secs(2);
/// At most this.
const AGAIN_MOST: Span = Span::from_secs(300);

/// What is known of the last write.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct NodeConditionWrites {
    writing: bool,
    /// Not before.
    next: Option<Timestamp>,
    /// How long the last failure was waited for.
    pause: Span,
    /// Why the conditions are not as they are to be.
    problem: Option<Problem>,
}

impl NodeConditionWrites {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        let now = observation.now;
        // A clock that was set back makes it wait no longer.
        self.next = self.next.filter(|next| *next > now).map(|next| next.min(now + AGAIN_MOST));
        for reply in &observation.replies {
            let Reply::NodeConditions(result) = reply else { continue };
            let failed = (*result != ConditionsResult::Done).then(|| problem(result));
            self.pause = match &failed {
                None => Span::ZERO,
                Some(_) => (self.pause + self.pause).clamp(AGAIN, AGAIN_MOST),
            };
            (self.writing, self.next) = (false, Some(now + self.pause.max(AGAIN)));
            if let Some(new) = failed.as_ref().filter(|new| self.problem.as_ref() != Some(*new)) {
                log.warn(new.reason.clone()).hint(new.hint.as_deref());
            }
            self.problem = failed;
        }
    }

    /// The write that is due, if the Node is not as it is to be. Before the DaemonSets and the pods of this node have been
    /// heard of, nothing is written: what is not known here may be Ready. `unlinked`: why the API server cannot be asked.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        wanted: &NodeConditions,
        unlinked: Option<&'static str>,
    ) -> Option<Request> {
        let api = observation.snapshot().filter(|_| unlinked.is_none() && observation.api_answers())?;
        let is_heard = [Scope::DaemonSets, Scope::Pods].iter().all(|scope| api.lists(scope) > 0);
        let node = &api.node.as_ref().filter(|_| is_heard)?.value;
        let changes = node_conditions::changes(wanted, node);
        if changes.is_empty() {
            (self.next, self.pause, self.problem) = (None, Span::ZERO, None);
            return None;
        }
        if self.writing || self.next.is_some() {
            return None;
        }
        self.writing = true;
        let node_uid = node.text_at(["metadata", "uid"]).map(str::to_owned);
        Some(Request::NodeConditions { node_uid, changes, at: observation.now })
    }

    /// When the next write may be made.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.writing)
    }

    /// Why the conditions are not as they are to be.
    pub(in super::super) fn problem(&self) -> Option<Problem> {
        self.problem.clone()
    }
}

fn problem(result: &ConditionsResult) -> Problem {
    let (why, is_of_rights) = match result {
        ConditionsResult::Done => (String::new(), false),
        ConditionsResult::NoPolicy => (format!("the policy {POLICY} does not hold this agent"), true),
        ConditionsResult::Failed(failure) => (failure.to_string(), failure.kind == FailureKind::Forbidden),
    };
    Problem {
        object: "node conditions".to_owned(),
        reason: format!("the Node's conditions are not written: {why}; the agent tries again"),
        hint: is_of_rights.then(|| GRANT.to_owned()),
    }
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

    fn seen(heard: &[Scope]) -> Observation {
        let mut api = Snapshot::default();
        for scope in heard {
            api.scopes.entry(scope.clone()).or_default().lists = 1;
        }
        let node = json!({"metadata": {"name": "n1", "uid": "n"}});
        api.node = Some(Entry { version: 1, value: Arc::new(node) });
        observation(Some(api))
    }

    #[test]
    fn nothing_is_written_before_everything_is_heard_and_a_failure_is_told_once_and_tried_ever_later() {
        let daemon_sets = BTreeSet::from([ObjectKey::new("a", "b")]);
        let condition = NodeCondition { status: ConditionStatus::False, daemon_sets };
        let wanted = NodeConditions::from([("daemonlet.dev/A".to_owned(), condition)]);
        let mut writes = NodeConditionWrites::default();
        let mut log = Log::default();
        assert_eq!(writes.requests(&seen(&[]), &wanted, None), None, "a DaemonSet may be Ready");
        let mut now = seen(&[Scope::DaemonSets]);
        assert_eq!(writes.requests(&now, &wanted, Some("another cluster answers")), None);
        assert_eq!(writes.requests(&now, &NodeConditions::new(), None), None);
        for pause in [2, 4, 8] {
            assert!(writes.requests(&now, &wanted, None).is_some());
            assert_eq!(writes.requests(&now, &wanted, None), None, "one at a time");
            now.replies = vec![Reply::NodeConditions(ConditionsResult::NoPolicy)];
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
