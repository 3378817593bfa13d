//! Daemons of which the next instance starts beside the last one (`maxSurge`).

use serde_json::Value;
use serde_json::json;

use super::kubelet::Manifest;
use super::kubelet::Phase;
use super::node::Node;

/// Their update strategy.
pub(crate) fn strategy() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
}

impl Node {
    /// Whether the next instance of a daemon starts beside the last one.
    pub(crate) fn surges(&self, name: &str) -> bool {
        self.surging.iter().any(|daemon| name.ends_with(&format!("/{}", self.daemons[*daemon].name)))
    }

    /// Whether the end of an instance, which is not the one that is wanted, leaves none that runs, though it surges.
    pub(crate) fn ends_a_surge_early(&self, was: &Manifest) -> bool {
        let is_of = |manifest: &Manifest| manifest.daemon == was.daemon;
        let runs = |uid: &str| {
            let mut pods = self.kubelet.pods.iter().filter(|(_, pod)| is_of(&pod.manifest));
            pods.any(|(other, pod)| (other == uid) && matches!(pod.phase, Phase::Running { .. }))
        };
        let others = self.kubelet.pods.iter().filter(|(uid, pod)| is_of(&pod.manifest) && **uid != was.uid);
        self.surges(&was.daemon) && runs(&was.uid) && !others.into_iter().any(|(uid, _)| runs(uid))
    }
}
