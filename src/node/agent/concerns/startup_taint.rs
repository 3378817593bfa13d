//! The taint on this Node that keeps workload away until its daemons are Ready.
//!
//! Owns when it is written. `core::startup_taint` decides whether it is wanted.

use crate::config::Config;
use crate::core::json::Json;
use crate::core::knowledge::Unlinked;
use crate::core::model::STARTING_TAINT;
use crate::core::startup_taint;
use crate::core::startup_taint::DesiredTaint;
use crate::core::startup_taint::GRANT;
use crate::core::startup_taint::POLICY;
use crate::core::startup_taint::StartupTaint;
use crate::core::startup_taint::TIMEOUT;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::api::NodeWriteResult;
use crate::node::api::Scope;
use crate::node::api::TaintChange;

use super::super::log::Log;
use super::super::node_writes::NodeWrites;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

/// What its problems are about.
const OBJECT: &str = "startup taint";

/// What is known of the last write.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct StartupTaintWrites(NodeWrites<TaintChange>);

impl StartupTaintWrites {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        self.0.observe(observation);
        for reply in &observation.replies {
            let Reply::StartupTaint { change, result } = reply else { continue };
            if *result == NodeWriteResult::Done {
                log.info(done(*change));
                self.0.end(observation.now, result, None, log);
                continue;
            }
            let problem = problem(*change, result);
            let reason = format!("{}; the agent tries again", problem.reason);
            self.0.end(observation.now, result, Some(Problem { reason, ..problem }), log);
        }
    }

    /// The write that is due, if the Node is not as it should be. `unlinked`: why the API server cannot be asked.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        taint: &StartupTaint,
        unlinked: Option<Unlinked>,
    ) -> Option<Request> {
        if unlinked.is_some() {
            return None;
        }
        let wish = wish(observation, taint);
        let node = &observation.snapshot()?.node.as_ref()?.value;
        let change = match wish {
            DesiredTaint::Taint if !startup_taint::is_set(node) => TaintChange::Set,
            DesiredTaint::NoTaint if startup_taint::is_named(node) => TaintChange::Remove,
            DesiredTaint::Taint | DesiredTaint::NoTaint => {
                self.0.rest();
                return None;
            }
            DesiredTaint::Unknown => return None,
        };
        let node_uid = node.text_at(["metadata", "uid"]).map(str::to_owned);
        self.0.begin(observation.now, change).then_some(Request::StartupTaint { node_uid, change })
    }

    /// When the next write may be made.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.0.due()
    }

    /// Why the taint is not as it should be.
    pub(in super::super) fn problem(&self, observation: &Observation, config: &Config) -> Option<Problem> {
        if config.startup_taint {
            return self.0.problem().cloned();
        }
        let node = observation.snapshot()?.node.as_ref()?;
        startup_taint::is_named(&node.value).then(|| Problem {
            object: OBJECT.to_owned(),
            reason: format!("the Node has the taint {STARTING_TAINT}, and node.startup-taint is off: it stays"),
            hint: Some(by_hand(&config.node_name)),
        })
    }
}

/// How a person takes the taint away.
pub(in super::super) fn by_hand(node: &str) -> String {
    format!("kubectl taint nodes {node} {STARTING_TAINT}-")
}

/// Whether this Node is to carry the taint, as far as that can be known. The taint is not set before the API server has
/// listed this node's pods; soon after the agent's start it is not removed before everything has been read.
fn wish(observation: &Observation, taint: &StartupTaint) -> DesiredTaint {
    let Some(api) = observation.snapshot().filter(|_| observation.api_answers()) else { return DesiredTaint::Unknown };
    let has_read_all = api.lists(&Scope::DaemonSets) > 0
        && observation.manifests.current().is_some()
        && !observation.folders.view.has_unreadable_folder();
    match taint.wish() {
        DesiredTaint::NoTaint if !has_read_all && observation.steady < TIMEOUT => DesiredTaint::Unknown,
        wish => wish,
    }
}

fn done(change: TaintChange) -> String {
    match change {
        TaintChange::Set => format!("the Node has the taint {STARTING_TAINT}: daemons of it are not Ready yet"),
        TaintChange::Remove => format!("the Node has the taint {STARTING_TAINT} no longer"),
    }
}

