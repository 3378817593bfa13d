//! Which agents a rollout waits for: dead or silent ones, and those that have not renewed their Lease yet.

use super::*;
use crate::core::cluster::events::TroubleCause;

#[test]
fn reports_that_go_with_their_resource_are_no_outage_for_a_minute() {
    let mut view = world(json!({}));
    view.state.liveness.follow(&view.view, NOW);
    let first = view.plan(NOW);
    assert_eq!(status(&first)["numberReady"], 4);
    live(&mut view, "two", json!({}), &first);
    let gone = |name: &str| Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": name}})));
    view.take(gone("a"));
    view.put(WatchedKind::Nodes, node("b", "Unknown"));
    let lost = view.plan(NOW + ms(1));
    assert_eq!(
        (status(&lost), lost.troubles.len()),
        (json!(null), 0),
        "nor is anything reported that changes meanwhile"
    );
    assert!(approved(&lost).is_empty(), "it may be in the middle of a replacement");
    let plan = view.plan(NOW + ms(1) + rollout::UNCLAIMED);
    assert_eq!(status(&plan)["numberReady"], 2);
    assert_eq!(condition(&plan, "Degraded").2, "no agent on 1 node: a");
    // A node that joins has none to lose, and a minute to make its first one.
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    view.put(WatchedKind::Nodes, node("e", "True"));
    let joined = NOW + ms(2) + rollout::UNCLAIMED;
    let plan = view.plan(joined);
    assert_eq!(status(&plan)["desiredNumberScheduled"], 5);
    assert_eq!(condition(&plan, "Degraded").0, "False");
    assert_eq!(condition(&view.plan(joined + rollout::UNCLAIMED), "Degraded").2, "no agent on 1 node: e");
}

#[test]
fn reports_that_come_with_their_resource_are_no_outage_before_them() {
    let gone = |name: &str| Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": name}})));
    let mut view = world(json!({}));
    NODES.iter().for_each(|name| view.take(gone(name)));
    for now in [NOW, NOW + ms(1)] {
        let plan = view.plan(now);
        assert_eq!((status(&plan), plan.troubles.len()), (json!(null), 0), "agents have yet to report");
        view.put(WatchedKind::NodeDaemons, on_two("a"));
    }
    let plan = view.plan(NOW + rollout::UNCLAIMED);
    assert_eq!(condition(&plan, "Degraded").2, "no agent on 3 nodes: b, c, d");
    // Where most have reported before, the others have no agent: a coordinator that takes over says so at once.
    let mut view = world(json!({}));
    ["a", "b"].iter().for_each(|name| view.take(gone(name)));
    assert_eq!(condition(&view.plan(NOW), "Degraded").2, "no agent on 2 nodes: a, b");
}

#[test]
fn nothing_more_is_approved_in_a_large_outage() {
    let away = |annotations: Value, away: usize| {
        let mut view = world(annotations);
        for name in ["e", "f", "g", "h"] {
            view.put(WatchedKind::Nodes, node(name, "True"));
            view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
        }
        ["h", "g", "f", "e"].iter().take(away).for_each(|name| view.put(WatchedKind::Nodes, node(name, "Unknown")));
        let plan = view.plan(NOW);
        (approved(&plan).len(), condition(&plan, "Progressing").2)
    };
    assert_eq!(away(json!({}), 2).0, 1);
    assert_eq!(away(json!({}), 3), (0, "8 of 8 nodes are left: 3 of 8 nodes are unreachable".to_owned()));
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "50%"}), 3).0, 1);
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "50%"}), 4).0, 0);
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "1"}), 2).0, 1, "two are never a large outage");
}

