//! Labels of mirror pods: the kubelet never brings a changed label to the API under the same UID.
//!
//! Owns the patch that corrects revision and generation labels in place, without a restart.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::json::at;
use crate::core::json::text_at;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::node::api::Snapshot;

use super::Agent;
use super::evidence;
use super::facts;

/// What has been asked for, by mirror pod UID: a refused patch is not sent again and again.
#[derive(Default)]
pub(super) struct Patched(BTreeMap<String, Value>);

impl Agent {
    /// Corrects the labels of mirror pods whose manifests have others.
    pub(super) fn correct_labels(&mut self, snapshot: &Snapshot) {
        let Some(api) = self.api.clone() else { return };
        let mut seen = BTreeMap::new();
        for record in self.disk.records.values() {
            for instance in record.live() {
                let Some(daemon_set) = &instance.daemon_set else { continue };
                let namespace = &record.key.namespace;
                let Some(pod) = evidence::mirror(snapshot, namespace, instance, &self.config.node_name) else {
                    continue;
                };
                let wanted = [
                    (HASH_LABEL, Some(instance.revision.clone())),
                    (GENERATION_LABEL, daemon_set.annotations.get(facts::GENERATION_ANNOTATION).cloned()),
                ];
                let labels = at(pod, &["metadata", "labels"]).unwrap_or(&Value::Null);
                let wrong = wanted.iter().filter(|(name, value)| {
                    labels.get(name).and_then(Value::as_str) != value.as_deref() && value.is_some()
                });
                let patch: serde_json::Map<String, Value> =
                    wrong.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                let Some(uid) = text_at(pod, &["metadata", "uid"]) else { continue };
                if patch.is_empty() {
                    continue;
                }
                let patch = json!({"metadata": {"uid": uid, "labels": patch}});
                let key = evidence::mirror_key(namespace, &instance.pod_name, &self.config.node_name);
                if self.patched.0.get(uid) != Some(&patch) {
                    let (api, patch) = (api.clone(), patch.clone());
                    tokio::spawn(async move {
                        if let Err(failure) = api.patch_pod(&key, &patch).await {
                            tracing::warn!(pod = %key, "labels of mirror pod {key} are not corrected: {failure}");
                        }
                    });
                }
                seen.insert(uid.to_owned(), patch);
            }
        }
        self.patched.0 = seen;
    }
}
