//! `env` and `envFrom` of a container.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::downward;
use crate::core::validate::rules::BACKSTEPS;
use crate::core::validate::rules::goes_back;
use crate::core::validate::rules::no_config_key;
use crate::core::validate::wrong;

const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
/// `validEnvDownwardAPIFieldPathExpressions`.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// `ValidateEnv` and `ValidateEnvFrom`.
pub(super) fn check(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in container.list_at("env").iter().enumerate() {
        // There may be hundreds: places are written only where they are needed.
        let place = |field: &str| format!("{place}.env[{index}].{field}");
        if let Some(reason) = no_variable_name(variable.str_at("name")) {
            errors.push(wrong(place("name"), reason));
        }
        if let Some(from) = variable.at("valueFrom") {
            value_from(variable, from, volumes, &place("valueFrom"), errors);
        }
    }
    for (index, source) in container.list_at("envFrom").iter().enumerate() {
        let place = format!("{place}.envFrom[{index}]");
        if let Some(prefix) = source.text_at("prefix") {
            check_reason(format!("{place}.prefix"), no_variable_name(prefix), errors);
        }
        let set = ["configMapRef", "secretRef"].into_iter().filter(|kind| source.at(*kind).is_some());
        for kind in set.clone() {
            let reason = dns::subdomain(&with_end(source.str_at([kind, "name"])));
            check_reason(format!("{place}.{kind}.name"), reason, errors);
        }
        if set.count() != 1 {
            errors.push(wrong(place, "must have exactly one of configMapRef, secretRef"));
        }
    }
}

fn check_reason(place: String, reason: Option<impl Into<String>>, errors: &mut Vec<FieldError>) {
    errors.extend(reason.map(|reason| wrong(place, reason)));
}

/// Why `name` is no variable's name (`IsRelaxedEnvVarName`).
fn no_variable_name(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("required".to_owned());
    }
    let good = name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    (!good).then(|| format!("{name:?} is not a variable name: only printable ASCII characters except '=' are allowed"))
}

/// The beginning of a name, made a name: upstream lets names in `envFrom` end with '-' (`maskTrailingDash`).
fn with_end(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() && rest.is_ascii() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => name.to_owned(),
    }
}

/// `validateEnvVarValueFrom`.
fn value_from(
    variable: &Value,
    from: &Value,
    volumes: &BTreeMap<&str, &Value>,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut set = 0;
    for kind in SOURCES {
        let Some(source) = from.at(kind) else { continue };
        let place = format!("{place}.{kind}");
        set += 1;
        match kind {
            "fieldRef" => downward::field_ref(source, &FIELDS, &place, errors),
            "resourceFieldRef" => downward::resource_field_ref(source, false, &place, errors),
            "fileKeyRef" => file_key(source, volumes, &place, errors),
            _ => {
                check_reason(format!("{place}.name"), dns::subdomain(source.str_at("name")), errors);
                check_reason(format!("{place}.key"), no_config_key(source.str_at("key")), errors);
            }
        }
    }
    if set == 0 {
        errors.push(wrong(place, "must have a source"));
    } else if variable.text_at("value").is_some() {
        errors.push(wrong(place, "may not be set beside value"));
    } else if set > 1 {
        errors.push(wrong(place, format!("must have exactly one of {}", SOURCES.join(", "))));
    }
}

/// `validateFileKeySelector` and `validateFileKeyRefVolumes`.
fn file_key(reference: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    check_reason(format!("{place}.key"), no_variable_name(reference.str_at("key")), errors);
    let name = reference.str_at("volumeName");
    let reason = dns::label(name).map(str::to_owned).or_else(|| match volumes.get(name) {
        None => Some(format!("the pod has no volume {name}")),
        Some(volume) => (!is_empty_dir(volume)).then(|| "must be an emptyDir volume".to_owned()),
    });
    check_reason(format!("{place}.volumeName"), reason, errors);
    let reason = match reference.str_at("path") {
        "" => Some("required"),
        path => goes_back(path).then_some(BACKSTEPS),
    };
    check_reason(format!("{place}.path"), reason, errors);
}

/// Whether a volume is an emptyDir, which one without any source is by default.
fn is_empty_dir(volume: &Value) -> bool {
    let none = || volume.as_object().is_some_and(|fields| fields.iter().all(|(key, v)| key == "name" || v.is_null()));
    volume.at("emptyDir").is_some() || none()
}

#[cfg(test)]
mod tests;
