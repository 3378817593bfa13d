use serde_json::Value;
use serde_json::json;

use super::super::snapshot::Change;
use super::super::snapshot::KINDS;
use super::super::snapshot::WatchedKind;
use super::*;
use crate::core::cluster::liveness::MirrorPodLookup;
use crate::core::cluster::node_daemons::Spec;
use crate::core::time::at;
use crate::core::time::ms;

mod broken;
mod clocks;
mod gated;
mod overlays;
mod refused;
mod stock;

const NOW: Timestamp = at(1_700_000_000_000);
const NODES: [&str; 4] = ["a", "b", "c", "d"];

fn options() -> Settings {
    Settings { default_node_selector: String::new(), exact_rollouts: false }
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "net"}},
        "spec": {"containers": [{"name": "main", "image": image}], "nodeSelector": {"run": "yes"}}})
}

fn hash(image: &str) -> String {
    history::RevisionFact::hash_of(&history::data(&template(image)))
}

fn daemon_set(image: &str, annotations: Value, status: Value) -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": "net", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"daemonlet.dev/mode": "static"}, "annotations": annotations},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template(image),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
        "status": status})
}

fn revision(image: &str, number: i64) -> Value {
    let owner = json!([{"kind": "DaemonSet", "name": "net", "uid": "u", "controller": true}]);
    json!({"metadata": {"namespace": "kube-system", "name": format!("net-{}", hash(image)), "uid": format!("r{number}"),
            "resourceVersion": "1", "creationTimestamp": "2023-01-01T00:00:00Z", "ownerReferences": owner,
            "labels": {"app": "net", "controller-revision-hash": hash(image)}},
        "data": history::data(&template(image)), "revision": number})
}

fn node(name: &str, ready: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": {"run": "yes"}}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

/// A NodeDaemons whose daemon runs `image`; `more` is merged into what it says of the daemon.
fn report(name: &str, image: &str, more: Value, approvals: Value) -> Value {
    let mut daemon = json!({"namespace": "kube-system", "name": "net", "uid": "u", "mode": "static", "phase": "running",
        "instances": [{"pod": "p", "revision": hash(image), "created": "2023-01-01T00:00:00Z",
            "readySince": "2023-01-01T00:00:10Z"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        daemon[field] = value.clone();
    }
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {"approvals": approvals},
        "status": {"daemons": [daemon]}})
}

fn approval(image: &str, at: &str) -> Value {
    json!([{"namespace": "kube-system", "name": "net", "uid": "u", "revision": hash(image), "approvedAt": at}])
}

/// A cluster, and what its coordinator remembers.
#[derive(Default)]
struct ClusterWorld {
    view: ClusterSnapshot,
    state: CoordinatorState,
}

impl ClusterWorld {
    fn put(&mut self, kind: WatchedKind, object: Value) {
        self.view.put(kind, object);
    }

    fn take(&mut self, change: Change) {
        self.view.take(change);
    }

    fn plan(&mut self, now: Timestamp) -> ClusterPlan {
        self.plan_with(&options(), now)
    }

    /// Plans, and remembers what came of it.
    fn plan_with(&mut self, settings: &Settings, now: Timestamp) -> ClusterPlan {
        self.view.heed_clocks(now);
        self.state.claims.retain(&self.view);
        self.state.follow_reports(&self.view, now);
        let plan = super::plan(&self.view, &self.state, settings, now);
        self.state.passed_over.clone_from(&plan.passed_over);
        self.state.unmentioned.clone_from(&plan.unmentioned);
        self.state.older_unavailable.clone_from(&plan.older_unavailable);
        self.state.delays.clone_from(&plan.delays);
        self.state.halts.clone_from(&plan.halts);
        self.state.decided.clone_from(&plan.decided);
        self.state.broken.clone_from(&plan.broken);
        self.state.unread.clone_from(&plan.unread);
        self.state.awaited.clone_from(&plan.awaited);
        self.state.lacking.clone_from(&plan.lacking);
        plan.lookups.iter().for_each(|claim| self.state.claims.asked(claim.clone(), now));
        plan
    }
}

/// Two revisions, the second wanted; four nodes that still run the first.
fn world(annotations: Value) -> ClusterWorld {
    let mut view = ClusterWorld::default();
    for kind in KINDS {
        view.take(Change::Begin(kind));
        view.take(Change::Complete(kind));
    }
    view.put(WatchedKind::DaemonSets, daemon_set("two", annotations, json!({})));
    view.put(WatchedKind::Revisions, revision("one", 1));
    view.put(WatchedKind::Revisions, revision("two", 2));
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({"previous": hash("one")}), json!([])));
    }
    view
}

