//! What the DaemonSets of namespaces that are not trusted cost the others.

use super::*;
use crate::core::cluster::events::TroubleCause;

/// A DaemonSet of a namespace, without a history: its ControllerRevision and its status are to be written.
fn of(namespace: &str, number: usize) -> Value {
    let mut daemon = daemon_set("7", json!({}));
    daemon["metadata"]["namespace"] = json!(namespace);
    daemon["metadata"]["name"] = json!(format!("d{number:03}"));
    daemon["metadata"]["uid"] = json!(format!("{namespace}-{number}"));
    daemon
}

fn namespace_of(target: &RequestTarget) -> &str {
    match target {
        RequestTarget::Revision(key, ..) | RequestTarget::Status(key) => &key.namespace,
        _ => "",
    }
}

#[test]
fn no_number_of_a_tenants_writes_holds_up_what_is_trusted_and_each_tenant_has_turns() {
    let mut coordinator = Coordinator::new();
    for number in 0..100 {
        coordinator.changed(WatchedKind::DaemonSets, of("a", number));
        coordinator.changed(WatchedKind::DaemonSets, of("b", number));
        coordinator.changed(WatchedKind::DaemonSets, of("c", number));
    }
    coordinator.changed(WatchedKind::DaemonSets, of("d", 0));
    let first = coordinator.pass(vec![]);
    assert_eq!(targets(&first)[..2], [A, STATUS], "what is trusted comes first, and an approval before a status");
    let count = |namespace: &str| first.requests.iter().filter(|r| namespace_of(&r.target) == namespace).count();
    assert_eq!(["a", "b", "c", "d"].map(count), [21, 21, 21, 1], "they share what is sent at one time");
    // What failed is trusted all the same.
    let lost = RequestOutcome::Failed(SendError::Unanswered("no answer within 10 s".to_owned()));
    let mut replies = all(&first, &lost);
    replies[1].answer = RequestOutcome::Written;
    let second = coordinator.pass(replies);
    coordinator.later(1_000);
    let third = coordinator.pass(all(&second, &lost));
    assert_eq!(targets(&third)[..2], [STATUS, A], "it is tried again before what is of tenants");
}

#[test]
fn approvals_of_a_node_are_trusted_if_those_of_a_trusted_namespace_change_among_them() {
    let mut coordinator = Coordinator::new();
    // Of DaemonSets that are gone: approvals that are to be withdrawn.
    let gone = |namespace: &str| {
        json!({"namespace": namespace, "name": "gone", "uid": "x", "revision": "r", "approvedAt": "2023-11-14T22:13:20Z",
            "lease": lease(1)})
    };
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("b", "8", json!([gone("t")]), json!({})));
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("c", "8", json!([gone("t"), gone(KEY.0)]), json!({})));
    let decision = coordinator.pass(vec![]);
    assert_eq!(targets(&decision), [A, "approvals of node c", STATUS, B], "b is a tenant's alone");
}

#[test]
fn approvals_without_room_make_one_event_for_each_revision() {
    let mut coordinator = Coordinator::new();
    let view = ClusterSnapshot::clone(&coordinator.observation.snapshot);
    coordinator.observation.snapshot = Arc::new(view.trusting(vec!["trusted".to_owned()]));
    let standing = |(namespace, count): (&str, usize)| {
        let of = |number| json!({"namespace": namespace, "name": format!("d{number}"), "uid": "x", "revision": "r", "approvedAt": "2023-11-14T22:13:20Z"});
        (0..count).map(of).collect::<Vec<_>>()
    };
    // As many as a node may have, and among them its own namespace's share.
    let full: Vec<Value> = [("a", 508), (KEY.0, 4)].into_iter().flat_map(standing).collect();
    for name in ["a", "b", "c"] {
        coordinator.changed(WatchedKind::NodeDaemons, node_daemons(name, "8", json!(full), json!({})));
    }
    let events = |coordinator: &mut Coordinator| {
        let (mut written, mut replies) = (Vec::new(), Vec::new());
        for second in 0..300 {
            coordinator.later(1_000);
            let decision = coordinator.pass(std::mem::take(&mut replies));
            for request in &decision.requests {
                let answer = match &request.target {
                    RequestTarget::Event(trouble) => {
                        let of_it = (trouble.cause == TroubleCause::TooManyApprovals)
                            .then(|| (second, trouble.revision.clone()));
                        written.extend(of_it);
                        RequestOutcome::Written
                    }
                    _ => refused(),
                };
                replies.push(CoordinatorReply { number: request.number, answer });
            }
        }
        coordinator.pass(replies);
        written
    };
    assert_eq!(events(&mut coordinator), [(30, hash("two"))]);
    assert_eq!(events(&mut coordinator), [], "it still stands");
    let mut changed = daemon_set("8", json!({}));
    (changed["metadata"]["generation"], changed["spec"]["template"]) = (json!(3), template("three"));
    coordinator.changed(WatchedKind::Revisions, revision("three", 3));
    coordinator.changed(WatchedKind::DaemonSets, changed);
    assert_eq!(events(&mut coordinator), [(30, hash("three"))]);
}
