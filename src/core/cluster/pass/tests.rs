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
        self.state.delays.clone_from(&plan.delays);
        self.state.halts.clone_from(&plan.halts);
        self.state.decided.clone_from(&plan.decided);
        self.state.broken.clone_from(&plan.broken);
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
    // They are back and told to be failed still; the one that works follows.
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
    assert_eq!(message, format!("it failed: every node is on revision {one} again"));
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
fn a_node_that_never_ran_the_old_revision_is_not_told_to_return_to_it() {
    let mut view = world(json!({"daemonlet.dev/rollback": "auto"}));
    view.put(WatchedKind::NodeDaemons, report("a", "two", json!({}), json!([])));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    view.put(WatchedKind::NodeDaemons, failing("c"));
    let plan = view.plan(NOW);
    assert!(approved(&plan).iter().all(|(node, _)| node != "a"), "{:?}", approved(&plan));
}

#[test]
fn an_approval_that_nobody_claims_is_taken_back_told_and_others_come_first() {
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
    // Somebody wrote nonsense: it is put right, and the foreign condition stays.
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

fn stock_pod(name: &str, node: &str, owner: &str, annotations: Value) -> Option<Value> {
    let owner = json!([{"kind": "DaemonSet", "name": "net", "uid": owner, "controller": true}]);
    Some(
        json!({"metadata": {"namespace": "kube-system", "name": name, "ownerReferences": owner, "annotations": annotations},
        "spec": {"nodeName": node}}),
    )
}

fn is_ours(plan: &ClusterPlan) -> bool {
    status(plan).get("desiredNumberScheduled").is_some()
}

#[test]
fn the_word_of_an_agent_that_a_stock_controller_acts_counts_once_its_pod_was_seen() {
    let tells = |pod: &str| report("b", "one", json!({"stockPod": pod}), json!([]));
    let none = json!({});
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    for (pod, holds) in [
        (None, false),
        (stock_pod("net-x", "b", "other", none.clone()), false),
        (stock_pod("net-x", "a", "u", none.clone()), false),
        (stock_pod("net-y", "b", "u", none.clone()), false),
        (stock_pod("net-x", "b", "u", mirror), false),
        (stock_pod("net-x", "b", "u", none.clone()), true),
    ] {
        let mut view = world(json!({}));
        view.put(WatchedKind::NodeDaemons, tells("net-x"));
        let plan = view.plan(NOW);
        let claim = plan.lookups[0].clone();
        assert_eq!((claim.node.as_str(), claim.pod.as_str(), plan.lookups.len()), ("b", "net-x", 1));
        assert!(is_ours(&plan), "nobody has seen it");
        assert_eq!(view.plan(NOW + ms(1)).lookups, [], "it is asked for already");
        view.state.claims.answered(claim, pod.as_ref());
        let plan = view.plan(NOW + ms(2));
        assert_eq!(!is_ours(&plan), holds, "{pod:?}");
        assert!(!plan.writes.iter().any(|w| matches!(w, ObjectWrite::Revision { .. })));
        // It may go while its agent goes on telling of it.
        let again = plan.look_again.unwrap();
        assert!(again <= NOW + ms(30_000), "{again}");
        let lookups = view.plan(NOW + ms(30_000)).lookups;
        view.state.claims.answered(lookups[0].clone(), None);
        assert!(is_ours(&view.plan(NOW + ms(30_001))), "{pod:?}");
    }
}

#[test]
fn of_many_that_lie_one_that_does_not_is_found() {
    let mut view = world(json!({}));
    for number in 0..20 {
        let name = format!("m{number:02}");
        view.put(WatchedKind::Nodes, node(&name, "True"));
        view.put(WatchedKind::NodeDaemons, report(&name, "one", json!({"stockPod": format!("net-{name}")}), json!([])));
    }
    let mut asked = BTreeSet::new();
    for round in 0..3 {
        let plan = view.plan(NOW + ms(round));
        assert!(plan.lookups.len() <= 8 && is_ours(&plan));
        asked.extend(plan.lookups.iter().map(|claim| claim.node.clone()));
        for claim in plan.lookups {
            let pod = (claim.node == "m19").then(|| stock_pod(&claim.pod, "m19", "u", json!({}))).flatten();
            view.state.claims.answered(claim, pod.as_ref());
        }
    }
    assert_eq!(asked.len(), 20);
    let plan = view.plan(NOW + ms(3));
    assert!(!is_ours(&plan));
    assert!(condition(&plan, "Degraded").2.contains("pod net-m19 of a DaemonSet controller is on node m19"));
    let plan = view.plan(NOW + ms(40_000));
    assert_eq!(plan.lookups.len(), 1, "the one that holds is enough");
    view.put(WatchedKind::NodeDaemons, report("m19", "one", json!({}), json!([])));
    assert!(is_ours(&view.plan(NOW + ms(40_001))), "its agent tells of it no more");
}

#[test]
fn a_node_whose_clock_is_ahead_counts_from_when_it_was_seen() {
    const AHEAD: &str = "2023-11-14T22:33:20Z"; // 20 minutes after NOW
    let mut view = world(json!({}));
    let fresh = || {
        let instance = json!([{"pod": "p", "revision": hash("two"), "created": AHEAD, "readySince": AHEAD}]);
        report("a", "two", json!({"instances": instance}), approval("two", AHEAD))
    };
    let min_ready = |seconds: u32| {
        let mut daemon = daemon_set("two", json!({}), json!({}));
        daemon["metadata"]["generation"] = json!(10 + seconds);
        daemon["spec"]["minReadySeconds"] = json!(seconds);
        daemon
    };
    view.put(WatchedKind::NodeDaemons, fresh());
    let plan = view.plan(NOW);
    assert_eq!(status(&plan)["numberAvailable"], 4);
    assert_eq!((approved(&plan), plan.look_again), (vec![], Some(NOW + rollout::HOLD)), "its slot is kept for a while");
    view.put(WatchedKind::NodeDaemons, fresh());
    assert_eq!(approved(&view.plan(NOW + rollout::HOLD)), [("b".to_owned(), hash("two"))]);
    // The seconds count from when it was first told, however often that is.
    view.put(WatchedKind::DaemonSets, min_ready(10));
    for at in [ms(5_000), ms(9_999)] {
        view.put(WatchedKind::NodeDaemons, fresh());
        let plan = view.plan(NOW + at);
        assert_eq!(
            (status(&plan)["numberAvailable"].as_i64(), plan.look_again),
            (Some(3), Some(NOW + ms(10_000))),
            "{at:?}"
        );
    }
    assert_eq!(status(&view.plan(NOW + ms(10_000)))["numberAvailable"], 4);
    view.put(WatchedKind::NodeDaemons, fresh());
    assert_eq!(status(&view.plan(NOW + ms(2_000_000)))["numberAvailable"], 4, "and never back");
}

#[test]
fn what_becomes_ready_by_a_clock_that_is_behind_is_ready_since_it_was_seen() {
    let behind = |seconds: i64| (NOW - ms(600_000) + ms(seconds * 1_000)).to_string();
    let fresh = |uid: &str, ready: Option<i64>| {
        let ready = ready.map(behind);
        let instance = json!([{"pod": "p", "revision": hash("two"), "created": behind(0), "readySince": ready}]);
        let mut report = report("a", "two", json!({"instances": instance}), json!([]));
        report["metadata"]["uid"] = json!(uid);
        report
    };
    let begun = || {
        let mut view = world(json!({}));
        let mut daemon = daemon_set("two", json!({}), json!({}));
        daemon["metadata"]["generation"] = json!(10);
        daemon["spec"]["minReadySeconds"] = json!(30);
        view.put(WatchedKind::DaemonSets, daemon);
        view.plan(NOW);
        view
    };
    let available = |view: &mut ClusterWorld, at: i64| {
        let plan = view.plan(NOW + ms(at));
        (
            status(&plan)["numberAvailable"].as_i64(),
            plan.look_again.filter(|at| (NOW + ms(20_001)..NOW + ms(100_000)).contains(at)),
        )
    };
    let mut view = begun();
    view.put(WatchedKind::NodeDaemons, fresh("a", None));
    assert_eq!(available(&mut view, 1_000), (Some(3), None));
    for at in [5_000, 20_000, 34_999] {
        // It is told again and again, and two of them come between two looks.
        view.put(WatchedKind::NodeDaemons, fresh("a", Some(5)));
        view.put(WatchedKind::NodeDaemons, fresh("a", Some(5)));
        assert_eq!(available(&mut view, at), (Some(3), Some(NOW + ms(35_000))), "{at}");
        assert_eq!(available(&mut view, at), (Some(3), Some(NOW + ms(35_000))), "{at}");
    }
    assert_eq!(available(&mut view, 35_000).0, Some(4));
    // It is not ready for a moment, and ready anew.
    view.put(WatchedKind::NodeDaemons, fresh("a", Some(40)));
    assert_eq!(available(&mut view, 40_000), (Some(3), Some(NOW + ms(70_000))));
    // What another coordinator finds ready counts by its node's clock, and so does what is reported anew.
    let mut other = begun();
    other.put(WatchedKind::NodeDaemons, fresh("another", Some(5)));
    assert_eq!(available(&mut other, 5_000).0, Some(4));
    let mut other = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
    other.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(fresh("a", None))));
    other.put(WatchedKind::NodeDaemons, fresh("b", Some(40)));
    assert_eq!(available(&mut other, 41_000).0, Some(4));
    // A report that is late by a second changes nothing.
    let mut view = begun();
    view.put(WatchedKind::NodeDaemons, fresh("a", Some(604)));
    assert_eq!(available(&mut view, 5_000), (Some(3), Some(NOW + ms(34_000))));
}

