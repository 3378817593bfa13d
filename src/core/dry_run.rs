//! The API server's verdict on a pod before it starts (`policy.admission = "dry-run"`): the question, and the meaning of an
//! answer.
//!
//! Owns the pod that is sent, which is the DaemonSet controller's; the judgement of replies; and what of an answered pod
//! a new instance is made from. Must not send anything: the shell does, and [`AdmissionDryRun`] says when.

mod admission_dry_run;
mod fold;
mod reply;

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::identity::template_hash;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::GENERATION_ANNOTATION;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::model::Lookup;
use crate::core::placement::automatic_tolerations;
use crate::core::rendering;

pub use admission_dry_run::AdmissionDryRun;
pub use admission_dry_run::DryRunAnswer;
pub use admission_dry_run::FRESH;
pub use admission_dry_run::RequestState;
pub use reply::DryRunReply;
pub use reply::DryRunVerdict;
pub use reply::GRANT;
pub use reply::Unanswered;
pub use reply::judge;

/// One question: a pod that the API server is to judge.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Question {
    /// The DaemonSet whose pod it is.
    pub daemon_set: Arc<DaemonSet>,
    /// Tells questions apart: another pod, another instance or a namespace that changed is another question.
    pub about: String,
    pub pod: Value,
}

impl Question {
    /// The question for the instance of number `incarnation` of `daemon_set` on `node`; `namespace` is what is known
    /// of its Namespace.
    pub fn new(
        daemon_set: &Arc<DaemonSet>,
        revision: &str,
        node: &str,
        incarnation: u64,
        namespace: Lookup<'_>,
    ) -> Self {
        let pod = pod(daemon_set, revision, node);
        let metadata = match namespace {
            Lookup::Present(object) | Lookup::Deleted(object) => object.get("metadata"),
            Lookup::Absent | Lookup::Unknown => None,
        };
        let member = |name: &str| metadata.and_then(|metadata| metadata.get(name)).cloned().unwrap_or_default();
        let all = json!([pod, incarnation, member("labels"), member("annotations")]).to_string();
        Self { daemon_set: Arc::clone(daemon_set), about: rendering::digest(all.as_bytes()), pod }
    }
}

/// The pod that the DaemonSet controller would create for `node`: upstream's `CreatePodTemplate`, `GetPodFromTemplate` and
/// `ReplaceDaemonSetPodNodeNameNodeAffinity`. Its owner does not block, which would take a right of its own.
pub fn pod(daemon_set: &DaemonSet, revision: &str, node: &str) -> Value {
    let template = daemon_set.patched_template();
    let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut labels = map(template.at(["metadata", "labels"]));
    if let Some(generation) = daemon_set.annotations.get(GENERATION_ANNOTATION).filter(|g| g.parse::<i64>().is_ok()) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.clone().into());
    }
    labels.insert(HASH_LABEL.to_owned(), template_hash(revision).into());
    let mut metadata = json!({
        "generateName": format!("{}-", daemon_set.key.name),
        "namespace": daemon_set.key.namespace,
        "labels": labels,
        "annotations": map(template.at(["metadata", "annotations"])),
    });
    let finalizers = template.list_at(["metadata", "finalizers"]);
    if !finalizers.is_empty() {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(uid) = &daemon_set.uid {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_set.key.name, "uid": uid, "controller": true,
        }]);
    }
    let mut spec = map(template.at("spec"));
    let host_network = spec.flag_at("hostNetwork");
    let tolerations = automatic_tolerations(spec.list_at("tolerations"), host_network);
    spec.insert("tolerations".to_owned(), tolerations.into());
    let to_node = json!({"nodeSelectorTerms": [{
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
    }]});
    let mut affinity = spec.remove("affinity").and_then(|a| a.as_object().cloned()).unwrap_or_default();
    let node_affinity = affinity.entry("nodeAffinity").or_insert_with(|| json!({}));
    if !node_affinity.is_object() {
        *node_affinity = json!({});
    }
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = to_node;
    spec.insert("affinity".to_owned(), affinity.into());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests;
