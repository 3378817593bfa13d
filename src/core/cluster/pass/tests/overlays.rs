//! Approvals of revisions with overlays.

use super::*;

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
        let mut report_with_overlays = report(name, "a", more, json!([]));
        report_with_overlays["status"]["daemons"][0]["instances"][0]["overlays"] = "d1".into();
        report_with_overlays
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
