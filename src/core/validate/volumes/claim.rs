//! The claim that an ephemeral volume is made of.

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::annotations;
use crate::core::validate::rules::label_selector;
use crate::core::validate::rules::labels;
use crate::core::validate::rules::required;
use crate::core::validate::rules::sign;
use crate::core::validate::rules::written_one_of;
use crate::core::validate::wrong;

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
/// The fields of metadata that a template of a claim does not have.
const FOREIGN: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// `validateEphemeralVolumeSource`, which follows `ValidatePersistentVolumeClaimTemplate`.
pub(super) fn ephemeral(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(template) = found.at("volumeClaimTemplate") else { return };
    let empty = Value::Null;
    let place = format!("{place}.volumeClaimTemplate");
    metadata(template.get("metadata").unwrap_or(&empty), &format!("{place}.metadata"), errors);
    claim(template.get("spec").unwrap_or(&empty), &format!("{place}.spec"), errors);
}

/// `ValidateTemplateObjectMeta`.
fn metadata(metadata: &Value, place: &str, errors: &mut Vec<FieldError>) {
    annotations(metadata.get("annotations"), &format!("{place}.annotations"), errors);
    labels(metadata.get("labels"), &format!("{place}.labels"), errors);
    for field in FOREIGN {
        let set = match metadata.at(field) {
            None => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(value) => field != "generation" || value.as_i64() != Some(0),
        };
        if set {
            errors.push(wrong(format!("{place}.{field}"), "not allowed in the template of a claim"));
        }
    }
}

/// `ValidatePersistentVolumeClaimSpec`.
fn claim(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    required(spec, "accessModes", place, errors);
    let modes: Vec<&str> = spec.list_at("accessModes").iter().map(|mode| mode.as_str().unwrap_or_default()).collect();
    for (index, mode) in modes.iter().enumerate().filter(|(_, mode)| !ACCESS_MODES.contains(mode)) {
        let reason = format!("must be {}, not {mode:?}", ACCESS_MODES.join(" or "));
        errors.push(wrong(format!("{place}.accessModes[{index}]"), reason));
    }
    let alone = |mode: &&str| *mode == "ReadWriteOncePod";
    if modes.iter().any(alone) && !modes.iter().all(alone) {
        errors.push(wrong(format!("{place}.accessModes"), "may not have ReadWriteOncePod beside other modes"));
    }
    label_selector(spec.at("selector"), &format!("{place}.selector"), errors);
    let storage = format!("{place}.resources.requests[storage]");
    match spec.at(["resources", "requests"]).and_then(|requests| requests.get("storage")) {
        None => errors.push(wrong(storage, "required")),
        Some(amount) if sign(amount) <= 0 => errors.push(wrong(storage, "must be more than 0")),
        Some(_) => {}
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        if let Some(reason) = spec.text_at(field).and_then(dns::subdomain) {
            errors.push(wrong(format!("{place}.{field}"), reason));
        }
    }
    written_one_of(spec, "volumeMode", &["Filesystem", "Block"], place, errors);
    data_sources(spec, place, errors);
}

/// `validateDataSource`, `validateDataSourceRef`, and that both are one.
fn data_sources(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.at(field) else { continue };
        let place = format!("{place}.{field}");
        required(source, "name", &place, errors);
        required(source, "kind", &place, errors);
        match source.text_at("apiGroup") {
            None if !matches!(source.str_at("kind"), "" | "PersistentVolumeClaim") => {
                errors.push(wrong(format!("{place}.kind"), "must be PersistentVolumeClaim without an apiGroup"));
            }
            None => {}
            Some(group) => {
                if let Some(reason) = dns::subdomain(group) {
                    errors.push(wrong(format!("{place}.apiGroup"), reason));
                }
            }
        }
    }
    let namespace = spec.text_at(["dataSourceRef", "namespace"]);
    if let Some(reason) = namespace.and_then(dns::label) {
        errors.push(wrong(format!("{place}.dataSourceRef.namespace"), reason));
    }
    let (Some(source), Some(reference)) = (spec.at("dataSource"), spec.at("dataSourceRef")) else { return };
    if namespace.is_some() {
        errors.push(wrong(format!("{place}.dataSource"), "may not be set beside dataSourceRef.namespace"));
    } else if source.at("apiGroup") != reference.at("apiGroup")
        || ["kind", "name"].iter().any(|field| source.str_at(*field) != reference.str_at(*field))
    {
        errors.push(wrong(format!("{place}.dataSource"), "must be the same as dataSourceRef"));
    }
}