#[test]
fn an_approval_that_was_given_by_a_clock_ahead_is_withdrawn_as_any_other() {
    let mut view = world(json!({}));
    let early = || report("a", "one", json!({}), approval("two", "2023-11-14T23:59:59Z"));
    view.put(WatchedKind::NodeDaemons, early());
    assert_eq!(view.plan(NOW).look_again, Some(NOW + rollout::UNCLAIMED));
    view.put(WatchedKind::NodeDaemons, early());
    assert_eq!(view.plan(NOW + rollout::UNCLAIMED).unclaimed.len(), 1);
}

/// A DaemonSet that this version does not understand, of the generation after the one in [`world`].
fn refused(version: &str, status: Value) -> Value {
    let mut daemon = daemon_set("three", json!({}), status);
    daemon["metadata"]["generation"] = json!(4);
    daemon["metadata"]["resourceVersion"] = json!(version);
    daemon["spec"]["template"]["spec"]["restartPolicy"] = json!("Sometimes");
    daemon["spec"]["revisionHistoryLimit"] = json!(0);
    daemon
}

#[test]
fn a_definition_that_is_refused_is_told_and_nothing_is_decided_from_it() {
    let mut view = world(json!({}));
    view.put(WatchedKind::Revisions, revision("zero", 0));
    let key = ObjectKey::new("kube-system", "net");
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", FAILED_AT)));
    let live = json!({"observedGeneration": 3, "conditions": [{"type": "Foreign", "status": "Maybe"}]});
    view.put(WatchedKind::DaemonSets, refused("8", live));
    let plan = view.plan(NOW);
    let [ObjectWrite::Status { status: written, .. }] = plan.writes.as_slice() else { panic!("{:?}", plan.writes) };
    assert_eq!(written.get("observedGeneration"), None);
    assert_eq!(
        (&written["desiredNumberScheduled"], &written["numberReady"]),
        (&json!(4), &json!(4)),
        "facts are counted"
    );
    assert_eq!(written["conditions"][0]["type"], "Foreign");
    for (kind, words) in [
        ("Available", ("True", "AllAvailable", "4 of 4 nodes")),
        ("Progressing", ("False", "Held", "its definition is refused")),
    ] {
        let (status, reason, message) = condition(&plan, kind);
        assert_eq!((status.as_str(), reason.as_str(), message.as_str()), words);
    }
    let (status, reason, message) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Invalid"));
    assert!(message.contains("spec.template.spec.restartPolicy: "), "{message}");
    // Writes are conditional on these; who looks again sees the same.
    assert_eq!((view.view.daemons[&key].resource_version.as_str(), view.view.daemons[&key].generation), ("8", 4));
    view.put(WatchedKind::DaemonSets, refused("9", written.clone()));
    assert_eq!(view.view.daemons[&key].resource_version, "9");
    assert_eq!(view.plan(NOW + ms(5_000)).writes, []);
    // It goes away, or is mended.
    let mut going = refused("10", json!({}));
    going["metadata"]["deletionTimestamp"] = json!("2023-01-01T00:00:00Z");
    view.put(WatchedKind::DaemonSets, going);
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), []);
    assert!(matches!(&plan.writes[..], [ObjectWrite::Approvals { node, .. }] if node == "a"), "{:?}", plan.writes);
    let mut mended = daemon_set("two", json!({}), json!({}));
    mended["metadata"]["generation"] = json!(5);
    view.put(WatchedKind::DaemonSets, mended);
    let plan = view.plan(NOW);
    assert_eq!(
        (self::status(&plan)["observedGeneration"].as_i64(), condition(&plan, "Degraded").0),
        (Some(5), "False".to_owned())
    );
}

