//! The pod's metadata: labels and annotations of the template, and the instance's identity.
//!
//! Everything else in a template's metadata (finalizers, owners, generateName) is dropped.

use serde_json::Value;

use crate::core::identity::overlays_digest;
use crate::core::identity::template_hash;
use crate::core::json::Json;
use crate::core::model::GENERATION_ANNOTATION;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::model::INCARNATION_ANNOTATION;
use crate::core::model::OVERLAYS_DIGEST;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::WAITING_ANNOTATION;
use crate::core::render::HeldPart;
use crate::core::render::Part;
use crate::core::render::RenderInput;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;

/// How many bytes the annotations of a pod may have, keys and values (`TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 << 10;
/// How many bytes are left to those that come later, without names of containers: the kubelet's four (some 220 bytes),
/// the digest of overlays, the containers that wait, and a longer incarnation number.
const LATER: usize = 512;
/// The first version whose API server gives a pod the zone and the region of its Node (`PodTopologyLabelsAdmission`).
const TOPOLOGY: (u32, u32) = (1, 35);
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

/// The kubelet appends the node's name; longer names are impossible.
pub(super) fn refuse_long_name(ctx: &mut RenderContext<'_>) {
    let length = ctx.input.identity.pod_name.len() + 1 + ctx.input.options.node_name.len();
    if length > 253 {
        let reason = format!("the pod's name with the node's would have {length} bytes; at most 253 are allowed");
        ctx.refuse("metadata.name", reason, "give the node a shorter name");
    }
}

/// Refuses annotations that leave no room for those that come later: on the same pod in place, and on its mirror pod.
pub(super) fn require_room(ctx: &mut RenderContext<'_>, metadata: &Object, spec: &Object) {
    let annotations = metadata.at("annotations").and_then(Value::as_object).into_iter().flatten();
    let own: usize = annotations.map(|(name, value)| name.len() + value.as_str().unwrap_or_default().len()).sum();
    let waiting: usize = containers::all(spec).map(|(_, container)| container.str_at("name").len() + 1).sum();
    let most = MAX_ANNOTATIONS - LATER;
    if own + waiting > most {
        let over = own + waiting - most;
        ctx.refuse(
            "spec.template.metadata.annotations",
            format!("must be no more than {MAX_ANNOTATIONS} bytes with those that daemonlet and the kubelet add"),
            &format!("shorten them by {over} bytes"),
        );
    }
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

/// The template's labels, those that upstream's `CreatePodTemplate` adds, and those of the Node, which count before the
/// template's.
fn labels(input: RenderInput<'_>) -> Object {
    let mut labels = of_template(input, "labels");
    let generation = input.daemon_set.annotations.get(GENERATION_ANNOTATION);
    if let Some(generation) = generation.and_then(|generation| generation.parse::<i64>().ok()) {
        // As the API server's `PrepareForCreate`.
        labels.insert(GENERATION_LABEL.to_owned(), generation.max(1).to_string().into());
    }
    if !input.revision.is_empty() {
        labels.insert(HASH_LABEL.to_owned(), template_hash(input.revision).into());
    }
    if input.options.kubelet_version.is_some_and(|version| version >= TOPOLOGY) {
        let of_node = input.options.topology.iter();
        labels.extend(of_node.map(|(name, value)| (name.clone(), value.clone().into())));
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
