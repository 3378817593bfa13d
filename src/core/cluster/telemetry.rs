//! What the coordinator exposes of itself and of the rollouts, from what it observes and remembers.
//!
//! Owns which nodes and DaemonSets count as what. Must not decide anything.

use std::collections::BTreeMap;

use crate::core::json::Json;
use crate::core::metrics::CoordinatorFacts;
use crate::core::metrics::CoordinatorWatch;
use crate::core::metrics::DaemonSetCondition;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::conditions;
use super::observation::ClusterObservation;
use super::observation::Leadership;
use super::observation::WatchHealth;
use super::snapshot::ClusterSnapshot;
use super::snapshot::WatchedKind;
use super::state::CoordinatorState;

/// A watch that has not failed again for this long works: it is tried more often.
const FAILED: Span = Span::from_secs(60);

/// What the agents' Leases are called among the watches.
const LEASES: &str = "leases";
/// What it cannot write, among the kinds.
const STATUS: &str = "daemonsets/status";

/// The facts after a pass of the coordinator `identity`, which started then.
pub fn facts(
    observation: &ClusterObservation,
    state: &CoordinatorState,
    identity: &str,
    started: Timestamp,
) -> CoordinatorFacts {
    let view = &observation.snapshot;
    let leads = observation.leadership != Leadership::Following;
    let watches = observation.watches.iter().map(|(kind, progress)| CoordinatorWatch {
        name: kind.plural().to_owned(),
        // A watch that goes on where it was brings nothing before something changes.
        is_up: view.is_listed(*kind) && progress.failed.is_none_or(|at| observation.now - at > FAILED),
        last_event: progress.last_event.map(|at| at + observation.ahead),
    });
    // The holder of the Lease lists them again and again instead of watching them.
    let (is_up, last_event) = state.liveness.progress(observation.now);
    let last_event = last_event.map(|at| at + observation.ahead);
    let leases = leads.then(|| CoordinatorWatch { name: LEASES.to_owned(), is_up, last_event });
    CoordinatorFacts {
        identity: identity.to_owned(),
        started,
        leads_since: state.leads_since.filter(|_| leads),
        passes: state.totals.passes,
        last_pass: observation.now + observation.ahead,
        watches: watches.chain(leases).collect(),
        writes: state.totals.writes.clone(),
        nodes: if leads { nodes(view, state) } else { BTreeMap::new() },
        conditions: view.daemons.values().flat_map(of_daemon_set).collect(),
        certificate_end: None,
    }
}

/// The kinds of objects that cannot be listed, watched, read or written, with commas between them: each was tried.
pub fn cannot_list(observation: &ClusterObservation, state: &CoordinatorState) -> String {
    let (view, now) = (&observation.snapshot, observation.now);
    let is_over = |progress: &WatchHealth, at: Timestamp| progress.last_event.is_some_and(|event| event > at);
    let has_failed = |kind: WatchedKind, progress: &WatchHealth| {
        let at = progress.failed.filter(|at| !view.is_listed(kind) || now - *at <= FAILED && !is_over(progress, *at));
        at.is_some()
    };
    let watches = observation.watches.iter().filter(|(kind, progress)| has_failed(**kind, progress));
    let leases = state.liveness.is_failing(now).then_some(LEASES);
    let status = state.retries.lacks_status().then_some(STATUS);
    let names: Vec<&str> = watches.map(|(kind, _)| kind.plural()).chain(leases).chain(status).collect();
    names.join(", ")
}

fn nodes(view: &ClusterSnapshot, state: &CoordinatorState) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::from([("reports", 0), ("dead", 0), ("absent", 0)]);
    for (name, entry) in view.nodes.iter().filter(|(_, entry)| entry.node.is_some()) {
        let agent = match &entry.report {
            None => "absent",
            Some(_) if state.liveness.dead_since(name).is_some() => "dead",
            Some(_) => "reports",
        };
        *found.entry(agent).or_default() += 1;
    }
    found
}

