//! Nodes that claim and do not go on, nodes that take nothing, and what a takeover or a refused definition leaves standing.

use super::refused::refused;
use super::releases::renewed;
use super::releases::with_one_released;
use super::*;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::observation::ClusterObservation;
use crate::core::cluster::observation::Leadership;

const SECOND: i64 = 1_000;

/// The plan when this many seconds are over, in which the agents of `b`, `c` and `d` renewed their Leases every 15 s and that
/// of `a` did not; its mirror pod is ready.
fn with_a_dead(view: &mut ClusterWorld, seconds: i64) -> ClusterPlan {
    let mut last = ClusterPlan::default();
    for second in (0..=seconds).step_by(15) {
        let now = NOW + ms(second * SECOND);
        view.state.liveness.follow(&view.view, NOW);
        let mut leases = renewed(&[]);
        NODES[1..].iter().for_each(|name| drop(leases.insert((*name).to_owned(), second.to_string())));
        view.state.liveness.listed(&leases, now);
        last = view.plan(now);
        for look in last.mirrors.clone() {
            view.state.liveness.looking_up(look.clone(), now);
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            view.state.liveness.looked_up(&look, Some(&ready));
        }
    }
    last
}

fn claims(name: &str) -> Value {
    report(name, "one", json!({"replacing": hash("two")}), approval("two", &NOW.to_string()))
}

#[test]
fn a_claim_of_a_dead_agent_has_failed_after_the_deadline_though_what_ran_before_is_ready() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, claims("a"));
    let plan = with_a_dead(&mut view, 585);
    assert_eq!(condition(&plan, "Progressing").1, "RollingOut", "it may come back");
    let plan = with_a_dead(&mut view, 675);
    let progressing = condition(&plan, "Progressing");
    assert_eq!((progressing.0.as_str(), progressing.1.as_str()), ("False", "Held"));
    assert!(
        progressing.2.ends_with("the budget is taken by nodes on which it failed or does not become available: a"),
        "{}",
        progressing.2
    );
    assert!(approved(&plan).is_empty(), "it keeps its slot");
    assert_eq!(status(&plan).get("numberReady"), None, "it stays 4: its mirror pod shows that what ran runs");
    // One that has what it claimed until the next boot waits for that.
    let mut view = with_one_released(json!({"daemonlet.dev/update": "boot"}));
    let staged = json!({"replacing": hash("two"), "staged": true});
    view.put(WatchedKind::NodeDaemons, report("a", "one", staged, approval("two", &NOW.to_string())));
    assert!(!condition(&with_a_dead(&mut view, 675), "Progressing").2.contains("failed"));
}

#[test]
fn a_step_and_a_zone_do_not_wait_for_ever_for_a_claim_of_a_dead_agent() {
    let mut view = with_one_released(json!({"daemonlet.dev/steps": "1, 10m; 100%"}));
    view.put(WatchedKind::NodeDaemons, claims("a"));
    let progressing = condition(&with_a_dead(&mut view, 675), "Progressing");
    assert_eq!(progressing.1, "Held");
    assert!(progressing.2.ends_with("step 1 of 2 (1 of 4 nodes): it is not available on a"), "{}", progressing.2);
    let mut view = with_one_released(json!({"daemonlet.dev/topology-key": "zone", "daemonlet.dev/max-failed": "4"}));
    let mut two = daemon_set("two", json!({}), json!({}));
    two["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(2);
    for (name, zone) in [("a", "z1"), ("b", "z2"), ("c", "z2"), ("d", "z2")] {
        let mut node = node(name, "True");
        node["metadata"]["labels"]["zone"] = json!(zone);
        view.put(WatchedKind::Nodes, node);
    }
    let status = view.view.daemons.values().next().unwrap().status.clone();
    two["metadata"]["annotations"] = json!({"daemonlet.dev/topology-key": "zone"});
    (two["status"], two["metadata"]["generation"]) = (status, json!(3));
    view.put(WatchedKind::DaemonSets, two);
    view.put(WatchedKind::NodeDaemons, claims("a"));
    assert!(approved(&with_a_dead(&mut view, 585)).is_empty());
    let given: Vec<String> = approved(&with_a_dead(&mut view, 675)).into_iter().map(|(node, _)| node).collect();
    assert_eq!(given, ["b"], "one slot is left");
}

#[test]
fn nodes_that_take_nothing_have_turns() {
    let mut view = world(json!({}));
    let mut turns = Vec::new();
    let mut now = NOW;
    for _ in 0..8 {
        let plan = view.plan(now);
        let given = approved(&plan);
        assert_eq!(given.len(), 1, "{turns:?}");
        let node = given[0].0.clone();
        view.put(WatchedKind::NodeDaemons, report(&node, "one", json!({}), approval("two", &now.to_string())));
        now += rollout::UNCLAIMED;
        assert_eq!(view.plan(now).unclaimed.len(), 1);
        view.put(WatchedKind::NodeDaemons, report(&node, "one", json!({}), json!([])));
        turns.push(node);
        now += ms(1);
    }
    assert_eq!(turns, ["a", "b", "c", "d", "a", "b", "c", "d"]);
    // Another revision finds none of them passed over.
    let mut three = daemon_set("three", json!({}), json!({}));
    three["metadata"]["generation"] = json!(4);
    view.put(WatchedKind::DaemonSets, three);
    view.put(WatchedKind::Revisions, revision("three", 3));
    let plan = view.plan(now);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("three"))]);
    assert_eq!(condition(&plan, "Degraded").1, "AsExpected");
}

