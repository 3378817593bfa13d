//! What is decided while a DaemonSet's history is not known yet, and of DaemonSets that are left out.

use super::*;

#[test]
fn nothing_is_decided_before_the_history_is_read_where_a_halt_may_stand() {
    let mut view = World::default();
    for kind in KINDS {
        view.take(Change::Begin(kind));
        view.take(Change::Complete(kind));
    }
    let mut two = revision("two", 2);
    two["metadata"]["annotations"] = json!({"daemonlet.dev/halted": "{\"cause\": \"crash\"}"});
    // They were the DaemonSet controller's when they came.
    let history = [revision("one", 1), two];
    history.iter().for_each(|revision| view.put(WatchedKind::Revisions, revision.clone()));
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), approval("two", "2023-11-14T22:13:00Z")));
    }
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), json!({})));
    assert_eq!(view.plan(NOW).writes, [], "and what was approved stands");
    for revision in history {
        assert_eq!(view.plan(NOW).writes, []);
        view.take(Change::Read(WatchedKind::Revisions, Box::new(revision)));
    }
    let plan = view.plan(NOW);
    assert_eq!(condition(&plan, "Halted").0, "True");
    assert!(!plan.writes.iter().any(|write| matches!(write, Write::Revision { .. })), "{:?}", plan.writes);
}

#[test]
fn too_many_daemon_sets_of_a_namespace_are_told_in_one_event_with_their_number() {
    let mut view = World::default();
    for number in 0..104 {
        let mut daemon = daemon_set("one", json!({}), json!({}));
        (daemon["metadata"]["name"], daemon["metadata"]["uid"]) =
            (json!(format!("d-{number:03}")), json!(number.to_string()));
        view.put(WatchedKind::DaemonSets, daemon);
    }
    let plan = view.plan(NOW);
    let told: Vec<_> = plan.troubles.iter().filter(|(of, _)| of.reason == "TooManyDaemonSets").collect();
    let [(trouble, 4)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((trouble.key.name.as_str(), trouble.uid.as_str()), ("d-100", "100"));
    assert!(trouble.cause.contains("namespace kube-system has more than 100 DaemonSets"), "{}", trouble.cause);
}
