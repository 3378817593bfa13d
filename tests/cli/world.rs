//! A small cluster as values: what the coordinator's own pass and the plugin are shown, for what the pages say of them.

use daemonlet::core::cluster::history;
use daemonlet::core::cluster::history::RevisionFact;
use daemonlet::core::cluster::pass;
use daemonlet::core::cluster::pass::ObjectWrite;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::snapshot::Change;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::KINDS;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::state::CoordinatorState;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

/// A Sunday.
const NOW: &str = "2026-11-22T12:00:00Z";

/// Nodes: their names, and their labels.
fn labels() -> [(&'static str, Value); 4] {
    let labels = |zone: &str, pool: &str, machine: &str| {
        json!({"topology.kubernetes.io/zone": zone, "example.org/rack": zone, "pool": pool,
            "node.kubernetes.io/instance-type": machine})
    };
    [
        ("n1", labels("a", "first", "m7.large")),
        ("n2", labels("b", "rest", "m7.24xlarge")),
        ("n3", labels("a", "rest", "m7.large")),
        ("n4", labels("b", "rest", "m7.large")),
    ]
}

fn template(name: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": name, "image": format!("registry.example.org/{name}:{image}")}]}})
}

/// The rollout of a DaemonSet from its image `1` to its image `2`.
pub(crate) struct Rollout {
    /// Its name, in the namespace kube-system.
    pub(crate) name: &'static str,
    /// Its annotations.
    pub(crate) annotations: Value,
    /// The nodes that have the image `2` available; the others have `1`.
    pub(crate) updated: &'static [&'static str],
    /// Those on which `2` failed, and that went back.
    pub(crate) failed: &'static [&'static str],
    /// What is noted on the ControllerRevision of `2`.
    pub(crate) noted: Value,
}

impl Rollout {
    /// One that begins.
    pub(crate) fn new(name: &'static str, annotations: Value) -> Self {
        Self { name, annotations, updated: &[], failed: &[], noted: json!({}) }
    }

    fn hash(&self, image: &str) -> String {
        RevisionFact::hash_of(&history::data(&template(self.name, image)))
    }

    /// The DaemonSet.
    pub(crate) fn daemon_set(&self) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"namespace": "kube-system", "name": self.name, "uid": self.name, "resourceVersion": "4711",
                "generation": 2, "labels": {"daemonlet.dev/mode": "static"}, "annotations": self.annotations},
            "spec": {"selector": {"matchLabels": {"app": self.name}}, "template": template(self.name, "2")}})
    }

    /// Its two ControllerRevisions.
    pub(crate) fn revisions(&self) -> [Value; 2] {
        [("1", json!({})), ("2", self.noted.clone())].map(|(image, noted)| {
            let (name, data) = (self.name, history::data(&template(self.name, image)));
            let owner = json!([{"kind": "DaemonSet", "name": name, "uid": name, "controller": true}]);
            let hash = self.hash(image);
            json!({"metadata": {"namespace": "kube-system", "name": format!("{name}-{hash}"), "uid": hash,
                    "resourceVersion": "1", "creationTimestamp": "2026-11-01T00:00:00Z", "ownerReferences": owner,
                    "labels": {"app": name, "controller-revision-hash": hash}, "annotations": noted},
                "data": data, "revision": image.parse::<i64>().unwrap()})
        })
    }

    /// What an agent says of it.
    fn report(&self, node: &str) -> Value {
        let image = if self.updated.contains(&node) { "2" } else { "1" };
        let mut report = json!({"namespace": "kube-system", "name": self.name, "uid": self.name, "mode": "static",
            "phase": "running", "previous": self.hash("1"),
            "instances": [{"pod": format!("{}-abcde-{node}", self.name), "revision": self.hash(image),
                "created": "2026-11-22T11:00:00Z", "readySince": "2026-11-22T11:00:10Z"}]});
        if self.failed.contains(&node) {
            report["failed"] = json!({"revision": self.hash("2"), "cause": "crash loop", "message": "exit code 1"});
        }
        report
    }
}

/// The Nodes.
pub(crate) fn nodes() -> [Value; 4] {
    labels().map(|(name, labels)| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    })
}

/// The NodeDaemons, with these rollouts.
pub(crate) fn node_daemons(rollouts: &[Rollout]) -> [Value; 4] {
    labels().map(|(name, _)| {
        let daemons: Vec<Value> = rollouts.iter().map(|rollout| rollout.report(name)).collect();
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {"approvals": []},
            "status": {"daemons": daemons}})
    })
}

/// What one pass of the coordinator does with a rollout: the nodes that it approves, and what `Progressing` says.
pub(crate) fn pass(rollout: Rollout) -> (Vec<String>, String) {
    let (daemon_set, revisions) = (rollout.daemon_set(), rollout.revisions());
    let mut view = ClusterSnapshot::new(String::new());
    for kind in KINDS {
        view.take(Change::Begin(kind));
        let objects: Vec<Value> = match kind {
            WatchedKind::Nodes => nodes().into(),
            WatchedKind::DaemonSets => vec![daemon_set.clone()],
            WatchedKind::NodeDaemons => node_daemons(std::slice::from_ref(&rollout)).into(),
            WatchedKind::Revisions => revisions.clone().into(),
            WatchedKind::Namespaces | WatchedKind::CertificateRequests => Vec::new(),
        };
        for object in objects {
            view.take(Change::Present(kind, Box::new(object), true));
        }
        view.take(Change::Complete(kind));
    }
    let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
    let now: Timestamp = NOW.parse().unwrap();
    let (mut approved, mut progressing) = (Vec::new(), String::new());
    for write in pass::plan(&view, &CoordinatorState::default(), &settings, now).writes {
        match write {
            ObjectWrite::Approvals { node, spec } if !spec.approvals.is_empty() => approved.push(node),
            ObjectWrite::Status { status, .. } => {
                let conditions = status["conditions"].as_array().unwrap().iter();
                let said = conditions.filter(|c| c["type"] == "Progressing").map(|c| c["message"].as_str().unwrap());
                progressing = said.collect();
            }
            _ => {}
        }
    }
    (approved, progressing)
}