#[test]
fn the_condition_says_what_holds_changed_overlays() {
    let mut view = ClusterWorld::default();
    view.put(WatchedKind::DaemonSets, daemon_set("a", json!({"daemonlet.dev/paused": "true"}), json!({})));
    view.put(WatchedKind::Revisions, revision("a", 1));
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, report(name, "a", json!({"overlays": "d1"}), json!([])));
    }
    let progressing = condition(&view.plan(NOW), "Progressing");
    let message = "4 nodes have the current revision, and not all have the current overlays: paused";
    assert_eq!((progressing.0.as_str(), progressing.1.as_str(), progressing.2.as_str()), ("False", "Held", message));
}

#[test]
fn neither_partition_nor_canary_nodes_keep_what_is_taken_back() {
    for annotations in [
        json!({"daemonlet.dev/partition": "2"}),
        json!({"daemonlet.dev/canary": "pool=first"}),
        json!({"daemonlet.dev/steps": "1, 24h; 100%"}),
    ] {
        let mut view = with_one_released(json!({}));
        let mut one = daemon_set("one", annotations.clone(), view.view.daemons.values().next().unwrap().status.clone());
        one["metadata"]["generation"] = json!(2);
        view.put(WatchedKind::DaemonSets, one);
        ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("one"))], "{annotations}");
    }
    // A node that is away, and may run anything when it comes back, frees nothing of the partition: patches obey it.
    let mut view = with_one_released(json!({}));
    let partition = json!({"daemonlet.dev/partition": "4"});
    let mut one = daemon_set("one", partition, view.view.daemons.values().next().unwrap().status.clone());
    one["metadata"]["generation"] = json!(2);
    view.put(WatchedKind::DaemonSets, one);
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({"overlays": "d1"}), json!([])));
    assert!(approved(&view.plan(NOW)).is_empty());
}

#[test]
fn approvals_that_no_pass_has_judged_do_not_name_a_new_holder_of_the_lease() {
    let lease = LeaseTerm::new("kube-system", "lease", "l", &json!({"leaseTransitions": 2}));
    let named = |plan: &ClusterPlan| {
        let of = |write: &ObjectWrite| match write {
            ObjectWrite::Approvals { spec, .. } => spec.approvals.iter().map(|a| a.lease.is_some()).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        plan.writes.iter().flat_map(of).collect::<Vec<_>>()
    };
    let mut view = world(json!({}));
    let leadership = Leadership::Leading { term: 1, lease };
    view.state.absorb(&ClusterObservation {
        now: NOW,
        ahead: Span::ZERO,
        leadership,
        snapshot: std::sync::Arc::default(),
        unreadable: Vec::new(),
        watches: BTreeMap::new(),
        replies: Vec::new(),
    });
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", &NOW.to_string())));
    assert_eq!(named(&view.plan(NOW)), [true]);
    // What was written since for another DaemonSet makes it no less; an older resource drops the name.
    view.state.approved.insert("a".to_owned());
    let mut former = approval("two", &NOW.to_string());
    former[0]["lease"] = json!({"namespace": "kube-system", "name": "lease", "uid": "l", "transitions": 1});
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), former));
    assert_eq!(named(&view.plan(NOW)), [true]);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", &NOW.to_string())));
    assert_eq!(named(&view.plan(NOW)), Vec::<bool>::new());
    view.put(WatchedKind::DaemonSets, refused("8", json!({})));
    let plan = view.plan(NOW);
    assert!(approved(&plan).is_empty() && plan.writes.iter().any(|w| matches!(w, ObjectWrite::Approvals { .. })));
    // What is claimed stands, and is as it was.
    view.put(WatchedKind::NodeDaemons, claims("a"));
    assert_eq!(named(&view.plan(NOW)), Vec::<bool>::new());
}

