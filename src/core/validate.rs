//! Upstream's validation of DaemonSets, for what matters here.
//!
//! Owns whether the API server would accept a DaemonSet (`ValidateDaemonSet`) and whether the kubelet could decode its
//! pod template. Must not change what it judges.

mod container;
mod downward;
pub mod gated;
mod metadata;
mod pod;
mod pod_spec;
mod rules;
mod scheduling;
mod selector;
mod strategy;
mod template;
mod types;
mod versions;
mod volumes;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::bounds::EVERYONE;
use crate::core::cluster::released::RolloutStatus;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::AFTER;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::StartGate;
use crate::core::start_order;

pub use selector::label_selector;
pub use selector::selects;

pub use types::patch_fields;
pub use types::pod_template_types;
pub use types::pod_types;
pub use types::unknown_fields;
pub use types::unknown_fields_of;

pub use versions::AS_THE_API;
pub use versions::is_env_var_name;

/// The deepest nesting of maps and lists in a spec. A checkpoint nests it a few levels deeper, and readers of
/// checkpoints and manifests stop near 120 ([`crate::core::yaml::MAX_DEPTH`]).
const MAX_LEVELS: usize = 100;

/// Validates an apps/v1 DaemonSet and returns the typed view.
///
/// # Errors
/// Every field that upstream would refuse.
pub fn daemon_set(value: &Value, source: Source) -> Result<DaemonSet, Vec<FieldError>> {
    let mut errors = Vec::new();
    if let Err(error) = types::daemon_set(value) {
        // With a field of the wrong type, the other checks would report the same again.
        return Err(vec![error]);
    }
    let empty = Value::Null;
    let metadata = value.get("metadata").unwrap_or(&empty);
    let spec = value.get("spec").unwrap_or(&empty);
    let key = ObjectKey::new(metadata.text_at("namespace").unwrap_or("default"), metadata.str_at("name"));
    if let Some(reason) = dns::subdomain(&key.name) {
        errors.push(wrong("metadata.name", reason));
    }
    if let Some(reason) = dns::label(&key.namespace) {
        errors.push(wrong("metadata.namespace", reason));
    }
    if !spec.is_object() {
        errors.push(wrong("spec", "required"));
        return Err(errors);
    }
    if is_deeper(spec, MAX_LEVELS) {
        return Err(vec![wrong("spec", format!("maps and lists are nested more than {MAX_LEVELS} levels deep"))]);
    }
    let template = spec.get("template").unwrap_or(&empty);
    let over = EVERYONE.exceeded_by(template);
    if !over.is_empty() {
        return Err(over);
    }
    self::metadata::check(metadata, "metadata", &mut errors);
    self::metadata::of_object(metadata, &mut errors);
    let template_labels = strings(spec.at(["template", "metadata", "labels"]));
    selector::check(spec.get("selector"), &template_labels, &mut errors);
    template::check(spec.get("template"), &mut errors);
    match &source {
        Source::Api => pod::check(template, &mut errors),
        Source::File { .. } => pod::check(&gated::without(template), &mut errors),
    }
    let update_strategy = strategy::read(spec.get("updateStrategy"), &mut errors);
    let min_ready_seconds = not_negative(spec, "minReadySeconds", &mut errors);
    not_negative(spec, "revisionHistoryLimit", &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(DaemonSet {
        key,
        uid: metadata.text_at("uid").map(str::to_owned),
        generation: metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0),
        labels: strings(metadata.get("labels")),
        annotations: strings(metadata.get("annotations")),
        deleting: metadata.get("deletionTimestamp").is_some_and(|timestamp| !timestamp.is_null()),
        finalizers: metadata
            .get("finalizers")
            .and_then(Value::as_array)
            .map(|finalizers| finalizers.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default(),
        selector: spec.get("selector").cloned().unwrap_or_default(),
        template: spec.get("template").cloned().unwrap_or_default(),
        update_strategy,
        min_ready_seconds,
        admitted: None,
        overlays: None,
        gate: match metadata.at(["annotations", AFTER]).and_then(Value::as_str).map(start_order::daemons) {
            Some(Ok(_)) => StartGate::Wanted,
            Some(Err(_)) | None => StartGate::None,
        },
        rollout: match source {
            Source::Api => {
                let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
                RolloutStatus::of(value.get("status").unwrap_or(&Value::Null), generation)
            }
            Source::File { .. } => RolloutStatus::default(),
        },
        source,
    })
}

/// Every field of a DaemonSet's pod template that upstream would refuse; field names start at the DaemonSet.
pub fn pod_template(template: &Value) -> Vec<FieldError> {
    if let Err(error) = pod_template_types(template) {
        return vec![FieldError { field: format!("spec.template.{}", error.field), ..error }];
    }
    if is_deeper(template, MAX_LEVELS) {
        return vec![wrong("spec.template", format!("maps and lists are nested more than {MAX_LEVELS} levels deep"))];
    }
    let mut errors = EVERYONE.exceeded_by(template);
    if errors.is_empty() {
        template::check(Some(template), &mut errors);
        pod::check(template, &mut errors);
    }
    errors
}

/// Everything that a kubelet of `version` would refuse in `pod`, a rendered v1 Pod; `None`: as the newest does. Field
/// names are those of a DaemonSet. The types of fields are not judged.
pub fn rendered_pod(pod: &Value, version: Option<(u32, u32)>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    template::check(Some(pod), &mut errors);
    pod::check(pod, &mut errors);
    versions::check(pod.get("spec").unwrap_or(&Value::Null), version, &mut errors);
    errors
}

/// Everything that no kubelet takes of `fields`, fields of a pod's spec that a PriorityClass or RuntimeClass gives: their
/// types, `overhead` and `preemptionPolicy`. Field names start with `spec`.
pub fn class_fields(fields: &Value) -> Vec<FieldError> {
    let pod = json!({"spec": fields});
    if let Err(error) = pod_types(&pod) {
        return vec![error];
    }
    let mut errors = Vec::new();
    container::overhead(&pod["spec"], "spec", &mut errors);
    pod_spec::preemption_policy(&pod["spec"], "spec", &mut errors);
    errors
}

/// Whether maps and lists are nested more than `levels` deep in `value`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(map) => levels == 0 || map.values().any(|value| is_deeper(value, levels - 1)),
        Value::Array(list) => levels == 0 || list.iter().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// The labels of a pod template.
pub fn template_labels(template: &Value) -> BTreeMap<String, String> {
    strings(template.at(["metadata", "labels"]))
}

/// A map of strings; a null value is an empty string, as in Go.
pub fn strings(value: Option<&Value>) -> BTreeMap<String, String> {
    let Some(Value::Object(map)) = value else { return BTreeMap::new() };
    map.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn not_negative(spec: &Value, field: &str, errors: &mut Vec<FieldError>) -> u32 {
    let number = spec.get(field).and_then(Value::as_i64).unwrap_or_default();
    u32::try_from(number).unwrap_or_else(|_| {
        errors.push(wrong(format!("spec.{field}"), "must not be negative"));
        0
    })
}

fn wrong(field: impl Into<String>, reason: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), reason: reason.into(), hint: None }
}

#[cfg(test)]
mod tests;