fn of_daemon_set(daemon: &super::snapshot::WatchedDaemon) -> Vec<DaemonSetCondition> {
    let key = &daemon.daemon_set.key;
    let ours = daemon.status.list_at("conditions").iter().filter(|condition| conditions::is_ours(condition));
    let ours = ours.map(|condition| DaemonSetCondition {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        condition: condition.str_at("type").to_owned(),
        status: condition.str_at("status").to_owned(),
        reason: condition.str_at("reason").to_owned(),
    });
    ours.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::core::cluster::node_daemons::LeaseTerm;
    use crate::core::cluster::observation::WatchHealth;
    use crate::core::cluster::requests::RequestTarget;
    use crate::core::cluster::requests::SendError;
    use crate::core::cluster::snapshot::Change;
    use crate::core::model::ObjectKey;
    use crate::core::time::at;

    #[test]
    fn a_follower_exposes_that_it_follows_and_a_leader_what_it_sees() {
        let mut view = ClusterSnapshot::default();
        for name in ["a", "b"] {
            let node = json!({"metadata": {"name": name}, "status": {}});
            view.take(Change::Present(WatchedKind::Nodes, Box::new(node), false));
        }
        let report = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "status": {}});
        view.take(Change::Present(WatchedKind::NodeDaemons, Box::new(report), false));
        let condition = |of: &str| json!({"type": of, "status": "True", "reason": "Why", "message": "m"});
        let daemon = json!({"metadata": {"namespace": "n", "name": "d", "uid": "u"}, "spec": {},
            "status": {"conditions": [condition("Degraded"), condition("Foreign")]}});
        view.take(Change::Present(WatchedKind::DaemonSets, Box::new(daemon), false));
        let mut observation = ClusterObservation {
            now: at(5_000),
            ahead: Span::ZERO,
            leadership: Leadership::Following,
            snapshot: Arc::default(),
            unreadable: Vec::new(),
            watches: BTreeMap::new(),
            replies: Vec::new(),
        };
        let mut state = CoordinatorState::default();
        state.absorb(&observation);
        let follower = facts(&observation, &state, "one", at(1_000));
        assert_eq!((follower.passes, follower.leads_since, follower.nodes.len()), (1, None, 0));
        observation.leadership = Leadership::Leading { term: 1, lease: LeaseTerm::default() };
        observation.snapshot = Arc::new(view);
        let progress = WatchHealth { last_event: Some(at(4_000)), failed: Some(at(4_500)) };
        observation.watches.insert(WatchedKind::Nodes, progress);
        state.absorb(&observation);
        let leader = facts(&observation, &state, "one", at(1_000));
        assert_eq!((leader.passes, leader.leads_since), (2, Some(at(5_000))));
        assert_eq!(leader.nodes, BTreeMap::from([("absent", 1), ("dead", 0), ("reports", 1)]));
        let leases = |state: &CoordinatorState, seconds: i64| {
            let observation = ClusterObservation { now: at(seconds * 1_000), ..observation.clone() };
            let facts = facts(&observation, state, "one", at(1_000));
            let found = facts.watches.into_iter().find(|watch| watch.name == "leases");
            found.map(|watch| (watch.is_up, watch.last_event))
        };
        assert!(follower.watches.iter().all(|watch| watch.name != "leases"), "who follows lists none");
        assert_eq!(leases(&state, 5), Some((false, None)));
        state.liveness.listed(&BTreeMap::new(), at(6_000));
        assert_eq!(leases(&state, 66), Some((true, Some(at(6_000)))));
        assert_eq!(leases(&state, 67), Some((false, Some(at(6_000)))), "they come no more");
        assert_eq!(cannot_list(&observation, &state), "nodes");
        state.liveness.failed(true, at(6_000));
        observation.now = at(66_000);
        observation.watches.insert(WatchedKind::DaemonSets, WatchHealth::default());
        assert_eq!(cannot_list(&observation, &state), "nodes", "a list that fails once is none that is missed");
        observation.now = at(67_000);
        assert_eq!(cannot_list(&observation, &state), "nodes, leases");
        let status = RequestTarget::Status(ObjectKey::new("n", "d"));
        let mut refusing = state.clone();
        let refused = || SendError::Refused("no".to_owned());
        for _ in 0..6 {
            refusing.retries.failed(status.clone(), refused(), at(66_000));
        }
        assert_eq!(cannot_list(&observation, &refusing), "nodes, leases, daemonsets/status");
        let watch = |last_event, failed| WatchHealth { last_event: Some(at(last_event)), failed: Some(at(failed)) };
        let mut listed = ClusterSnapshot::default();
        listed.take(Change::Begin(WatchedKind::Nodes));
        listed.take(Change::Complete(WatchedKind::Nodes));
        observation.snapshot = Arc::new(listed);
        for (last_event, failed, lists) in [(66_000, 66_500, "nodes, leases"), (66_900, 66_500, "leases")] {
            observation.watches.insert(WatchedKind::Nodes, watch(last_event, failed));
            assert_eq!(cannot_list(&observation, &state), lists, "it fails no more once it brings something");
        }
        let of: Vec<&str> = leader.conditions.iter().map(|condition| condition.condition.as_str()).collect();
        assert_eq!(of, ["Degraded"]);
        let text = crate::core::metrics::coordinator(&leader, None);
        for line in [
            "daemonlet_coordinator_leads{identity=\"one\"} 1",
            "daemonlet_coordinator_watch_up{watch=\"nodes\"} 0",
            "daemonlet_coordinator_watch_up{watch=\"leases\"} 0",
            "daemonlet_coordinator_watch_last_event_timestamp_seconds{watch=\"nodes\"} 4",
            "daemonlet_daemonset_condition{namespace=\"n\",daemonset=\"d\",condition=\"Degraded\",status=\"True\",reason=\"Why\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
