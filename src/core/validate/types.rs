//! The types of fields, as Go's decoder accepts them: a value that fails here would fail in the kubelet, too.
//!
//! `k8s-openapi` provides the types; our own deserializer applies Go's rules instead of serde's (null is every type's
//! zero value, quantities may be numbers) and tracks the current field.

mod go;

use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::apps::v1::DaemonSetStatus;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::nearest;

/// Checks the types of a DaemonSet's fields.
pub(super) fn daemon_set(value: &Value) -> Result<(), FieldError> {
    go::check::<ObjectMeta>(value.get("metadata"), "metadata")?;
    go::check::<DaemonSetSpec>(value.get("spec"), "spec")?;
    go::check::<DaemonSetStatus>(value.get("status"), "status")
}

/// The fields of a DaemonSet that Kubernetes 1.36 does not have, each with a suggestion. The API server drops them and
/// `kubectl` warns; they need not be mistakes.
pub fn unknown_fields(daemon_set: &Value) -> Vec<FieldError> {
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    let others = daemon_set.as_object().into_iter().flatten().map(|(key, _)| key);
    let others = others.filter(|key| !known.contains(&key.as_str()));
    let top = others.map(|key| (key.clone(), nearest::of(key, known.into_iter())));
    let deep = go::unknown::<ObjectMeta>(daemon_set.get("metadata"), "metadata");
    let deep = deep.into_iter().chain(go::unknown::<DaemonSetSpec>(daemon_set.get("spec"), "spec"));
    top.chain(deep).map(unknown_field).collect()
}

/// The fields of `object`, of a kind that DaemonSets refer to, that Kubernetes 1.36 does not have: those at its top, and
/// those of a RuntimeClass's `overhead`.
pub fn unknown_fields_of(kind: Kind, object: &Value) -> Vec<FieldError> {
    let fields: &[&'static str] = match kind {
        Kind::ConfigMap => &["data", "binaryData", "immutable"],
        Kind::Secret => &["data", "stringData", "type", "immutable"],
        Kind::ServiceAccount => &["secrets", "imagePullSecrets", "automountServiceAccountToken"],
        Kind::PriorityClass => &["value", "globalDefault", "description", "preemptionPolicy"],
        Kind::RuntimeClass => &["handler", "overhead", "scheduling"],
        Kind::Namespace | Kind::Service | Kind::ControllerRevision => return Vec::new(),
    };
    let of = |value: &Value, place: &str, known: &[&'static str]| -> Vec<FieldError> {
        let names = value.as_object().into_iter().flatten().map(|(name, _)| name);
        let unknown = names.filter(|name| !known.contains(&name.as_str()));
        unknown
            .map(|name| unknown_field((format!("{place}{name}"), nearest::of(name, known.iter().copied()))))
            .collect()
    };
    let mut unknown = of(object, "", &[&["apiVersion", "kind", "metadata"], fields].concat());
    if let Some(overhead) = object.get("overhead").filter(|_| kind == Kind::RuntimeClass) {
        unknown.extend(of(overhead, "overhead.", &["podFixed"]));
    }
    unknown
}

/// The fields of `patch`, a patch of a pod template at `place`, that Kubernetes 1.36 does not have or whose type Go does
/// not accept. The directives of a strategic merge may be in it.
pub fn patch_fields(patch: &Value, place: &str) -> Vec<FieldError> {
    if let Err(error) = go::check::<PodTemplateSpec>(Some(patch), place) {
        return vec![error];
    }
    let is_directive = |field: &str| field.rsplit('.').next().is_some_and(|name| name.starts_with('$'));
    let unknown = go::unknown::<PodTemplateSpec>(Some(patch), place);
    unknown.into_iter().filter(|(field, _)| !is_directive(field)).map(unknown_field).collect()
}

/// The fields of `selector`, a label selector at `place`, that Kubernetes does not have or whose type Go does not accept.
pub(super) fn label_selector(selector: &Value, place: &str) -> Vec<FieldError> {
    match go::check::<LabelSelector>(Some(selector), place) {
        Err(error) => vec![error],
        Ok(()) => go::unknown::<LabelSelector>(Some(selector), place).into_iter().map(unknown_field).collect(),
    }
}

fn unknown_field((field, meant): (String, Option<&'static str>)) -> FieldError {
    FieldError {
        field,
        reason: "unknown field: Kubernetes 1.36 does not have it".to_owned(),
        hint: meant.map(|name| format!("did you mean {name}?")),
    }
}

/// Checks that the kubelet can decode `template`, `{metadata, spec}` of a DaemonSet, field by field.
///
/// Unknown fields are ignored, as by the kubelet. Field names start at the template.
///
/// # Errors
/// The first field whose type Go does not accept.
pub fn pod_template_types(template: &Value) -> Result<(), FieldError> {
    go::check::<PodTemplateSpec>(Some(template), "")
}

/// Checks that the kubelet can decode `pod`, a complete v1 Pod, as [`pod_template_types`] does for a template.
///
/// # Errors
/// The first field whose type Go does not accept.
pub fn pod_types(pod: &Value) -> Result<(), FieldError> {
    go::check::<ObjectMeta>(pod.get("metadata"), "metadata")?;
    go::check::<PodSpec>(pod.get("spec"), "spec")
}
