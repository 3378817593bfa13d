//! Whole passes: an observation in, a decision out.

use std::sync::Arc;

use base64::Engine;
use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::cluster::history;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::requests::CoordinatorReply;
use crate::core::cluster::requests::RequestOutcome;
use crate::core::cluster::rollout;
use crate::core::cluster::snapshot::Change;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::KINDS;
use crate::core::time::at;
use crate::core::time::ms;

mod certificates;
mod leases;
mod replies;
mod tenants;

const NOW: Timestamp = at(1_700_000_000_000);
const KEY: (&str, &str) = ("kube-system", "net");

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn hash(image: &str) -> String {
    history::RevisionFact::hash_of(&history::data(&template(image)))
}

fn daemon_set(version: &str, status: Value) -> Value {
    json!({"metadata": {"namespace": KEY.0, "name": KEY.1, "uid": "u", "resourceVersion": version, "generation": 2,
            "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template("two"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}},
        "status": status})
}

fn revision(image: &str, number: i64) -> Value {
    let owner = json!([{"kind": "DaemonSet", "name": KEY.1, "uid": "u", "controller": true}]);
    json!({"metadata": {"namespace": KEY.0, "name": format!("net-{}", hash(image)), "uid": format!("r{number}"),
            "resourceVersion": "1", "ownerReferences": owner, "labels": {"app": "net", "controller-revision-hash": hash(image)}},
        "data": history::data(&template(image)), "revision": number})
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A NodeDaemons whose daemon runs the first revision; `more` is merged into what it says of the daemon.
fn node_daemons(name: &str, version: &str, approvals: Value, more: Value) -> Value {
    let mut daemon = json!({"namespace": KEY.0, "name": KEY.1, "uid": "u", "mode": "static", "phase": "running",
        "instances": [{"pod": "p", "revision": hash("one"), "created": "2023-01-01T00:00:00Z",
            "readySince": "2023-01-01T00:00:10Z"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        daemon[field] = value.clone();
    }
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version}, "spec": {"approvals": approvals},
        "status": {"daemons": [daemon]}})
}

fn approval() -> Value {
    json!([{"namespace": KEY.0, "name": KEY.1, "uid": "u", "revision": hash("two"),
        "approvedAt": "2023-11-14T22:13:20Z", "lease": lease(1)}])
}

fn leading(term: u64) -> Leadership {
    Leadership::Leading { term, lease: lease(i64::try_from(term).unwrap()) }
}

fn lease(transitions: i64) -> LeaseTerm {
    LeaseTerm::new("kube-system", "lease", "l", &json!({"leaseTransitions": transitions}))
}

/// A coordinator in the middle of a rollout of three nodes, each of which runs the first of two revisions.
struct Coordinator {
    observation: ClusterObservation,
    state: CoordinatorState,
}

impl Coordinator {
    fn new() -> Self {
        let mut view = ClusterSnapshot::default().trusting(vec![KEY.0.to_owned()]);
        let mut list = |kind: WatchedKind, objects: Vec<Value>| {
            view.take(Change::Begin(kind));
            for object in objects {
                view.take(Change::Present(kind, Box::new(object), true));
            }
            view.take(Change::Complete(kind));
        };
        let nodes = ["a", "b", "c"];
        list(WatchedKind::Namespaces, vec![]);
        list(WatchedKind::DaemonSets, vec![daemon_set("7", json!({}))]);
        list(WatchedKind::Revisions, vec![revision("one", 1), revision("two", 2)]);
        list(WatchedKind::Nodes, nodes.map(node).into());
        list(WatchedKind::NodeDaemons, nodes.map(|name| node_daemons(name, "7", json!([]), json!({}))).into());
        let leadership = leading(1);
        let (unreadable, replies) = (Vec::new(), Vec::new());
        let (snapshot, watches) = (Arc::new(view), BTreeMap::new());
        let observation = ClusterObservation {
            now: NOW,
            ahead: crate::core::time::Span::ZERO,
            leadership,
            snapshot,
            unreadable,
            watches,
            replies,
        };
        Self { observation, state: CoordinatorState::default() }
    }

    fn take(&mut self, change: Change) {
        Arc::make_mut(&mut self.observation.snapshot).take(change);
    }

    fn changed(&mut self, kind: WatchedKind, object: Value) {
        self.take(Change::Present(kind, Box::new(object), false));
    }

    fn later(&mut self, span: i64) {
        self.observation.now += ms(span);
    }

    /// One pass, with these replies; the Leases have been listed already, and there are none.
    fn pass(&mut self, replies: Vec<CoordinatorReply>) -> ClusterDecision {
        self.observation.replies = replies;
        self.state.absorb(&self.observation);
        self.state.liveness.asked(self.observation.now);
        self.state.liveness.listed(&BTreeMap::new(), self.observation.now);
        self.decide()
    }

    fn pass_as_it_is(&mut self, replies: Vec<CoordinatorReply>) -> ClusterDecision {
        self.observation.replies = replies;
        self.state.absorb(&self.observation);
        self.decide()
    }

    fn decide(&mut self) -> ClusterDecision {
        let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
        let decision = decide(&self.observation, &self.state, &settings);
        assert_eq!(decision, decide(&self.observation, &self.state, &settings), "the same in, the same out");
        self.state.commit(decision.clone(), self.observation.now);
        self.observation.unreadable.clear();
        decision
    }
}

fn targets(decision: &ClusterDecision) -> Vec<String> {
    decision.requests.iter().map(|request| request.target.to_string()).collect()
}

/// The same answer to every request of a decision.
fn all(decision: &ClusterDecision, answer: &RequestOutcome) -> Vec<CoordinatorReply> {
    decision
        .requests
        .iter()
        .map(|request| CoordinatorReply { number: request.number, answer: answer.clone() })
        .collect()
}

fn refused() -> RequestOutcome {
    RequestOutcome::Failed(SendError::Refused("no".to_owned()))
}

const STATUS: &str = "status of kube-system/net";
const A: &str = "approvals of node a";
const B: &str = "approvals of node b";

/// A certificate request that is not approved, and whether it never will be.
fn left(notice: &Notice) -> Option<(&str, bool)> {
    match notice {
        Notice::NotApproved { name, why, .. } => Some((name, matches!(why, NotApproved::LeftAlone(_)))),
        _ => None,
    }
}

#[test]
fn each_write_is_conditional_on_what_it_was_decided_from() {
    let decision = Coordinator::new().pass(vec![]);
    assert_eq!(targets(&decision), [A, STATUS]);
    let Call::PatchStatus(_, status) = &decision.requests[1].call else { panic!("{decision:?}") };
    assert_eq!(status["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    let Call::Patch(WatchedKind::NodeDaemons, key, patch) = &decision.requests[0].call else { panic!("{decision:?}") };
    assert_eq!((key.name.as_str(), &patch["metadata"]), ("a", &json!({"uid": "a", "resourceVersion": "7"})));
    assert_eq!(patch["spec"]["approvals"], approval());
    assert_eq!((decision.requests[0].number, decision.requests[1].number), (1, 2));
}

#[test]
fn nothing_is_written_while_an_answer_is_missing() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("c", "8", json!([]), json!({})));
    let [approvals, status] = all(&first, &RequestOutcome::Written).try_into().unwrap();
    assert_eq!(coordinator.pass(vec![status]).requests, [], "the approval may stand already");
    coordinator
        .take(Change::Written(WatchedKind::NodeDaemons, Box::new(node_daemons("a", "9", approval(), json!({})))));
    coordinator.later(1_000);
    let third = coordinator.pass(vec![approvals]);
    assert_eq!(targets(&third), [STATUS], "a has the only slot");
}

#[test]
fn a_list_that_fails_half_way_stops_what_is_decided_and_nothing_more() {
    let mut coordinator = Coordinator::new();
    coordinator.take(Change::Begin(WatchedKind::NodeDaemons));
    coordinator.take(Change::Present(
        WatchedKind::NodeDaemons,
        Box::new(node_daemons("a", "8", json!([]), json!({}))),
        true,
    ));
    coordinator.observation.unreadable.push((WatchedKind::NodeDaemons, "no answer".to_owned()));
    let decision = coordinator.pass(vec![]);
    assert_eq!(decision.requests, []);
    assert_eq!(decision.notices, [Notice::Unreadable(WatchedKind::NodeDaemons, "no answer".to_owned())]);
    // It is listed anew: b is gone.
    coordinator.take(Change::Begin(WatchedKind::NodeDaemons));
    for name in ["c", "a"] {
        let listed = node_daemons(name, "9", json!([]), json!({}));
        coordinator.take(Change::Present(WatchedKind::NodeDaemons, Box::new(listed), true));
    }
    assert_eq!(coordinator.pass(vec![]).requests, []);
    coordinator.take(Change::Complete(WatchedKind::NodeDaemons));
    assert_eq!(coordinator.pass(vec![]).requests, [], "b is down: it has the slot, and may come back");
    coordinator.observation.now += rollout::UNCLAIMED;
    let decision = coordinator.pass(vec![]);
    let wanted = vec![A.to_owned(), STATUS.to_owned()];
    assert_eq!((targets(&decision), decision.notices), (wanted, vec![]), "an agent that is gone takes no slot");
}

#[test]
fn every_kind_is_listed_before_anything_is_decided() {
    for kind in KINDS {
        let mut coordinator = Coordinator::new();
        coordinator.take(Change::Begin(kind));
        assert_eq!(coordinator.pass(vec![]), ClusterDecision::default(), "{kind:?}");
    }
}

#[test]
fn the_lease_is_lost_in_the_middle() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    let [approvals, status] = all(&first, &refused()).try_into().unwrap();
    coordinator.pass(vec![status]);
    coordinator.observation.leadership = Leadership::Following;
    assert_eq!(coordinator.pass(vec![]), ClusterDecision::default());
    // In the next term nothing is remembered, and what was open is not waited for.
    coordinator.observation.leadership = leading(2);
    let decision = coordinator.pass(vec![approvals.clone()]);
    assert_eq!((targets(&decision), decision.notices.len()), (vec![A.to_owned(), STATUS.to_owned()], 0));
    assert_eq!(decision.requests[0].number, 3, "no number is used twice");
    assert_eq!(coordinator.pass(vec![approvals]).requests, [], "an answer of the first term is none");
}

#[test]
fn what_stands_names_the_present_holder_soon_and_is_written_once_a_term() {
    let mut coordinator = Coordinator::new();
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("a", "8", approval(), json!({})));
    assert_eq!(targets(&coordinator.pass(vec![])), [STATUS], "it names this one");
    coordinator.observation.leadership = leading(2);
    let second = coordinator.pass(vec![]);
    assert_eq!(targets(&second), [A, STATUS]);
    let Call::Patch(_, _, patch) = &second.requests[0].call else { panic!("{second:?}") };
    let mut wanted = approval();
    wanted[0]["lease"] = json!(lease(2));
    assert_eq!(patch["spec"]["approvals"], wanted, "and nothing else of it changes");
    // The resource may be of a version that has no place for it.
    coordinator.pass(all(&second, &RequestOutcome::Written));
    coordinator.later(1_000);
    assert!(!targets(&coordinator.pass(vec![])).contains(&A.to_owned()));
}

