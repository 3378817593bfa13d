//! `env` and `envFrom` of a container.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::model::FieldError;
use crate::core::quantity::parse_json;
use crate::core::validate::rules::BACKSTEPS;
use crate::core::validate::rules::LABEL_KEY;
use crate::core::validate::rules::goes_back;
use crate::core::validate::rules::is_exponent;
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
/// What old clients wrote instead of `spec.nodeName`.
const OLD_NODE_NAME: &str = "spec.host";
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
];
const HUGE_PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const SIZE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// `ValidateEnv` and `ValidateEnvFrom`.
pub(super) fn check(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in container.list_at("env").iter().enumerate() {
        let place = format!("{place}.env[{index}]");
        let name = variable.str_at("name");
        told(format!("{place}.name"), no_variable_name(name), errors);
        value_from(variable, volumes, &format!("{place}.valueFrom"), errors);
    }
    for (index, source) in container.list_at("envFrom").iter().enumerate() {
        let place = format!("{place}.envFrom[{index}]");
        if let Some(prefix) = source.text_at("prefix") {
            told(format!("{place}.prefix"), no_variable_name(prefix), errors);
        }
        let set = ["configMapRef", "secretRef"].into_iter().filter(|kind| source.at(*kind).is_some());
        for kind in set.clone() {
            let reason = dns::subdomain(&with_end(source.str_at([kind, "name"])));
            told(format!("{place}.{kind}.name"), reason, errors);
        }
        if set.count() != 1 {
            errors.push(wrong(place, "must have exactly one of configMapRef, secretRef"));
        }
    }
}

fn told(place: String, reason: Option<impl Into<String>>, errors: &mut Vec<FieldError>) {
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
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => name.to_owned(),
    }
}

/// `validateEnvVarValueFrom`.
fn value_from(variable: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    let Some(from) = variable.at("valueFrom") else { return };
    let mut set = 0;
    for kind in SOURCES {
        let Some(source) = from.at(kind) else { continue };
        let place = format!("{place}.{kind}");
        set += 1;
        match kind {
            "fieldRef" => field(source, &place, errors),
            "resourceFieldRef" => resource(source, &place, errors),
            "fileKeyRef" => file_key(source, volumes, &place, errors),
            _ => {
                told(format!("{place}.name"), dns::subdomain(source.str_at("name")), errors);
                told(format!("{place}.key"), no_config_key(source.str_at("key")), errors);
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

/// `validateObjectFieldSelector`.
fn field(reference: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let version = reference.text_at("apiVersion").unwrap_or("v1");
    let path = reference.str_at("fieldPath");
    if !path.is_empty() && version != "v1" {
        errors.push(wrong(format!("{place}.apiVersion"), format!("must be v1, not {version:?}")));
        return;
    }
    let reason = match subscript(path) {
        _ if path.is_empty() => Some("required".to_owned()),
        Some(("metadata.labels", key)) if is_label_key(key) => None,
        Some(("metadata.annotations", key)) if is_label_key(&key.to_lowercase()) => None,
        Some(("metadata.labels" | "metadata.annotations", key)) => Some(format!("the key {key:?} {LABEL_KEY}")),
        None if FIELDS.contains(&path) || path == OLD_NODE_NAME => None,
        _ => Some(format!(
            "must be {}, metadata.labels['<key>'] or metadata.annotations['<key>'], not {path:?}",
            FIELDS.join(", ")
        )),
    };
    told(format!("{place}.fieldPath"), reason, errors);
}

/// The two parts of `path['key']` (`SplitMaybeSubscriptedPath`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// `validateContainerResourceFieldSelector` and `validateContainerResourceDivisor`.
fn resource(reference: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let resource = reference.str_at("resource");
    let huge = HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix));
    if resource.is_empty() {
        errors.push(wrong(format!("{place}.resource"), "required"));
        return;
    }
    if !huge && !RESOURCES.contains(&resource) {
        let reason = format!("must be {} or hugepages, not {resource:?}", RESOURCES.join(", "));
        errors.push(wrong(format!("{place}.resource"), reason));
        return;
    }
    let divisor = reference.at("divisor").and_then(parse_json).filter(|divisor| divisor.milli_value() != 0);
    let Some(divisor) = divisor.map(|divisor| divisor.to_string()) else { return };
    let is_cpu = ["limits.cpu", "requests.cpu"].contains(&resource);
    let known: &[&str] = if is_cpu { &CPU_DIVISORS } else { &SIZE_DIVISORS };
    if !known.contains(&divisor.as_str()) || reference.at("divisor").is_some_and(is_exponent) {
        errors.push(wrong(format!("{place}.divisor"), format!("must be {}, not {divisor}", known.join(" or "))));
    }
}

/// `validateFileKeySelector` and `validateFileKeyRefVolumes`.
fn file_key(reference: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    told(format!("{place}.key"), no_variable_name(reference.str_at("key")), errors);
    let name = reference.str_at("volumeName");
    let reason = dns::label(name).map(str::to_owned).or_else(|| match volumes.get(name) {
        None => Some(format!("the pod has no volume {name}")),
        Some(volume) => (!is_empty_dir(volume)).then(|| "must be an emptyDir volume".to_owned()),
    });
    told(format!("{place}.volumeName"), reason, errors);
    let reason = match reference.str_at("path") {
        "" => Some("required"),
        path => goes_back(path).then_some(BACKSTEPS),
    };
    told(format!("{place}.path"), reason, errors);
}

/// Whether a volume is an emptyDir, which one without any source is by default.
fn is_empty_dir(volume: &Value) -> bool {
    let none = || volume.as_object().is_some_and(|fields| fields.iter().all(|(key, v)| key == "name" || v.is_null()));
    volume.at("emptyDir").is_some() || none()
}

#[cfg(test)]
mod tests;
