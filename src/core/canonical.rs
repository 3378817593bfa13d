//! The canonical form of a pod template: without API defaults, empty values and key order.
//!
//! Owns what "the same template" means: the template in a file and the same template after the API server's defaulting
//! give one value. Must not remove anything that changes the pod.

mod image;
mod schema;

use serde_json::Map;
use serde_json::Number;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::quantity;
use schema::FieldRule;
use schema::StructSchema;

pub(crate) use image::default_pull_policy;

/// Annotations of the alpha init containers, which the server drops (upstream's `dropInitContainerAnnotations`).
const DROPPED_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// The canonical form of `template` (`{metadata, spec}`); keys are sorted, so its JSON is canonical too.
///
/// Unknown fields are kept as written, except nulls and empty lists.
pub fn template(template: &Value) -> Value {
    let mut template = object(template, &schema::POD_TEMPLATE);
    if let Some(annotations) = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !DROPPED_ANNOTATIONS.contains(&key.as_str()));
        if annotations.is_empty() {
            remove_in(&mut template, "/metadata", "annotations");
        }
    }
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod_spec(spec);
    }
    if template.get("metadata").is_some_and(is_empty_object) {
        remove_in(&mut template, "", "metadata");
    }
    template
}

/// Defaults that depend on more than one field.
fn pod_spec(spec: &mut Map<String, Value>) {
    if let Some(alias) = spec.remove("serviceAccount")
        && !spec.contains_key("serviceAccountName")
    {
        spec.insert("serviceAccountName".into(), alias);
        spec.sort_keys();
    }
    if spec.get("securityContext").is_some_and(is_empty_object) {
        spec.remove("securityContext");
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        for container in elements(spec, list) {
            drop_pull_policy(container, "image", "imagePullPolicy");
            if host_network {
                elements(container, "ports").for_each(drop_host_port);
            }
        }
    }
    for volume in elements(spec, "volumes") {
        if volume.get("emptyDir").is_some_and(is_empty_object) && volume.keys().all(|k| k == "name" || k == "emptyDir")
        {
            volume.retain(|key, _| key == "name");
        }
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            drop_pull_policy(image, "reference", "pullPolicy");
        }
    }
}

fn elements<'a>(map: &'a mut Map<String, Value>, list: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn drop_pull_policy(map: &mut Map<String, Value>, image: &str, policy: &str) {
    let name = map.str_at(image);
    if map.text_at(policy) == Some(default_pull_policy(name)) {
        map.retain(|key, _| key != policy);
    }
}

/// With `hostNetwork`, the host port equals the container port; older API servers wrote it into templates.
fn drop_host_port(port: &mut Map<String, Value>) {
    if port.get("hostPort") == port.get("containerPort") {
        port.retain(|key, _| key != "hostPort");
    }
}

fn remove_in(value: &mut Value, pointer: &str, key: &str) {
    if let Some(map) = value.pointer_mut(pointer).and_then(Value::as_object_mut) {
        map.retain(|k, _| k != key);
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn object(value: &Value, shape: &StructSchema) -> Value {
    let Value::Object(map) = value else { return untouched(value) };
    sorted(map.iter().filter_map(|(key, value)| {
        let value = match shape.rule(key) {
            Some(rule) => field(value, rule),
            None => Some(untouched(value)).filter(|v| !v.is_null() && !v.as_array().is_some_and(Vec::is_empty)),
        };
        Some((key.clone(), value?))
    }))
}

fn sorted(fields: impl Iterator<Item = (String, Value)>) -> Value {
    let mut map: Map<String, Value> = fields.collect();
    map.sort_keys();
    Value::Object(map)
}

fn field(value: &Value, rule: FieldRule) -> Option<Value> {
    if value.is_null() {
        return None;
    }
    let value = match rule {
        FieldRule::Never => return None,
        FieldRule::Zero | FieldRule::Text(_) | FieldRule::Number(_) | FieldRule::Exactly(_) | FieldRule::True => {
            untouched(value)
        }
        FieldRule::Plain => list(value, |item| if item.is_null() { Value::from("") } else { untouched(item) }),
        FieldRule::Numbers => list(value, |item| if item.is_null() { Value::from(0) } else { untouched(item) }),
        FieldRule::Strings => strings(value),
        FieldRule::Quantities => quantities(value),
        FieldRule::Quantity | FieldRule::NonZeroQuantity => {
            quantity::canonical_value(value).unwrap_or_else(|| untouched(value))
        }
        FieldRule::List(shape) => list(value, |item| if item.is_null() { json!({}) } else { object(item, shape) }),
        FieldRule::Object(shape) | FieldRule::Pointer(shape) => object(value, shape),
    };
    (!is_absent(&value, rule)).then_some(value)
}

/// Whether `value` is what defaulting makes of an absent field.
fn is_absent(value: &Value, rule: FieldRule) -> bool {
    match rule {
        FieldRule::Never => true,
        FieldRule::Zero => is_zero(value),
        FieldRule::Text(default) => is_zero(value) || value.as_str() == Some(default),
        FieldRule::Number(default) => is_zero(value) || value.as_i64() == Some(default),
        FieldRule::Exactly(default) => value.as_i64() == Some(default),
        FieldRule::True => value == &Value::Bool(true),
        FieldRule::Plain | FieldRule::Numbers | FieldRule::List(_) => value.as_array().is_some_and(Vec::is_empty),
        FieldRule::Strings | FieldRule::Quantities | FieldRule::Object(_) => is_empty_object(value),
        FieldRule::NonZeroQuantity => value.as_str() == Some("0"),
        FieldRule::Quantity | FieldRule::Pointer(_) => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::String(value) => value.is_empty(),
        Value::Number(value) => value.as_i64() == Some(0),
        _ => false,
    }
}

fn list(value: &Value, element: impl Fn(&Value) -> Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(element).collect()),
        other => untouched(other),
    }
}

fn strings(value: &Value) -> Value {
    let Value::Object(map) = value else { return untouched(value) };
    sorted(map.iter().map(|(k, v)| (k.clone(), if v.is_null() { Value::from("") } else { untouched(v) })))
}

fn quantities(value: &Value) -> Value {
    let Value::Object(map) = value else { return untouched(value) };
    sorted(map.iter().map(|(k, v)| (k.clone(), quantity::canonical_milli(v).unwrap_or_else(|| untouched(v)))))
}

/// `value` with its keys sorted, nulls of objects taken out and whole numbers written as such.
pub(super) fn untouched(value: &Value) -> Value {
    match value {
        Value::Object(map) => sorted(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), untouched(v)))),
        Value::Array(items) => Value::Array(items.iter().map(untouched).collect()),
        Value::Number(number) => Value::Number(whole(number)),
        other => other.clone(),
    }
}

fn whole(number: &Number) -> Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => Number::from(float as i64),
        _ => number.clone(),
    }
}

#[cfg(test)]
mod tests;
