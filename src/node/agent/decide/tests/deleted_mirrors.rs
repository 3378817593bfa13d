//! Mirror pods that the garbage collector deletes with a DaemonSet whose name another one has by then.

use crate::core::orders::ObjectState;
use crate::core::orders::Survey;
use crate::node::agent::requests::Request;

use super::*;

/// What the API server shows while the mirror pod of `instance` has this UID and belongs to the Node.
fn shows(instance: &Instance, mirror_uid: &str) -> Snapshot {
    let owner = json!({"kind": "Node", "uid": "n"});
    shows_mirror(instance, json!({"metadata": {"uid": mirror_uid, "ownerReferences": [owner]}}))
}

/// The decision when the mirror pod `m`, which belonged to the DaemonSet `owner`, is seen to be deleted and the
/// DaemonSet `d` is there, and the one after the answer, when the kubelet has made the mirror pod `m2`.
fn deleted(owner: &str) -> [Decision; 2] {
    let config = config();
    let mut state = state(&config);
    let instance = state.records[&key()].instances[0].clone();
    let show = |mirror_uid: &str| observation(Some(shows(&instance, mirror_uid)));
    state = decided(&show("m"), &state, &config).state;
    let mut seen = show("m");
    seen.api.as_mut().unwrap().sightings.push(Sighting {
        static_uid: instance.uid.clone(),
        mirror_uid: "m".to_owned(),
        pod: evidence::mirror_key(&key().namespace, &instance.pod_name, &config.node_name),
        node_uid: None,
        daemon_set_uid: Some(owner.to_owned()),
        seen: NotedEvent::Deleting,
    });
    let asks = decided(&seen, &state, &config);
    let there = |uid: &str| ObjectState::There { uid: uid.to_owned(), going: false };
    let replies = asks.requests.iter().filter_map(|request| match request {
        Request::Survey { mirror_uid, daemon_set, .. } => Some(Reply::Surveyed {
            mirror_uid: mirror_uid.clone(),
            survey: Survey {
                daemon_set: Some((there("d"), daemon_set.clone())),
                node: there("n"),
                shutting_down: false,
                node_ready: true,
                namespace: there("s"),
                ended: false,
            },
        }),
        _ => None,
    });
    let judged = Observation { replies: replies.collect(), ..show("m") };
    let state = decided(&judged, &asks.state, &config).state;
    let again = decided(&show("m2"), &state, &config);
    [asks, again]
}

#[test]
fn one_that_goes_with_a_deleted_daemon_set_restarts_nothing_of_the_one_that_has_its_name() {
    let [asks, again] = deleted("d0");
    let asked = |request: &Request| matches!(request, Request::Survey { daemon_set, .. } if daemon_set.as_deref() == Some("d0"));
    assert!(asks.requests.iter().any(asked), "{:?}", asks.requests);
    let instance = &again.state.records[&key()].instances[0];
    assert_eq!((&instance.restart, &instance.noted), (&None, &None), "it is judged once");
    assert_eq!(instance.mirror.as_ref().unwrap().uid, "m2");
    let [_, again] = deleted("d");
    let record = &again.daemon(&key()).unwrap().record;
    assert!(
        record.instances[0].restart.is_some() || record.live().next().is_none(),
        "it was deleted by itself: {record:?}"
    );
}