/// Node and revision of each approval that stands after the plan.
fn approved(plan: &ClusterPlan) -> Vec<(String, String)> {
    let of = |write: &ObjectWrite| match write {
        ObjectWrite::Approvals { node, spec } => {
            spec.approvals.iter().map(|a| (node.clone(), a.revision.clone())).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    plan.writes.iter().flat_map(of).collect()
}

fn status(plan: &ClusterPlan) -> Value {
    let of = |write: &ObjectWrite| match write {
        ObjectWrite::Status { status, .. } => Some(status.clone()),
        _ => None,
    };
    plan.writes.iter().find_map(of).unwrap_or_default()
}

fn condition(plan: &ClusterPlan, kind: &str) -> (String, String, String) {
    let status = status(plan);
    let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap().clone();
    let text = |field: &str| found.get(field).map_or("", |text| text.as_str().unwrap()).to_owned();
    (text("status"), text("reason"), text("message"))
}

const FAILED_AT: &str = "2023-01-01T00:00:00Z";

fn failing(name: &str) -> Value {
    let more = json!({"previous": hash("one"), "phase": "failing", "failed": {"revision": hash("two"), "cause": "image",
        "message": "no"}, "instances": [{"pod": "p", "revision": hash("two"), "created": FAILED_AT}]});
    report(name, "two", more, json!([]))
}

fn on_two(name: &str) -> Value {
    report(name, "two", json!({"previous": hash("one")}), json!([]))
}

fn is_ours(plan: &ClusterPlan) -> bool {
    status(plan).get("desiredNumberScheduled").is_some()
}

#[test]
fn a_rollout_that_failed_on_too_many_nodes_halts_and_says_why() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    let plan = view.plan(NOW);
    assert!(approved(&plan).is_empty());
    let (status, reason, message) = condition(&plan, "Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert!(message.ends_with("the revision failed on 2 nodes: a, b"), "{message}");
    assert_eq!(condition(&plan, "Degraded").2, "image on 2 nodes: a, b");
    let mut view = world(json!({"daemonlet.dev/max-failed": "2"}));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    let exact = Settings { exact_rollouts: true, ..options() };
    assert!(approved(&view.plan_with(&exact, NOW)).is_empty(), "the broken node has the slot");
}

#[test]
fn it_goes_back_if_asked_within_the_budget_and_by_approvals_alone() {
    let mut view = world(json!({"daemonlet.dev/rollback": "auto"}));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    view.put(WatchedKind::NodeDaemons, failing("c"));
    let one = hash("one");
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("b".to_owned(), one.clone()), ("c".to_owned(), one.clone())], "broken ones first");
    assert_eq!(condition(&plan, "Progressing").1, "RollingBack");
    // They are back and still reported as failed; the one that works follows.
    let back = |name| {
        let more = json!({"previous": one, "failed": {"revision": hash("two"), "cause": "image", "message": "no"}});
        report(name, "one", more, json!([]))
    };
    view.put(WatchedKind::NodeDaemons, back("b"));
    view.put(WatchedKind::NodeDaemons, back("c"));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("a".to_owned(), one.clone())]);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"previous": one}), json!([])));
    let plan = view.plan(NOW);
    assert!(approved(&plan).is_empty(), "and it stays back");
    let (status, reason, message) = condition(&plan, "Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RolledBack"));
    assert_eq!(message, format!("it failed: every node is on revision {one}"));
    // Paused is paused, and another template is another rollout.
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let annotations = json!({"daemonlet.dev/rollback": "auto", "daemonlet.dev/paused": "true"});
    view.put(WatchedKind::DaemonSets, daemon_set("two", annotations, json!({})));
    assert!(approved(&view.plan(NOW)).is_empty());
    view.put(WatchedKind::DaemonSets, daemon_set("three", json!({"daemonlet.dev/rollback": "auto"}), json!({})));
    view.put(WatchedKind::Revisions, revision("three", 3));
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("three"))]);
}

#[test]
fn a_node_that_never_ran_the_old_revision_does_not_return_to_it() {
    let mut view = world(json!({"daemonlet.dev/rollback": "auto"}));
    view.put(WatchedKind::NodeDaemons, report("a", "two", json!({}), json!([])));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    view.put(WatchedKind::NodeDaemons, failing("c"));
    let plan = view.plan(NOW);
    assert!(approved(&plan).iter().all(|(node, _)| node != "a"), "{:?}", approved(&plan));
}

#[test]
fn an_unclaimed_approval_is_withdrawn_and_reported_and_others_come_first() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", "2023-11-14T22:12:19Z")));
    let plan = view.plan(NOW);
    assert_eq!(plan.unclaimed, [(ObjectKey::new("kube-system", "net"), "a".to_owned())]);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))]);
    assert_eq!(condition(&plan, "Degraded").2, "approval not claimed on 1 node: a");
    // Where only it is left, it gets another chance; and its claim makes it like any other.
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("two"))]);
    view.put(
        WatchedKind::NodeDaemons,
        report("a", "one", json!({"replacing": hash("two")}), approval("two", &NOW.to_string())),
    );
    assert_eq!(view.plan(NOW).unclaimed, []);
    assert_eq!(condition(&view.plan(NOW), "Degraded").0, "False");
}