#[test]
fn a_halt_is_written_before_approvals_are_withdrawn() {
    let mut view = with_one_released(json!({}));
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    let plan = view.plan(NOW);
    let at_once =
        |plan: &ClusterPlan| plan.writes.iter().any(|write| matches!(write, ObjectWrite::Status { at_once: true, .. }));
    assert_eq!(condition(&plan, "Halted").0, "True");
    assert!(at_once(&plan));
    let mut two = daemon_set("two", json!({}), status(&plan));
    two["metadata"]["generation"] = json!(3);
    view.put(WatchedKind::DaemonSets, two);
    view.put(WatchedKind::NodeDaemons, report("c", "one", json!({"phase": "failing"}), json!([])));
    let plan = view.plan(NOW);
    assert!(!status(&plan).is_null() && !at_once(&plan), "it says so already: {:?}", plan.writes);
}

#[test]
fn a_first_release_waits_for_nodes_that_are_away_with_another_revision() {
    let mut view = world(json!({"daemonlet.dev/steps": "1, 24h; 100%"}));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.take(Change::Gone(WatchedKind::Nodes, Box::new(json!({"metadata": {"name": "d"}}))));
    ["b", "c"].iter().for_each(|name| view.put(WatchedKind::Nodes, node(name, "Unknown")));
    let plan = view.plan(NOW);
    let conditions = status(&plan)["conditions"].as_array().unwrap().clone();
    assert!(!conditions.iter().any(|c| c["type"] == "Released"), "{conditions:?}");
}

#[test]
fn an_unclaimed_approval_is_a_cause_only_while_one_of_its_revision_is_given() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", "2023-11-14T22:12:19Z")));
    view.plan(NOW);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let is_cause = |view: &mut ClusterWorld| condition(&view.plan(NOW), "Degraded").2.contains("approval not claimed");
    assert!(is_cause(&mut view));
    for held in [
        json!({"daemonlet.dev/paused": "true"}),
        json!({"daemonlet.dev/partition": "4"}),
        json!({"daemonlet.dev/aborted": format!("net-{}", hash("two"))}),
    ] {
        view.put(WatchedKind::DaemonSets, daemon_set("two", held.clone(), json!({})));
        assert!(!is_cause(&mut view), "{held}");
    }
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), json!({})));
    assert!(is_cause(&mut view), "it still comes after the others");
}

#[test]
fn an_approval_to_go_back_that_was_not_claimed_says_nothing_of_the_newer_revision() {
    let message = format!("ControllerRevision net-{0} (hash {0}) at generation 3", hash("one"));
    let released = json!({"conditions": [
        {"type": "Released", "status": "False", "reason": "RollingOut", "message": message}]});
    let aborted = json!({"daemonlet.dev/aborted": format!("net-{}", hash("two"))});
    let mut view = world(json!({}));
    view.put(WatchedKind::DaemonSets, daemon_set("two", aborted, released.clone()));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let late = json!({"previous": hash("one")});
    view.put(WatchedKind::NodeDaemons, report("a", "two", late, approval("one", "2023-11-14T22:12:19Z")));
    assert_eq!(view.plan(NOW).unclaimed.len(), 1);
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("b".to_owned(), hash("one"))], "others come first");
    assert_eq!(condition(&plan, "Degraded").2, "approval not claimed on 1 node: a");
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), released));
    assert!(!condition(&view.plan(NOW), "Degraded").2.contains("approval not claimed"));
}

#[test]
fn an_older_revision_that_is_not_available_is_named_after_some_time_also_while_paused() {
    let mut view = world(json!({"daemonlet.dev/paused": "true"}));
    let degraded = |view: &mut ClusterWorld, seconds: i64| {
        let condition = condition(&view.plan(NOW + ms(seconds * SECOND)), "Degraded");
        (condition.1, condition.2)
    };
    let expected = ("AsExpected".to_owned(), String::new());
    assert_eq!(degraded(&mut view, 0), expected);
    let instance = json!({"pod": "p", "revision": hash("one"), "created": FAILED_AT});
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"instances": [instance]}), json!([])));
    let plan = view.plan(NOW);
    assert!(plan.look_again.is_some_and(|at| at <= NOW + ms(30 * SECOND)), "{:?}", plan.look_again);
    assert_eq!(degraded(&mut view, 29), expected, "it may be starting again");
    let named = ("Failing".to_owned(), "not available with an older revision on 1 node: a".to_owned());
    assert_eq!(degraded(&mut view, 30), named);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    assert_eq!(degraded(&mut view, 31), expected);
}
