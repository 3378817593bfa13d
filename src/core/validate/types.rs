//! The types of fields, as Go's decoder takes them: what fails here would fail in the kubelet too.
//!
//! `k8s-openapi` knows the types; a deserializer of our own puts Go's rules in place of serde's
//! (null is every type's zero value, quantities may be numbers) and knows the field it is at.

mod go;

use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::core::model::FieldError;

/// Checks the types of a DaemonSet's metadata and spec; its status is nobody's business here.
pub(super) fn daemon_set(value: &Value) -> Result<(), FieldError> {
    go::check::<ObjectMeta>(value.get("metadata"), "metadata")?;
    go::check::<DaemonSetSpec>(value.get("spec"), "spec")
}

/// Checks that the kubelet can decode `template`, `{metadata, spec}` of a DaemonSet, field by field.
///
/// Unknown fields are left alone, as the kubelet leaves them. Fields are named from the template on.
///
/// # Errors
/// The first field whose value has a type that Go would not take.
pub fn pod_template_types(template: &Value) -> Result<(), FieldError> {
    go::check::<PodTemplateSpec>(Some(template), "")
}

/// Checks that the kubelet can decode `pod`, a whole v1 Pod, as [`pod_template_types`] does a template.
///
/// # Errors
/// The first field whose value has a type that Go would not take.
pub fn pod_types(pod: &Value) -> Result<(), FieldError> {
    go::check::<ObjectMeta>(pod.get("metadata"), "metadata")?;
    go::check::<PodSpec>(pod.get("spec"), "spec")
}