#[test]
fn a_status_waits_for_its_turn_and_the_end_of_a_rollout_does_not() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    let replies = all(&first, &RequestOutcome::Written);
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("a", "8", approval(), json!({})));
    coordinator.later(500);
    let second = coordinator.pass(replies);
    assert_eq!((&second.requests[..], second.next_look), (&[][..], Some(NOW + ms(1_000))));
    let instance = json!([{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:10Z",
        "readySince": "2023-11-14T22:13:11Z"}]);
    for name in ["a", "b", "c"] {
        coordinator
            .changed(WatchedKind::NodeDaemons, node_daemons(name, "9", json!([]), json!({"instances": instance})));
    }
    let mark = format!("release mark of revision net-{} of kube-system/net", hash("two"));
    assert_eq!(targets(&coordinator.pass(vec![])), [mark.as_str(), STATUS]);
}

#[test]
fn an_approval_that_no_agent_claims_is_given_to_another_node() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("a", "8", approval(), json!({})));
    let second = coordinator.pass(all(&first, &RequestOutcome::Written));
    assert_eq!(second.next_look, Some(NOW + ms(1_000)));
    coordinator.later(60_000);
    let third = coordinator.pass(vec![]);
    assert_eq!(third.notices, [Notice::Unclaimed(ObjectKey::new(KEY.0, KEY.1), "a".to_owned())]);
    assert_eq!(targets(&third), [A, STATUS]);
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("a", "9", json!([]), json!({})));
    assert_eq!(targets(&coordinator.pass(all(&third, &RequestOutcome::Written))), [B]);
}

