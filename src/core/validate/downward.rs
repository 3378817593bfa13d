//! References to fields of the pod and to resources of its containers, in files and in variables.

use serde_json::Value;

use super::rules::LABEL_KEY;
use super::rules::sign;
use super::wrong;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::model::FieldError;
use crate::core::quantity::upstream_text;

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
];
const HUGE_PAGES: [&str; 2] = ["requests.hugepages-", "limits.hugepages-"];
const CPU_UNITS: [&str; 2] = ["1m", "1"];
const BYTE_UNITS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// `validateObjectFieldSelector`: one of the `fields`, or a label or annotation of the pod.
pub(super) fn field_ref(reference: &Value, fields: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    let (version, path) = (reference.text_at("apiVersion").unwrap_or("v1"), reference.str_at("fieldPath"));
    if version != "v1" && !path.is_empty() {
        return errors.push(wrong(format!("{place}.apiVersion"), format!("must be v1, not {version:?}")));
    }
    // An old name.
    let current = if path == "spec.host" { "spec.nodeName" } else { path };
    let reason = match subscripted(path) {
        _ if path.is_empty() => "required".to_owned(),
        Some(("metadata.annotations", key)) if is_label_key(&key.to_lowercase()) => return,
        Some(("metadata.labels", key)) if is_label_key(key) => return,
        Some(("metadata.annotations" | "metadata.labels", key)) => format!("the key {key:?} {LABEL_KEY}"),
        None if fields.contains(&current) => return,
        _ => format!(
            "must be {}, metadata.labels['<key>'] or metadata.annotations['<key>'], not {path:?}",
            fields.join(", ")
        ),
    };
    errors.push(wrong(format!("{place}.fieldPath"), reason));
}

/// The path and the key of `path['key']`, upstream's `SplitMaybeSubscriptedPath`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// `validateContainerResourceFieldSelector`; in a volume the container has to be named.
pub(super) fn resource_field_ref(reference: &Value, in_volume: bool, place: &str, errors: &mut Vec<FieldError>) {
    let resource = reference.str_at("resource");
    let huge_pages = HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && reference.str_at("containerName").is_empty() {
        errors.push(wrong(format!("{place}.containerName"), "required"));
    } else if resource.is_empty() {
        errors.push(wrong(format!("{place}.resource"), "required"));
    } else if !huge_pages && !RESOURCES.contains(&resource) {
        let reason = format!("must be {} or hugepages, not {resource:?}", RESOURCES.join(", "));
        errors.push(wrong(format!("{place}.resource"), reason));
    }
    let units = match resource {
        "limits.cpu" | "requests.cpu" => CPU_UNITS.as_slice(),
        _ if huge_pages || RESOURCES.contains(&resource) => BYTE_UNITS.as_slice(),
        _ => return,
    };
    let Some(divisor) = reference.at("divisor") else { return };
    // Upstream compares texts.
    let is_unit = || upstream_text(divisor).is_some_and(|text| units.contains(&text.as_str()));
    if sign(divisor) != 0 && !is_unit() {
        errors.push(wrong(format!("{place}.divisor"), format!("must be {}, not {divisor}", units.join(" or "))));
    }
}
