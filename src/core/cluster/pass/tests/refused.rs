//! Definitions that are refused, and names that are taken.

use super::*;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::SendError;

/// A DaemonSet that this version does not understand, of the generation after the one in [`world`].
pub(super) fn refused(version: &str, status: Value) -> Value {
    let mut daemon = daemon_set("three", json!({}), status);
    daemon["metadata"]["generation"] = json!(4);
    daemon["metadata"]["resourceVersion"] = json!(version);
    daemon["spec"]["template"]["spec"]["restartPolicy"] = json!("Sometimes");
    daemon["spec"]["revisionHistoryLimit"] = json!(0);
    daemon
}

#[test]
fn a_refused_definition_is_reported_and_nothing_is_decided_from_it() {
    let mut view = world(json!({}));
    view.put(WatchedKind::Revisions, revision("zero", 0));
    let key = ObjectKey::new("kube-system", "net");
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", FAILED_AT)));
    let live = json!({"observedGeneration": 3, "conditions": [{"type": "Foreign", "status": "Maybe"}]});
    view.put(WatchedKind::DaemonSets, refused("8", live));
    let plan = view.plan(NOW);
    let [ObjectWrite::Status { status: written, .. }, ObjectWrite::Approvals { spec, .. }] = plan.writes.as_slice()
    else {
        panic!("{:?}", plan.writes)
    };
    assert_eq!((written.get("observedGeneration"), spec.approvals.len()), (None, 0));
    assert_eq!(
        (&written["desiredNumberScheduled"], &written["numberReady"]),
        (&json!(4), &json!(4)),
        "facts are counted"
    );
    assert_eq!(written["conditions"][0]["type"], "Foreign");
    for (kind, expected) in [
        ("Available", ("True", "AllAvailable", "4 of 4 nodes")),
        ("Progressing", ("False", "Held", "its definition is refused")),
    ] {
        let (status, reason, message) = condition(&plan, kind);
        assert_eq!((status.as_str(), reason.as_str(), message.as_str()), expected);
    }
    let (status, reason, message) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Invalid"));
    assert!(message.contains("spec.template.spec.restartPolicy: "), "{message}");
    // Writes are conditional on these; the next pass sees the same.
    assert_eq!((view.view.daemons[&key].resource_version.as_str(), view.view.daemons[&key].generation), ("8", 4));
    view.put(WatchedKind::DaemonSets, refused("9", written.clone()));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    assert_eq!(view.view.daemons[&key].resource_version, "9");
    assert_eq!(view.plan(NOW + ms(5_000)).writes, []);
    // It goes away, or is mended.
    let mut going = refused("10", json!({}));
    going["metadata"]["deletionTimestamp"] = json!("2023-01-01T00:00:00Z");
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), approval("two", FAILED_AT)));
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
fn an_unknown_mode_is_a_refused_definition() {
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
fn a_name_that_another_owners_revision_has_is_waited_for_or_counted_as_a_collision() {
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
                let (_, reason, message) = condition(&plan, "Degraded");
                assert_eq!(reason, "NoControllerRevision");
                assert!(message.contains("of a former DaemonSet of this name is still there"), "{message}");
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

#[test]
fn a_status_that_the_api_server_refuses_is_told_by_an_event() {
    let mut view = world(json!({}));
    let (target, refused) = (RequestTarget::Status(ObjectKey::new("kube-system", "net")), "no".to_owned());
    let causes = |view: &mut ClusterWorld| -> Vec<String> {
        view.plan(NOW).troubles.keys().map(|trouble| trouble.cause.note()).collect()
    };
    assert_eq!(causes(&mut view), [""; 0]);
    view.state.retries.failed(target, SendError::Refused(refused), NOW);
    let note = "its status cannot be written, so its conditions are old; the coordinator's log says why";
    assert_eq!(causes(&mut view), [note]);
}
