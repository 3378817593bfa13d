//! `spec.template` as upstream's `ValidatePodTemplateSpec` judges it.
//!
//! A file in a folder was never checked by an API server. A mistake that is not reported here ends as a manifest that
//! the kubelet ignores.

use serde_json::Value;

use super::container;
use super::metadata;
use super::pod_spec;
use super::rules::POD_SPEC;
use super::scheduling;
use super::volumes;
use crate::core::json::Json;
use crate::core::model::FieldError;

/// Checks metadata, volumes, containers, security and scheduling of the template.
pub(super) fn check(template: &Value, errors: &mut Vec<FieldError>) {
    let empty = Value::Null;
    metadata::check(template.get("metadata").unwrap_or(&empty), "spec.template.metadata", errors);
    metadata::of_pod(template, errors);
    let spec = template.get("spec").unwrap_or(&empty);
    let claims = spec.list_at("resourceClaims").iter().map(|claim| claim.str_at("name")).collect();
    let declared = container::Declared { volumes: volumes::check(spec, errors), claims };
    for field in ["initContainers", "containers"] {
        for (index, container) in spec.list_at(field).iter().enumerate() {
            let place = format!("{POD_SPEC}.{field}[{index}]");
            container::check(spec, container, field == "initContainers", &declared, &place, errors);
        }
    }
    container::host_ports(spec, errors);
    container::pod_security(spec, errors);
    container::pod_resources(spec, errors);
    scheduling::check(spec, errors);
    pod_spec::check(spec, errors);
}

#[cfg(test)]
mod tests;