/// What a person has to know of a change that was not made.
pub(in super::super) fn problem(change: TaintChange, result: &NodeWriteResult) -> Problem {
    let what = match change {
        TaintChange::Set => "set",
        TaintChange::Remove => "taken away",
    };
    let reason = format!("the taint {STARTING_TAINT} is not {what}: {}", result.reason(POLICY));
    Problem { object: OBJECT.to_owned(), reason, hint: result.lacks_rights().then(|| GRANT.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::Value;
    use serde_json::json;

    use super::*;
    use crate::core::model::ObjectKey;
    use crate::core::time::Span;
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::observation;
    use crate::node::api::ApiFailure;
    use crate::node::api::Entry;
    use crate::node::api::FailureKind;
    use crate::node::api::Snapshot;

    /// What an agent observes if its Node has these taints and the API server has listed `listed`, with `replies`.
    fn seen(taints: &[&str], listed: &[Scope], replies: Vec<Reply>) -> Observation {
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        seen_with(json!(taints), listed, replies)
    }

    fn seen_with(taints: Value, listed: &[Scope], replies: Vec<Reply>) -> Observation {
        let node = json!({"metadata": {"name": "n1", "uid": "n"}, "spec": {"taints": taints}});
        let mut api = Snapshot::default();
        for scope in listed {
            api.scopes.entry(scope.clone()).or_default().lists = 1;
        }
        api.node = Some(Entry { version: 1, value: Arc::new(node) });
        Observation { replies, ..observation(Some(api)) }
    }

    fn waits() -> StartupTaint {
        let daemons = BTreeSet::from([ObjectKey::new("a", "b")]);
        StartupTaint { awaited: daemons.clone(), daemons, ..StartupTaint::default() }
    }

    /// What is asked for; each call is the first of an agent.
    fn asked(observation: &Observation, taint: &StartupTaint) -> Option<TaintChange> {
        match StartupTaintWrites::default().requests(observation, taint, None) {
            Some(Request::StartupTaint { change, .. }) => Some(change),
            _ => None,
        }
    }

    #[test]
    fn nothing_is_written_that_is_as_it_should_be_or_before_everything_is_read() {
        let (clean, tainted) =
            (seen(&["x"], &[Scope::DaemonSets], vec![]), seen(&[STARTING_TAINT], &[Scope::DaemonSets], vec![]));
        let no_one = StartupTaint::default();
        assert_eq!(asked(&clean, &waits()), Some(TaintChange::Set));
        assert_eq!(asked(&tainted, &waits()), None);
        assert_eq!(asked(&tainted, &no_one), Some(TaintChange::Remove));
        assert_eq!(asked(&clean, &no_one), None);
        let mut unlisted = seen(&[STARTING_TAINT], &[], vec![]);
        unlisted.steady = TIMEOUT - Span::from_millis(1);
        assert_eq!(asked(&unlisted, &no_one), None, "the DaemonSets may ask for it");
        unlisted.steady = TIMEOUT;
        assert_eq!(asked(&unlisted, &no_one), Some(TaintChange::Remove), "but not for ever");
        assert_eq!(asked(&seen(&[], &[], vec![]), &waits()), Some(TaintChange::Set));
        let mut silent = clean.clone();
        silent.api.as_mut().unwrap().link = crate::node::api::Link::Connecting;
        assert_eq!(asked(&silent, &waits()), None, "it may be Ready by now");
        let unknown = StartupTaint { unknown: waits().awaited, ..StartupTaint::default() };
        assert_eq!((asked(&clean, &unknown), asked(&tainted, &unknown)), (None, None));
        assert_eq!(StartupTaintWrites::default().requests(&clean, &waits(), Some(Unlinked::AnotherCluster)), None);
    }

    /// Lets a write be asked for and fail with `result`, and comes to when the next is due. Gives how long that was.
    fn fail(
        writes: &mut StartupTaintWrites,
        now: &mut Observation,
        taint: &StartupTaint,
        result: NodeWriteResult,
    ) -> i64 {
        let Some(Request::StartupTaint { change, .. }) = writes.requests(now, taint, None) else {
            panic!("nothing is asked for: {writes:?}");
        };
        assert_eq!(writes.requests(now, taint, None), None, "one at a time");
        now.replies = vec![Reply::StartupTaint { change, result }];
        writes.observe(now, &mut Log::default());
        now.replies.clear();
        assert_eq!(writes.requests(now, taint, None), None, "not at once");
        let (failed, due) = (now.now, writes.due().unwrap());
        now.now = due;
        writes.observe(now, &mut Log::default());
        assert_eq!(writes.due(), None, "a time that has come is no time to wait for");
        (due - failed).as_secs()
    }

    fn conflict() -> NodeWriteResult {
        NodeWriteResult::Failed(ApiFailure::new(FailureKind::Conflict, "the Node changes all the time"))
    }

    #[test]
    fn a_write_that_failed_for_want_of_a_right_is_made_again_ever_later_and_another_soon() {
        let forbidden = NodeWriteResult::Failed(ApiFailure::new(FailureKind::Forbidden, "no"));
        for (result, expected) in [
            (NodeWriteResult::NoPolicy, [2, 4, 8, 16, 32, 64, 128, 256, 300]),
            (forbidden, [2, 4, 8, 16, 32, 64, 128, 256, 300]),
            (conflict(), [2, 4, 8, 10, 10, 10, 10, 10, 10]),
        ] {
            let mut writes = StartupTaintWrites::default();
            let mut now = seen(&[], &[Scope::DaemonSets], vec![]);
            let waited = [(); 9].map(|()| fail(&mut writes, &mut now, &waits(), result.clone()));
            assert_eq!(waited, expected, "{result:?}");
            assert_eq!(fail(&mut writes, &mut now, &waits(), conflict()), 10, "the right is there now");
        }
    }

    #[test]
    fn what_is_to_be_written_now_does_not_wait_for_what_failed_before() {
        let soft = json!([{"key": STARTING_TAINT, "effect": "PreferNoSchedule"}]);
        let mut now = seen_with(soft, &[Scope::DaemonSets], vec![]);
        // The link has come up.
        let mut writes = StartupTaintWrites::default();
        writes.observe(&now, &mut Log::default());
        let wait = |writes: &mut StartupTaintWrites, now: &mut Observation| {
            let waited = [(); 5].map(|()| fail(writes, now, &waits(), NodeWriteResult::NoPolicy));
            assert_eq!(waited[4], 32);
            assert!(writes.requests(now, &waits(), None).is_some());
            now.replies = vec![Reply::StartupTaint { change: TaintChange::Set, result: NodeWriteResult::NoPolicy }];
            writes.observe(now, &mut Log::default());
            now.replies.clear();
            now.now += Span::from_secs(3);
            writes.observe(now, &mut Log::default());
            assert_eq!(writes.requests(now, &waits(), None), None, "64 s");
        };
        wait(&mut writes, &mut now);
        assert!(writes.requests(&now, &StartupTaint::default(), None).is_some(), "the daemon is Ready: it goes");
        let mut writes = StartupTaintWrites::default();
        writes.observe(&now, &mut Log::default());
        wait(&mut writes, &mut now);
        for link in [crate::node::api::Link::Connecting, crate::node::api::Link::Up] {
            now.api.as_mut().unwrap().link = link;
            writes.observe(&now, &mut Log::default());
        }
        assert!(writes.requests(&now, &waits(), None).is_some(), "the API server answers again");
    }

    #[test]
    fn a_failure_is_reported_once_and_is_over_when_the_node_is_as_it_should_be() {
        let mut writes = StartupTaintWrites::default();
        let mut log = Log::default();
        let mut now = seen(&[], &[Scope::DaemonSets], vec![]);
        now.replies = vec![Reply::StartupTaint { change: TaintChange::Set, result: NodeWriteResult::NoPolicy }];
        for _ in 0..2 {
            writes.observe(&now, &mut log);
        }
        assert_eq!(log.0.len(), 1);
        let config = crate::config::Config { startup_taint: true, ..config() };
        let problem = writes.problem(&now, &config).unwrap();
        assert!(problem.reason.contains("the policy daemonlet-agent-nodes does not hold this agent"), "{problem:?}");
        assert!(problem.hint.unwrap().contains("startup-taint.yaml"));
        let set = seen(&[STARTING_TAINT], &[Scope::DaemonSets], vec![]);
        assert_eq!(writes.requests(&set, &waits(), None), None);
        assert_eq!((writes.problem(&now, &config), writes.due()), (None, None));
        assert_eq!(fail(&mut writes, &mut now, &waits(), conflict()), 2);
    }

    #[test]
    fn a_taint_that_stays_because_the_key_is_off_is_reported() {
        let problem = StartupTaintWrites::default().problem(&seen(&[STARTING_TAINT], &[], vec![]), &config()).unwrap();
        assert_eq!(problem.hint.as_deref(), Some("kubectl taint nodes n1 daemonlet.dev/starting-"));
        assert_eq!(StartupTaintWrites::default().problem(&seen(&[], &[], vec![]), &config()), None);
        assert_eq!(super::problem(TaintChange::Remove, &conflict()).hint, None);
    }
}