#[test]
fn a_mode_that_nobody_knows_is_a_definition_that_is_refused() {
    let mistyped = |namespace: &str| {
        let mut daemon = daemon_set("one", json!({}), json!({}));
        daemon["metadata"]["labels"] = json!({"daemonlet.dev/mode": "Static"});
        daemon["metadata"]["namespace"] = json!(namespace);
        daemon
    };
    let mut view = world(json!({}));
    view.put(WatchedKind::DaemonSets, mistyped("kube-system"));
    let plan = view.plan(NOW);
    let (status, reason, message) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Invalid"));
    assert!(message.contains("\"Static\" is neither static nor bootstrap"), "{message}");
    assert_eq!(self::status(&plan)["numberReady"], 4, "the nodes still run it");
    // One that no coordinator has seen before, wherever it is: the label says for whom it is meant.
    for namespace in ["kube-system", "other"] {
        let mut fresh = ClusterWorld::default();
        fresh.put(WatchedKind::DaemonSets, mistyped(namespace));
        assert!(!fresh.plan(NOW).writes.is_empty(), "{namespace}");
    }
}

#[test]
fn another_object_whose_definition_is_refused_has_nothing_of_the_former_one() {
    let mut view = world(json!({}));
    let mut other = refused("1", json!({}));
    other["metadata"]["uid"] = json!("other");
    view.put(WatchedKind::DaemonSets, other);
    let plan = view.plan(NOW);
    assert_eq!(condition(&plan, "Degraded").1, "Invalid");
    assert_eq!(self::status(&plan).as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"]);
    let daemon = &view.view.daemons[&ObjectKey::new("kube-system", "net")];
    assert_eq!((daemon.uid.as_str(), daemon.hash.as_str()), ("other", ""));
}

#[test]
fn a_name_that_somebody_elses_revision_has_is_waited_for_or_counted_as_a_collision() {
    let mut held = revision("one", 1);
    held["metadata"]["labels"] = json!({});
    let owner = |kind: &str, name: &str| json!([{"kind": kind, "name": name, "uid": "former", "controller": true}]);
    for (owners, waits) in [
        (owner("DaemonSet", "net"), true),
        (owner("DaemonSet", "other"), false),
        (owner("StatefulSet", "net"), false),
        (json!([]), false),
    ] {
        let mut view = ClusterWorld::default();
        view.put(WatchedKind::DaemonSets, daemon_set("one", json!({}), json!({})));
        held["metadata"]["ownerReferences"] = owners.clone();
        view.put(WatchedKind::Revisions, held.clone());
        let plan = view.plan(NOW);
        match plan.writes.as_slice() {
            [ObjectWrite::Status { .. }] => {
                assert!(waits, "{owners}");
                let (_, reason, words) = condition(&plan, "Degraded");
                assert_eq!(reason, "NoControllerRevision");
                assert!(words.contains("of a former DaemonSet of this name is still there"), "{words}");
            }
            [ObjectWrite::Revision { write: history::RevisionWrite::Collision, .. }] => assert!(!waits, "{owners}"),
            writes => panic!("{owners}: {writes:?}"),
        }
        view.take(Change::Gone(WatchedKind::Revisions, Box::new(held.clone())));
        let plan = view.plan(NOW);
        assert!(
            matches!(&plan.writes[..], [ObjectWrite::Revision { write: history::RevisionWrite::Create { .. }, .. }]),
            "{owners}"
        );
    }
}

mod adversary;
mod back;
mod missing;
mod releases;
mod stages;
mod unread;

#[test]
fn revision_and_overlays_are_approved_as_a_pair() {
    let mut world = ClusterWorld::default();
    world.put(WatchedKind::DaemonSets, daemon_set("a", json!({}), json!({})));
    world.put(WatchedKind::Revisions, revision("a", 1));
    for name in NODES {
        world.put(WatchedKind::Nodes, node(name, "True"));
        world.put(WatchedKind::NodeDaemons, report(name, "a", json!({}), json!([])));
    }
    let approved = |plan: &ClusterPlan| -> Vec<(String, Spec)> {
        let of = |write: &ObjectWrite| match write {
            ObjectWrite::Approvals { node, spec } => Some((node.clone(), spec.clone())),
            _ => None,
        };
        plan.writes.iter().filter_map(of).collect()
    };
    assert_eq!(approved(&world.plan(NOW)), []);
    // The overlays of two nodes change; the budget is one.
    for name in ["b", "c"] {
        world.put(WatchedKind::NodeDaemons, report(name, "a", json!({"overlays": "d1"}), json!([])));
    }
    let given = approved(&world.plan(NOW));
    assert_eq!(given.len(), 1);
    let (node, spec) = &given[0];
    assert_eq!((node.as_str(), spec.approvals[0].pair()), ("b", format!("{}.d1", hash("a"))));
    // Counters are the template's.
    let updated = world.plan(NOW).writes.iter().find_map(|write| match write {
        ObjectWrite::Status { status, .. } => status.get("updatedNumberScheduled").and_then(Value::as_u64),
        _ => None,
    });
    assert_eq!(updated, Some(4));
    // It fails there: nothing more is approved.
    for name in ["b", "c"] {
        let failed = json!({"overlays": "d1", "failed": {"revision": hash("a"), "cause": "crash", "message": "m"}});
        world.put(WatchedKind::NodeDaemons, report(name, "a", failed, json!([])));
    }
    world.put(WatchedKind::NodeDaemons, report("d", "a", json!({"overlays": "d1"}), json!([])));
    assert_eq!(approved(&world.plan(NOW)), []);
}

#[test]
fn overlays_that_went_away_are_approved_node_by_node_until_that_fails() {
    let mut world = ClusterWorld::default();
    world.put(WatchedKind::DaemonSets, daemon_set("a", json!({}), json!({})));
    world.put(WatchedKind::Revisions, revision("a", 1));
    let patched = |name: &str, more: Value| {
        let mut told = report(name, "a", more, json!([]));
        told["status"]["daemons"][0]["instances"][0]["overlays"] = "d1".into();
        told
    };
    for name in NODES {
        world.put(WatchedKind::Nodes, node(name, "True"));
        world.put(WatchedKind::NodeDaemons, patched(name, json!({})));
    }
    let approved = |plan: &ClusterPlan| -> Vec<String> {
        let of = |write: &ObjectWrite| match write {
            ObjectWrite::Approvals { spec, .. } => spec.approvals.first().map(|approval| approval.pair()),
            _ => None,
        };
        plan.writes.iter().filter_map(of).collect()
    };
    assert_eq!(approved(&world.plan(NOW)), [hash("a")]);
    for name in &NODES[..2] {
        let failed = json!({"failed": {"revision": hash("a"), "cause": "crash", "message": "m"}});
        world.put(WatchedKind::NodeDaemons, patched(name, failed));
    }
    assert_eq!(approved(&world.plan(NOW)), Vec::<String>::new());
}