#[test]
fn a_pod_that_an_agent_reports_is_looked_up_and_nothing_waits_for_the_answer() {
    let mut coordinator = Coordinator::new();
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("b", "8", json!([]), json!({"stockPod": "net-x"})));
    let first = coordinator.pass(vec![]);
    assert_eq!(targets(&first), [A, STATUS, "pod net-x on node b"]);
    assert_eq!(first.requests[2].call, Call::GetPod(ObjectKey::new(KEY.0, "net-x")));
    let [approvals, status, lookup] = all(&first, &RequestOutcome::Written).try_into().unwrap();
    assert_eq!(targets(&coordinator.pass(vec![status, approvals])), [A], "it has no slot in the snapshot");
    let owner = json!([{"kind": "DaemonSet", "name": KEY.1, "uid": "u", "controller": true}]);
    let pod = json!({"metadata": {"namespace": KEY.0, "name": "net-x", "ownerReferences": owner},
        "spec": {"nodeName": "b"}});
    coordinator.later(1_000);
    let found = CoordinatorReply { answer: RequestOutcome::Pod(Some(Box::new(pod))), ..lookup };
    let third = coordinator.pass(vec![found, CoordinatorReply { number: 4, answer: RequestOutcome::Written }]);
    let Call::PatchStatus(_, status) = &third.requests[1].call else { panic!("{third:?}") };
    assert!(status["status"]["conditions"].to_string().contains("net-x"), "{status}");
    // Later it cannot be looked up: what was seen stands.
    coordinator.later(30_000);
    let fourth = coordinator.pass(all(&third, &RequestOutcome::Written));
    let lookup = fourth.requests.last().unwrap();
    assert!(matches!(lookup.target, RequestTarget::Pod(_)));
    let failed = coordinator.pass(vec![CoordinatorReply { number: lookup.number, answer: refused() }]);
    assert!(matches!(failed.notices[..], [Notice::LookupFailed(..)]), "{:?}", failed.notices);
}

