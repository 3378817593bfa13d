//! Room for the pods of namespaces that are not trusted.
//!
//! Owns how much is kept of each: anyone who may create pods can bind any number of them to a node. Of what has no room it is
//! known that it exists and whether it has ended.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::bounds;
use crate::core::bounds::PODS_KEPT;
use crate::core::json::Json;
use crate::core::model::ObjectKey;

use super::Snapshot;

impl Snapshot {
    /// What is kept of the pod `key`, of a namespace of which what is kept is bounded.
    pub(super) fn within_room(&mut self, key: &ObjectKey, pod: Arc<Value>) -> Arc<Value> {
        let weight = bounds::object_weight(&pod);
        // What it was before leaves its room.
        self.pod_weights.remove(key, &key.namespace);
        if weight > self.pod_weights.taken.left(PODS_KEPT, &key.namespace) {
            return Arc::new(existence(&pod));
        }
        self.pod_weights.insert(key, &key.namespace, weight);
        pod
    }

    /// A pod has gone.
    pub(super) fn leave_pod(&mut self, key: &ObjectKey) {
        self.pod_weights.remove(key, &key.namespace);
    }

    /// Pods that are not there any more leave their room.
    pub(super) fn weigh_pods_that_are_there(&mut self) {
        self.pod_weights.retain(|key| self.pods.contains_key(key), |key| &key.namespace);
    }
}

/// That a pod exists, and whether it has ended.
fn existence(pod: &Value) -> Value {
    let of = |field: &str| pod.str_at(["metadata", field]);
    let phase = pod.text_at(["status", "phase"]).filter(|phase| matches!(*phase, "Failed" | "Succeeded"));
    let mut kept =
        json!({"metadata": {"name": of("name"), "namespace": of("namespace"), "uid": of("uid")}, "status": {}});
    if let Some(phase) = phase {
        kept["status"]["phase"] = phase.into();
    }
    kept
}

#[cfg(test)]
mod tests;