#[test]
fn a_daemon_set_without_a_mode_is_run_by_agents_if_most_of_them_report_it() {
    let mut view = world(json!({}));
    let mut plain = wanted("two", json!({}), json!({}));
    plain["metadata"]["labels"] = json!({});
    view.put(WatchedKind::DaemonSets, plain);
    assert!(is_ours(&view.plan(NOW)), "all of them, in any namespace");
    let other = |name: &str| report(name, "one", json!({"mode": null}), json!([]));
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, other(name)));
    let plan = view.plan(NOW);
    assert_eq!((&plan.writes, plan.few.len()), (&vec![], 1), "half of them are not most");
    assert_eq!((plan.few[0].run, plan.few[0].should, plan.few[0].node.as_str()), (2, 4, "c"));
    ["c", "d"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, other(name)));
    assert_eq!(view.plan(NOW).few, []);
    // The label counts wherever it is; a bootstrap one is the DaemonSet controller's.
    let mut elsewhere = ClusterWorld::default();
    let mut labelled = wanted("one", json!({}), json!({}));
    labelled["metadata"]["namespace"] = json!("monitoring");
    elsewhere.put(WatchedKind::DaemonSets, labelled);
    assert_eq!(elsewhere.plan(NOW).writes.len(), 1);
    let mut bootstrap = wanted("two", json!({}), json!({}));
    bootstrap["metadata"]["labels"] = json!({"daemonlet.dev/mode": "bootstrap"});
    view.put(WatchedKind::DaemonSets, bootstrap);
    assert_eq!(view.plan(NOW).writes, []);
}

#[test]
fn a_dead_agent_is_not_believed() {
    let mut view = world(json!({}));
    let leases =
        |renewed: &str| NODES.map(|name| (name.to_owned(), if name == "a" { "x" } else { renewed }.to_owned())).into();
    for seconds in (0..=60).step_by(15) {
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&leases(&seconds.to_string()), NOW + ms(seconds * 1_000));
    }
    let now = NOW + ms(60_000);
    let plan = view.plan(now);
    assert_eq!(plan.mirrors, [MirrorPodLookup { node: "a".to_owned(), pod: ObjectKey::new("kube-system", "p") }]);
    assert_eq!(status(&plan)["numberReady"], 3, "what is not known is not ready");
    assert_eq!(condition(&plan, "Degraded").2, "agent does not renew its Lease on 1 node: a");
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))], "it takes no slot and gets no approval");
    let look = plan.mirrors[0].clone();
    view.state.liveness.looking_up(look.clone(), now);
    view.state
        .liveness
        .looked_up(&look, Some(&json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})));
    assert_eq!(status(&view.plan(now))["numberReady"], 4);
    // One that has claimed, or has the wanted revision, keeps its slot.
    for more in [
        json!({"replacing": hash("two")}),
        json!({"instances": [{"pod": "p", "revision": hash("two"), "created": FAILED_AT}]}),
    ] {
        view.put(WatchedKind::NodeDaemons, report("a", "one", more.clone(), json!([])));
        assert!(approved(&view.plan(now)).is_empty(), "{more}");
    }
    // What it says anew brings it back to life.
    let alive = report("a", "one", json!({"message": "x"}), json!([]));
    view.put(WatchedKind::NodeDaemons, alive);
    view.state.liveness.follow(&view.view, now);
    assert_eq!((view.plan(now).mirrors, approved(&view.plan(now)).len()), (vec![], 1));
}

#[test]
fn an_agent_that_writes_no_lease_is_named() {
    let mut view = world(json!({}));
    for seconds in (0..=60).step_by(15) {
        let now = NOW + ms(seconds * 1_000);
        view.state.liveness.follow(&view.view, now);
        let leases = NODES[1..].iter().map(|name| ((*name).to_owned(), seconds.to_string()));
        view.state.liveness.listed(&leases.collect(), now);
    }
    assert_eq!(condition(&view.plan(NOW + ms(59_000)), "Degraded").0, "False");
    let plan = view.plan(NOW + ms(60_000));
    assert_eq!(condition(&plan, "Degraded").2, "agent writes no Lease on 1 node: a");
    assert_eq!(approved(&plan), [("a".to_owned(), hash("two"))], "it lives as far as is known");
    assert!(plan.troubles.keys().any(|trouble| trouble.cause == TroubleCause::LeaseNotWritten));
}

