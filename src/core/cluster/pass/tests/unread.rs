//! What is decided while a DaemonSet's history is not known yet, and of DaemonSets that are left out.

use super::*;
use crate::core::cluster::events::Trouble;
use crate::core::cluster::events::TroubleCause;

#[test]
fn nothing_is_decided_before_the_history_is_read_where_a_halt_may_stand() {
    let mut view = ClusterWorld::default();
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
    assert!(!plan.writes.iter().any(|write| matches!(write, ObjectWrite::Revision { .. })), "{:?}", plan.writes);
}

#[test]
fn too_many_daemon_sets_of_a_namespace_make_one_event_with_their_number() {
    let mut view = ClusterWorld::default();
    for number in 0..104 {
        let mut daemon = daemon_set("one", json!({}), json!({}));
        (daemon["metadata"]["name"], daemon["metadata"]["uid"]) =
            (json!(format!("d-{number:03}")), json!(number.to_string()));
        view.put(WatchedKind::DaemonSets, daemon);
    }
    let plan = view.plan(NOW);
    let is_it = |trouble: &Trouble| matches!(trouble.cause, TroubleCause::TooManyDaemonSets(_));
    let found: Vec<_> = plan.troubles.iter().filter(|(trouble, _)| is_it(trouble)).collect();
    let [(trouble, 4)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((trouble.key.name.as_str(), trouble.uid.as_str()), ("d-100", "100"));
    let cause = trouble.cause.note();
    assert!(cause.contains("namespace kube-system has more than 100 DaemonSets"), "{cause}");
}

#[test]
fn what_was_approved_stands_where_the_daemon_set_is_not_read_yet() {
    let mut view = ClusterWorld::default();
    for kind in KINDS {
        view.take(Change::Begin(kind));
        view.take(Change::Complete(kind));
    }
    // It has no label, and this coordinator has not read it yet.
    let mut plain = daemon_set("two", json!({}), json!({}));
    plain["metadata"]["labels"] = json!({});
    let mut outline = plain.clone();
    (outline["spec"], outline["status"]) = (Value::Null, json!({}));
    view.take(Change::Present(WatchedKind::DaemonSets, Box::new(outline), false));
    [revision("one", 1), revision("two", 2)].into_iter().for_each(|r| view.put(WatchedKind::Revisions, r));
    let mut approvals = approval("two", &NOW.to_string());
    let mut of_another = approvals[0].clone();
    of_another["name"] = json!("gone");
    approvals.as_array_mut().unwrap().push(of_another);
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"replacing": hash("two")}), approvals));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("two"))], "that of one that is gone is withdrawn");
    assert_eq!(plan.writes.len(), 1, "{:?}", plan.writes);
    view.take(Change::Read(WatchedKind::DaemonSets, Box::new(plain)));
    let unread: Vec<_> = view.view.unread().map(|(_, key)| key.name.clone()).collect();
    assert_eq!(unread.len(), 2, "its history");
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("two"))]);
}

/// The same DaemonSet with a definition that is refused.
fn unclear(annotations: Value) -> Value {
    let mut refused = daemon_set("two", annotations, json!({}));
    refused["metadata"]["generation"] = json!(4);
    refused["spec"]["template"]["spec"]["restartPolicy"] = json!("Sometimes");
    refused
}

/// It is mended.
fn clear(annotations: Value) -> Value {
    let mut daemon = daemon_set("two", annotations, json!({}));
    daemon["metadata"]["generation"] = json!(5);
    daemon
}

#[test]
fn what_is_remembered_of_a_daemon_set_outlives_passes_that_decide_nothing_about_it() {
    // A halt that could not be written, and other machines in place of those on which it failed.
    let mut view = world(json!({}));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    assert_eq!(view.plan(NOW).halts.len(), 1);
    NODES.into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([]))));
    view.put(WatchedKind::DaemonSets, unclear(json!({})));
    view.plan(NOW + ms(1));
    view.put(WatchedKind::DaemonSets, clear(json!({})));
    let plan = view.plan(NOW + ms(2));
    assert_eq!((approved(&plan), plan.halts.len()), (vec![], 1));
    // A node that is not well, and is deleted meanwhile.
    let most = || json!({"daemonlet.dev/max-failed": "0"});
    let mut view = world(most());
    let instance = json!([{"pod": "p", "revision": hash("two"), "created": NOW.to_string()}]);
    view.put(WatchedKind::NodeDaemons, report("a", "two", json!({"instances": instance}), json!([])));
    view.plan(NOW + ms(1_000));
    view.put(WatchedKind::DaemonSets, unclear(most()));
    view.plan(NOW + ms(2_000));
    view.take(Change::Gone(WatchedKind::Nodes, Box::new(node("a", "True"))));
    view.plan(NOW + ms(3_000));
    view.put(WatchedKind::DaemonSets, clear(most()));
    assert_eq!(view.plan(NOW + ms(4_000)).halts.len(), 1, "it has failed");
}

#[test]
fn an_unreadable_history_is_reported_after_a_while_with_true_counters() {
    let mut view = ClusterWorld::default();
    for kind in KINDS {
        view.take(Change::Begin(kind));
        view.take(Change::Complete(kind));
    }
    let history = [revision("one", 1), revision("two", 2)];
    history.iter().for_each(|revision| view.put(WatchedKind::Revisions, revision.clone()));
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    view.put(WatchedKind::Nodes, node("a", "False"));
    let conditions = json!([{"type": "Progressing", "status": "True", "reason": "RollingOut"},
        {"type": "Available", "status": "True", "reason": "AllAvailable"}]);
    let status_before = json!({"conditions": conditions, "desiredNumberScheduled": 4, "numberAvailable": 4});
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({}), status_before));
    let plan = view.plan(NOW);
    assert_eq!((plan.writes.as_slice(), plan.look_again), ([].as_slice(), Some(NOW + ms(30_000))));
    assert_eq!(view.plan(NOW + ms(29_999)).writes, []);
    let plan = view.plan(NOW + ms(30_000));
    assert_eq!((status(&plan)["numberAvailable"].as_i64(), plan.writes.len()), (Some(3), 1), "{:?}", plan.writes);
    assert_eq!(status(&plan).get("observedGeneration"), None);
    let (is_degraded, reason, message) = condition(&plan, "Degraded");
    assert_eq!((is_degraded.as_str(), reason.as_str()), ("True", "Unreadable"));
    assert!(message.starts_with("the coordinator cannot read its ControllerRevisions; "), "{message}");
    assert_eq!(condition(&plan, "Progressing").1, "Held");
    assert_eq!(condition(&plan, "Available").0, "False");
    history.into_iter().for_each(|revision| view.take(Change::Read(WatchedKind::Revisions, Box::new(revision))));
    let plan = view.plan(NOW + ms(31_000));
    assert_eq!((condition(&plan, "Progressing").1.as_str(), plan.unread.len()), ("RollingOut", 0));
}