#[test]
fn without_any_node_there_is_a_revision_and_then_a_status() {
    let mut view = ClusterWorld::default();
    view.put(WatchedKind::DaemonSets, daemon_set("one", json!({}), json!({})));
    let plan = view.plan(NOW);
    let [ObjectWrite::Revision { write: history::RevisionWrite::Create { number: 1, .. }, .. }] =
        plan.writes.as_slice()
    else {
        panic!("the revision comes first: {:?}", plan.writes)
    };
    view.put(WatchedKind::Revisions, revision("one", 1));
    let plan = view.plan(NOW);
    assert_eq!(status(&plan)["observedGeneration"], 3);
    let [ObjectWrite::Status { at_once: true, nodes: 0, .. }] = plan.writes.as_slice() else {
        panic!("{:?}", plan.writes)
    };
}

#[test]
fn what_the_live_status_says_already_is_not_written() {
    let mut view = world(json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let first = view.plan(NOW);
    let mut live = status(&first);
    live["conditions"].as_array_mut().unwrap().insert(0, json!({"type": "Foreign", "status": "Maybe"}));
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), live.clone()));
    let mut marked = revision("two", 2);
    marked["metadata"]["annotations"] = json!({"daemonlet.dev/released": "u/3"});
    view.put(WatchedKind::Revisions, marked);
    assert_eq!(view.plan(NOW + ms(5_000)).writes, []);
    // Another client wrote nonsense: it is corrected, and the foreign condition stays.
    live["numberReady"] = json!(17);
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), live));
    let again = view.plan(NOW + ms(5_000));
    assert_eq!(status(&again), json!({"numberReady": 4}));
    view.put(WatchedKind::Nodes, node("a", "False"));
    let plan = view.plan(NOW + ms(5_000));
    assert_eq!(
        (status(&plan)["numberReady"].as_i64(), &status(&plan)["conditions"][0]["type"]),
        (Some(3), &json!("Foreign"))
    );
}

#[test]
fn a_gated_daemon_set_has_its_counters_and_revisions_from_the_stock_controller() {
    let mut view = world(json!({}));
    let mut gated = daemon_set("two", json!({}), json!({"desiredNumberScheduled": 0}));
    gated["metadata"]["generation"] = json!(4);
    gated["spec"]["template"]["spec"]["nodeSelector"] = json!({"daemonlet.dev/static": "true"});
    view.put(WatchedKind::DaemonSets, gated);
    let plan = view.plan(NOW);
    assert!(plan.writes.iter().all(|w| !matches!(w, ObjectWrite::Revision { .. })), "{:?}", plan.writes);
    let fields: Vec<String> = status(&plan).as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["conditions"]);
}

#[test]
fn an_approval_is_withdrawn_where_the_daemon_runs_no_more_and_is_not_to_run() {
    let mut view = world(json!({"daemonlet.dev/paused": "true"}));
    let mut leaving = node("a", "True");
    leaving["metadata"]["labels"] = json!({});
    view.put(WatchedKind::Nodes, leaving);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"instances": []}), approval("two", FAILED_AT)));
    let plan = view.plan(NOW);
    let of_a = plan.writes.iter().find(|w| matches!(w, ObjectWrite::Approvals { node, .. } if node == "a"));
    assert_eq!(of_a, Some(&ObjectWrite::Approvals { node: "a".to_owned(), spec: Spec::default() }));
}

#[test]
fn an_approval_for_another_object_is_withdrawn() {
    let mut view = world(json!({"daemonlet.dev/paused": "true"}));
    let mut stale = approval("two", FAILED_AT);
    stale[0]["uid"] = json!("former");
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), stale));
    let plan = view.plan(NOW);
    let of_a = plan.writes.iter().find(|w| matches!(w, ObjectWrite::Approvals { node, .. } if node == "a"));
    assert_eq!(of_a, Some(&ObjectWrite::Approvals { node: "a".to_owned(), spec: Spec::default() }));
}

#[test]
fn an_unclaimed_approval_goes_with_its_node() {
    let mut view = world(json!({"daemonlet.dev/update": "drain"}));
    let waits = || {
        let mut given = approval("two", "2023-01-01T00:00:00Z");
        given[0]["when"] = json!("drain");
        given
    };
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), waits()));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({"replacing": hash("two")}), waits()));
    for name in ["a", "b"] {
        view.take(Change::Gone(WatchedKind::Nodes, Box::new(node(name, "True"))));
    }
    let plan = view.plan(NOW);
    let emptied =
        |write: &&ObjectWrite| matches!(write, ObjectWrite::Approvals { spec, .. } if spec.approvals.is_empty());
    let of = |write: &ObjectWrite| matches!(write, ObjectWrite::Approvals { node, .. } if node == "a");
    let emptied: Vec<&ObjectWrite> = plan.writes.iter().filter(emptied).collect();
    assert!(emptied.len() == 1 && of(emptied[0]), "{emptied:?}");
}

mod adversary;
mod back;
mod missing;
mod releases;
mod stages;
mod stuck;
mod told;
mod unread;