#[test]
fn a_new_leader_believes_no_agent_before_it_renews_its_lease() {
    let mut view = with_one_released(json!({}));
    let before = view.view.daemons.values().next().unwrap().status.clone();
    let mut three = before.clone();
    // The last holder knew that the pod of `a` is not ready.
    for (field, number) in [("numberReady", 3), ("numberAvailable", 3), ("numberUnavailable", 1)] {
        three[field] = json!(number);
    }
    view.put(WatchedKind::DaemonSets, wanted("two", json!({}), three));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({}), approval("two", &NOW.to_string())));
    view.state.liveness.follow(&view.view, NOW);
    view.state.liveness.listed(&renewed(&[]), NOW);
    let plan = view.plan(NOW);
    let counters = ["numberReady", "numberAvailable", "numberUnavailable"].map(|field| status(&plan)[field].clone());
    assert_eq!(counters, [json!(null), json!(null), json!(null)], "they stay");
    let writes = plan.writes.iter().any(|write| matches!(write, ObjectWrite::Approvals { .. }));
    assert!(!writes, "nothing is given, and nothing is taken back: {:?}", plan.writes);
    // All but one of those that have it renew; then the last one does, or is dead.
    NODES[1..3].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let of = |view: &mut ClusterWorld, second: i64, names: &[&str]| {
        let now = NOW + ms(second * 1_000);
        view.state.liveness.listed(&renewed(names), now);
        let plan = view.plan(now);
        (approved(&plan).len(), status(&plan)["numberReady"].clone())
    };
    assert_eq!(of(&mut view, 15, &["b", "c", "d"]), (0, json!(null)), "it may have the slot");
    let mut all_renewed = ClusterWorld { view: view.view.clone(), state: view.state.clone() };
    assert_eq!(of(&mut all_renewed, 30, &NODES), (1, json!(4)));
    for second in [30, 45] {
        view.state.liveness.listed(&renewed(&["b", "c", "d"]), NOW + ms(second * 1_000));
    }
    assert_eq!(of(&mut view, 60, &["b", "c", "d"]), (0, json!(null)), "it has it");
}

#[test]
fn a_new_leader_releases_nothing_and_forgets_no_broken_node_before_agents_renew_their_leases() {
    let mut view = with_one_released(json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let lost = json!({"nodes": [{"node": "a", "uid": "a", "time": "2023-01-01T00:00:00Z"}]});
    let mut two = revision("two", 2);
    two["metadata"]["annotations"] = json!({"daemonlet.dev/broken": lost.to_string()});
    view.put(WatchedKind::Revisions, two);
    let notes = |plan: &ClusterPlan| {
        let is_note = |write: &ObjectWrite| {
            matches!(write, ObjectWrite::Revision { write: history::RevisionWrite::Broken { .. }, .. })
        };
        plan.writes.iter().any(is_note)
    };
    view.state.liveness.follow(&view.view, NOW);
    view.state.liveness.listed(&renewed(&[]), NOW);
    let plan = view.plan(NOW);
    assert_eq!((released(&plan).2, notes(&plan)), (message("one"), false));
    view.state.liveness.listed(&renewed(&NODES), NOW + ms(15_000));
    let plan = view.plan(NOW + ms(15_000));
    assert_eq!((released(&plan).2, notes(&plan)), (message("two"), true));
}

#[test]
fn steps_canaries_zones_and_first_installs_wait_until_agents_renew_their_leases() {
    let on_first = |annotations: Value, number: usize| {
        let mut view = with_one_released(annotations);
        NODES[..number].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        let mut wide = view.view.daemons.values().next().unwrap().status.clone();
        wide["updatedNumberScheduled"] = json!(number);
        view
    };
    let steps = json!({"daemonlet.dev/steps": "1, 0s; 100%"});
    let canary = json!({"daemonlet.dev/canary": "first=yes", "daemonlet.dev/canary-hold": "0s"});
    for annotations in [steps, canary] {
        let mut view = on_first(annotations.clone(), 1);
        let mut first = node("a", "True");
        first["metadata"]["labels"]["first"] = json!("yes");
        view.put(WatchedKind::Nodes, first);
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&renewed(&[]), NOW);
        view.state.liveness.listed(&renewed(&["b", "c", "d"]), NOW + ms(15_000));
        let step = |plan: &ClusterPlan| {
            plan.writes.iter().any(|write| {
                let ObjectWrite::Revision { write, .. } = write else { return false };
                matches!(write, history::RevisionWrite::Step { state, .. } if state.step > 1)
            })
        };
        let plan = view.plan(NOW + ms(15_000));
        assert_eq!((approved(&plan).len(), step(&plan)), (0, false), "{annotations}");
        assert_eq!(released(&plan).2, message("one"));
        view.state.liveness.listed(&renewed(&NODES), NOW + ms(30_000));
        let plan = view.plan(NOW + ms(30_000));
        assert!(approved(&plan).len() == 1 || step(&plan), "{annotations}: {:?}", plan.writes);
    }
}