#[test]
fn no_more_is_sent_at_one_time_than_a_bound_and_the_rest_follows() {
    let mut coordinator = Coordinator::new();
    let mut daemon = daemon_set("7", json!({}));
    daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!("100%");
    daemon["metadata"]["generation"] = json!(3);
    coordinator.changed(WatchedKind::DaemonSets, daemon);
    for number in 0..300 {
        let name = format!("m{number:03}");
        coordinator.changed(WatchedKind::Nodes, node(&name));
        let more = json!({"stockPod": format!("net-{name}")});
        coordinator.changed(WatchedKind::NodeDaemons, node_daemons(&name, "7", json!([]), more));
    }
    let first = coordinator.pass(vec![]);
    let lookups = |decision: &ClusterDecision| {
        decision.requests.iter().filter(|request| matches!(request.target, RequestTarget::Pod(_))).count()
    };
    assert_eq!((first.requests.len(), lookups(&first)), (256 + 8, 8));
    let second = coordinator.pass(all(&first, &RequestOutcome::NotSent));
    assert_eq!((second.requests.len(), lookups(&second)), (256 + 8, 8), "other pods");
}

#[test]
fn owners_of_others_stay_and_a_revision_whose_labels_do_not_match_is_let_go() {
    let mut coordinator = Coordinator::new();
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "backup", "uid": "b"});
    let mut orphan = revision("three", 3);
    orphan["metadata"]["ownerReferences"] = json!([foreign]);
    coordinator.changed(WatchedKind::Revisions, orphan);
    let mut strange = revision("one", 1);
    strange["metadata"]["labels"] = json!({"app": "other"});
    let controller = strange["metadata"]["ownerReferences"][0].clone();
    strange["metadata"]["ownerReferences"] = json!([foreign, controller]);
    coordinator.changed(WatchedKind::Revisions, strange);
    let decision = coordinator.pass(vec![]);
    let adopted = decision.requests.iter().find_map(|request| match &request.call {
        Call::AdoptRevision(_, patch, ..) => Some(patch["metadata"]["ownerReferences"].clone()),
        _ => None,
    });
    let ours =
        adopted.as_ref().map(|owners| (owners[0].clone(), owners[1]["uid"].clone(), owners.as_array().unwrap().len()));
    assert_eq!(ours, Some((foreign.clone(), json!("u"), 2)));
    let released = decision.requests.iter().find_map(|request| match (&request.target, &request.call) {
        (RequestTarget::Revision(_, requests::RevisionChange::Release, _), Call::Patch(_, _, patch)) => {
            Some(patch["metadata"]["ownerReferences"].clone())
        }
        _ => None,
    });
    assert_eq!(released, Some(json!([foreign])));
}
