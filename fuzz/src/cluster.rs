//! NodeDaemons as a compromised agent writes them, an object a line, and a coordinator that reads them during a rollout.

use std::sync::Arc;

use daemonlet::core::cluster::decide;
use daemonlet::core::cluster::history;
use daemonlet::core::cluster::node_daemons::LeaseTerm;
use daemonlet::core::cluster::observation::ClusterObservation;
use daemonlet::core::cluster::observation::Leadership;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::requests::Call;
use daemonlet::core::cluster::snapshot::Change;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::KINDS;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::state::CoordinatorState;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

use super::mutate;

const NODES: [&str; 3] = ["n1", "n2", "evil"];

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn hash(image: &str) -> String {
    history::RevisionFact::hash_of(&history::data(&template(image)))
}

fn revision(image: &str, number: i64) -> Value {
    let owner = json!([{"kind": "DaemonSet", "name": "net", "uid": "u", "controller": true}]);
    json!({"metadata": {"namespace": "kube-system", "name": format!("net-{}", hash(image)), "uid": format!("r{number}"),
            "resourceVersion": "1", "ownerReferences": owner,
            "labels": {"app": "net", "controller-revision-hash": hash(image)}},
        "data": history::data(&template(image)), "revision": number})
}

/// A cluster of three nodes in which a DaemonSet is rolled out.
fn cluster() -> Vec<(WatchedKind, Value)> {
    let mut objects = vec![(
        WatchedKind::DaemonSets,
        json!({
        "metadata": {"namespace": "kube-system", "name": "net", "uid": "u", "resourceVersion": "1", "generation": 2,
            "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template("two"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}}),
    )];
    objects.extend([("one", 1), ("two", 2)].map(|(image, number)| (WatchedKind::Revisions, revision(image, number))));
    for name in NODES {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        objects.push((
            WatchedKind::Nodes,
            json!({"metadata": {"name": name, "uid": name}, "status": {"conditions": ready}}),
        ));
        objects.push((WatchedKind::NodeDaemons, json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "status": {"daemons": [{"namespace": "kube-system", "name": "net", "uid": "u", "mode": "static", "phase": "running",
                "instances": [{"pod": "p", "revision": hash("one"), "created": "2023-01-01T00:00:00Z",
                    "readySince": "2023-01-01T00:00:10Z"}]}]}})));
    }
    objects
}

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let mut snapshot = ClusterSnapshot::new(String::new());
    let objects = cluster();
    for kind in KINDS {
        snapshot.take(Change::Begin(kind));
        for (_, object) in objects.iter().filter(|(of, _)| *of == kind) {
            snapshot.take(Change::Present(kind, Box::new(object.clone()), true));
        }
        snapshot.take(Change::Complete(kind));
    }
    let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
    let lease =
        LeaseTerm { namespace: "kube-system".to_owned(), name: "l".to_owned(), uid: "l".to_owned(), transitions: 1 };
    let mut state = CoordinatorState::default();
    let mut now = Timestamp::from_secs(1_700_000_000);
    for line in data.split(|byte| *byte == b'\n').take(16) {
        let Ok(Value::Object(mut object)) = serde_json::from_slice(line) else { continue };
        let known = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut metadata = Value::Object(known);
        // Its name is all that the policy for agents holds it to.
        (metadata["name"], metadata["uid"]) = (json!("evil"), json!("evil"));
        object.insert("metadata".to_owned(), metadata);
        snapshot.take(Change::Present(WatchedKind::NodeDaemons, Box::new(Value::Object(object)), false));
        now += Span::from_secs(30);
        let observation = ClusterObservation {
            now,
            ahead: Span::ZERO,
            leadership: Leadership::Leading { term: 1, lease: lease.clone() },
            snapshot: Arc::new(snapshot.clone()),
            unreadable: Vec::new(),
            watches: Default::default(),
            replies: Vec::new(),
        };
        state.absorb(&observation);
        let decision = decide::decide(&observation, &state, &settings);
        assert_eq!(decide::decide(&observation, &state, &settings).requests, decision.requests, "not the same twice");
        assert!(decision.requests.len() < 200, "{} requests", decision.requests.len());
        for request in &decision.requests {
            if let Call::GetPod(pod) = &request.call {
                assert!(!pod.namespace.contains('/') && !pod.name.contains('/'), "another path: {pod}");
            }
        }
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::lines(data, max, seed) } else { None }
}
