//! The pod's metadata: labels and annotations of the template, and the instance's identity.
//!
//! Everything else in a template's metadata (finalizers, owners, generateName) is dropped.

use serde_json::Value;

use crate::core::identity::overlays_digest;
use crate::core::identity::template_hash;
use crate::core::json::Json;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::model::INCARNATION_ANNOTATION;
use crate::core::model::OVERLAYS_DIGEST;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::WAITING_ANNOTATION;
use crate::core::render::HeldPart;
use crate::core::render::Part;
use crate::core::render::RenderInput;
use crate::core::render::json::Object;

/// The annotation of a DaemonSet from which upstream takes the generation label.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Annotations that belong to the kubelet; a mirror annotation on a static pod would make it a mirror pod.
const OF_KUBELET: &str = "kubernetes.io/config.";

/// Builds the metadata of the instance.
pub(super) fn build(input: RenderInput<'_>) -> Object {
    let mut metadata = Object::new();
    let mut put = |name: &str, value: Value| metadata.insert(name.to_owned(), value);
    put("name", input.identity.pod_name.clone().into());
    put("namespace", input.daemon_set.key.namespace.clone().into());
    put("uid", input.identity.uid.clone().into());
    put("labels", labels(input).into());
    put("annotations", annotations(input).into());
    metadata
}

/// Names the containers that wait for their environment by themselves. When it changes, the kubelet syncs the pod at
/// once and starts them.
pub(super) fn mark_waiting(metadata: &mut Object, held: &[HeldPart]) {
    let waiting = held.iter().filter(|held| held.waits_alone()).filter_map(|held| match &held.part {
        Part::Environment { container, .. } => Some(container.as_str()),
        _ => None,
    });
    let waiting = waiting.collect::<Vec<_>>().join(",");
    if let Some(annotations) =
        metadata.get_mut("annotations").and_then(Value::as_object_mut).filter(|_| !waiting.is_empty())
    {
        annotations.insert(WAITING_ANNOTATION.to_owned(), waiting.into());
    }
}

/// The template's labels and those that upstream's `CreatePodTemplate` adds.
fn labels(input: RenderInput<'_>) -> Object {
    let mut labels = of_template(input, "labels");
    let generation = input.daemon_set.annotations.get(TEMPLATE_GENERATION);
    if let Some(generation) = generation.and_then(|generation| generation.parse::<i64>().ok()) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string().into());
    }
    if !input.revision.is_empty() {
        labels.insert(HASH_LABEL.to_owned(), template_hash(input.revision).into());
    }
    labels
}

/// The template's annotations and the mark of ownership.
fn annotations(input: RenderInput<'_>) -> Object {
    let mut annotations = of_template(input, "annotations");
    annotations.retain(|name, _| !name.starts_with(OF_KUBELET));
    annotations.insert(OWNER_ANNOTATION.to_owned(), input.daemon_set.key.to_string().into());
    annotations.insert(INCARNATION_ANNOTATION.to_owned(), input.incarnation.to_string().into());
    match overlays_digest(input.revision) {
        "" => annotations.remove(OVERLAYS_DIGEST),
        digest => annotations.insert(OVERLAYS_DIGEST.to_owned(), digest.into()),
    };
    annotations
}

fn of_template(input: RenderInput<'_>, name: &str) -> Object {
    let found = input.daemon_set.pod_template().at(["metadata", name]);
    found.and_then(Value::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