#[test]
fn a_few_nodes_release_nothing_while_the_others_are_silent() {
    let mut view = with_one_released(json!({}));
    let joined = "e";
    view.put(WatchedKind::Nodes, node(joined, "True"));
    view.put(WatchedKind::NodeDaemons, on_two(joined));
    let list = |view: &mut ClusterWorld, second: i64, names: &[&str]| {
        view.state.liveness.follow(&view.view, NOW);
        let joined_lease = [(joined.to_owned(), second.to_string())];
        let leases = renewed(names).into_iter().chain(joined_lease).collect();
        view.state.liveness.listed(&leases, NOW + ms(second * 1_000));
    };
    (0..=60).step_by(15).for_each(|second| list(&mut view, second, &[]));
    let plan = view.plan(NOW + ms(60_000));
    assert_eq!(condition(&plan, "Degraded").2, "agent does not renew its Lease on 4 nodes: a, b, c, d");
    assert_eq!(released(&plan).2, message("one"), "one node does not speak for five");
    let mut some = ClusterWorld { view: view.view.clone(), state: view.state.clone() };
    // Two that are silent hold nothing up, as two that are unreachable do not.
    ["a", "b"].iter().for_each(|name| some.put(WatchedKind::NodeDaemons, on_two(name)));
    list(&mut some, 75, &["a", "b"]);
    assert_eq!(released(&some.plan(NOW + ms(75_000))).2, message("two"));
    // One that is unreachable is as silent.
    some.put(WatchedKind::Nodes, node("a", "Unknown"));
    assert_eq!(released(&some.plan(NOW + ms(75_000))).2, message("one"));
    view.put(
        WatchedKind::DaemonSets,
        wanted(
            "two",
            json!({"daemonlet.dev/max-unreachable": "5"}),
            view.view.daemons.values().next().unwrap().status.clone(),
        ),
    );
    assert_eq!(released(&view.plan(NOW + ms(60_000))).2, message("two"), "whoever wants that writes it");
}

#[test]
fn nothing_is_released_while_a_node_has_no_report_or_is_kept_and_a_released_revision_does_not_halt() {
    let mut view = with_one_released(json!({}));
    ["b", "c", "d"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
    assert_eq!(released(&view.plan(NOW)).2, message("one"), "a may have the old one");
    assert_eq!(released(&view.plan(NOW + rollout::UNCLAIMED)).2, message("two"), "it has no agent");
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).2, message("one"), "a paused rollout releases nothing");
    // Nodes that fail a released revision are reported and halt nothing.
    let mut view = with_one_released(json!({}));
    view.put(
        WatchedKind::DaemonSets,
        wanted("one", json!({}), view.view.daemons.values().next().unwrap().status.clone()),
    );
    let failed = json!({"failed": {"revision": hash("one"), "cause": "image", "message": "no"}});
    ["a", "b"]
        .iter()
        .for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", failed.clone(), json!([]))));
    let plan = view.plan(NOW);
    assert_eq!((halt(&plan), condition(&plan, "Degraded").2.as_str()), (None, "image on 2 nodes: a, b"));
}
