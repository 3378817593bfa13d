//! A pass of the coordinator over 5,000 nodes and 20 daemons, in the middle of their rollouts.

use std::hint::black_box;

use criterion::Criterion;
use daemonlet::core::cluster::history;
use daemonlet::core::cluster::pass;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::state::CoordinatorState;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

const NODES: usize = 5_000;
const DAEMONS: usize = 20;
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn template(daemon: usize, version: u32) -> Value {
    json!({"metadata": {"labels": {"app": format!("daemon-{daemon}")}}, "spec": {
        "nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": format!("registry.example.com/daemon-{daemon}:v{version}")}]}})
}

fn hash(daemon: usize, version: u32) -> String {
    history::RevisionFact::hash_of(&history::data(&template(daemon, version)))
}

fn world() -> ClusterSnapshot {
    let mut view = ClusterSnapshot::default();
    let hashes: Vec<[String; 2]> = (0..DAEMONS).map(|daemon| [hash(daemon, 1), hash(daemon, 2)]).collect();
    for (daemon, of) in hashes.iter().enumerate() {
        let metadata = json!({"namespace": "kube-system", "name": format!("daemon-{daemon}"), "uid": format!("uid-{daemon}"),
            "generation": 2, "resourceVersion": "1", "labels": {"daemonlet.dev/mode": "static"}});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}});
        let selector = json!({"matchLabels": {"app": format!("daemon-{daemon}")}});
        let spec = json!({"selector": selector, "template": template(daemon, 2), "updateStrategy": strategy});
        view.put(WatchedKind::DaemonSets, json!({"metadata": metadata, "spec": spec}));
        for (number, hash) in (1..).zip(of) {
            let owner = json!([{"kind": "DaemonSet", "uid": format!("uid-{daemon}"), "controller": true}]);
            let metadata = json!({"namespace": "kube-system", "name": format!("daemon-{daemon}-{hash}"),
                "ownerReferences": owner, "labels": {"app": format!("daemon-{daemon}"), "controller-revision-hash": hash}});
            let data = history::data(&template(daemon, number));
            view.put(WatchedKind::Revisions, json!({"metadata": metadata, "data": data, "revision": number}));
        }
    }
    for node in 0..NODES {
        let name = format!("node-{node:04}.example.com");
        let labels: serde_json::Map<String, Value> = (0..15)
            .map(|label| (format!("example.com/label-{label}"), json!(format!("value-{label}"))))
            .chain([("kubernetes.io/os".to_owned(), json!("linux"))])
            .collect();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        view.put(
            WatchedKind::Nodes,
            json!({"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"conditions": ready}}),
        );
        let daemons: Vec<Value> = hashes
            .iter()
            .enumerate()
            .map(|(daemon, of)| {
                let instance = json!({"pod": format!("daemon-{daemon}-abcde-{name}"), "revision": of[usize::from(node % 3 == 0)],
                    "created": "2023-11-01T00:00:00Z", "readySince": "2023-11-01T00:00:10Z"});
                json!({"namespace": "kube-system", "name": format!("daemon-{daemon}"), "uid": format!("uid-{daemon}"),
                    "mode": "static", "phase": "running", "instances": [instance], "previous": of[0]})
            })
            .collect();
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
        view.put(WatchedKind::NodeDaemons, json!({"metadata": metadata, "status": {"daemons": daemons}}));
    }
    view
}

pub(crate) fn coordinator(criterion: &mut Criterion) {
    let (view, state) = (world(), CoordinatorState::default());
    let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
    let plan = pass::plan(&view, &state, &settings, NOW);
    assert_eq!(plan.writes.len(), 500 + DAEMONS, "each daemon's budget, and its status");
    criterion.bench_function("coordinator: pass over 5,000 nodes x 20 daemons", |b| {
        b.iter(|| pass::plan(black_box(&view), &state, &settings, NOW))
    });
}
