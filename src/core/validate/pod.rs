//! `spec.template`: the common mistakes that the kubelet's pod validation refuses.
//!
//! A file in a folder was never checked by an API server. A mistake that is not reported here ends as a manifest that
//! the kubelet ignores. Follows `ValidatePodSpec`, except for fields that the passes replace.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::metadata;
use super::pod_spec;
use super::rules::descending_path;
use super::rules::word;
use super::scheduling;
use super::volumes;
use super::wrong;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::quantity::parse_json;

const PLACE: &str = "spec.template.spec";
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HOOKS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks metadata, volumes, containers and scheduling of the template.
pub(super) fn check(template: &Value, errors: &mut Vec<FieldError>) {
    let empty = Value::Null;
    metadata::check(template.get("metadata").unwrap_or(&empty), "spec.template.metadata", errors);
    metadata::of_pod(template, errors);
    let spec = template.get("spec").unwrap_or(&empty);
    let volumes = volumes::check(spec, errors);
    for field in ["initContainers", "containers"] {
        for (index, container) in spec.list_at(field).iter().enumerate() {
            self::container(container, &volumes, &format!("{PLACE}.{field}[{index}]"), errors);
        }
    }
    host_ports(spec, errors);
    scheduling::check(spec, errors);
    pod_spec::check(spec, errors);
}

fn container(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in container.list_at("env").iter().enumerate() {
        let name = variable.str_at("name");
        let variable_place = format!("{place}.env[{index}]");
        value_from(variable, &variable_place, errors);
        let place = format!("{variable_place}.name");
        if name.is_empty() {
            errors.push(wrong(place, "required"));
        } else if !name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
            errors.push(wrong(
                place,
                format!("{name:?} is not a variable name: only printable ASCII characters except '=' are allowed"),
            ));
        }
    }
    mounts(container, volumes, place, errors);
    ports(container, place, errors);
    resources(container, place, errors);
    word(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], place, errors);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        handler(container.get(probe), &HANDLERS, &format!("{place}.{probe}"), errors);
    }
    for hook in ["postStart", "preStop"] {
        let found = container.get("lifecycle").and_then(|lifecycle| lifecycle.get(hook));
        handler(found, &HOOKS, &format!("{place}.lifecycle.{hook}"), errors);
    }
}

/// `validateEnvVarValueFrom`, as far as no other check covers it.
fn value_from(variable: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(from) = variable.get("valueFrom").and_then(Value::as_object) else { return };
    if variable.str_at("value").is_empty() && from.values().all(Value::is_null) {
        errors.push(wrong(format!("{place}.valueFrom"), "must have a source"));
    }
    if from.get("fieldRef").is_some_and(|field| field.is_object() && field.str_at("fieldPath").is_empty()) {
        errors.push(wrong(format!("{place}.valueFrom.fieldRef.fieldPath"), "required"));
    }
}

/// `ValidateVolumeMounts`.
fn mounts(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    let privileged = container.flag_at(["securityContext", "privileged"]);
    for (index, mount) in container.list_at("volumeMounts").iter().enumerate() {
        let place = format!("{place}.volumeMounts[{index}]");
        let name = mount.str_at("name");
        if name.is_empty() {
            errors.push(wrong(format!("{place}.name"), "required"));
        } else if !volumes.contains_key(name) {
            errors.push(wrong(format!("{place}.name"), format!("the pod has no volume {name}")));
        }
        let path = mount.str_at("mountPath");
        if path.is_empty() {
            errors.push(wrong(format!("{place}.mountPath"), "required"));
        } else if !paths.insert(path) {
            errors.push(wrong(format!("{place}.mountPath"), format!("another volume is mounted at {path}")));
        }
        if mount.str_at("mountPropagation") == "Bidirectional" && !privileged {
            errors.push(wrong(format!("{place}.mountPropagation"), "Bidirectional needs a privileged container"));
        }
        for field in ["subPath", "subPathExpr"] {
            descending_path(mount.str_at(field), format!("{place}.{field}"), errors);
        }
        if !mount.str_at("subPath").is_empty() && !mount.str_at("subPathExpr").is_empty() {
            errors.push(wrong(format!("{place}.subPathExpr"), "may not be set beside subPath"));
        }
    }
}

/// `validateContainerPorts`.
fn ports(container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, port) in container.list_at("ports").iter().enumerate() {
        let place = format!("{place}.ports[{index}]");
        let number = |field: &str| port.get(field).and_then(Value::as_i64).unwrap_or_default();
        if !(1..=65535).contains(&number("containerPort")) {
            errors.push(wrong(format!("{place}.containerPort"), "must be a number from 1 to 65535"));
        }
        if !(0..=65535).contains(&number("hostPort")) {
            errors.push(wrong(format!("{place}.hostPort"), "must be a number from 1 to 65535"));
        }
        word(port, "protocol", &["TCP", "UDP", "SCTP"], &place, errors);
        let name = port.str_at("name");
        if name.is_empty() {
            continue;
        }
        if !is_port_name(name) {
            let reason = "must be at most 15 lower case letters, digits and single '-' between them, with a letter";
            errors.push(wrong(format!("{place}.name"), reason));
        } else if !names.insert(name) {
            errors.push(wrong(format!("{place}.name"), format!("{name} is used twice")));
        }
    }
}

/// `checkHostPortConflicts`, with the host ports that every port has under hostNetwork.
fn host_ports(spec: &Value, errors: &mut Vec<FieldError>) {
    let host_network = spec.flag_at("hostNetwork");
    let mut taken = BTreeSet::new();
    for (index, container) in spec.list_at("containers").iter().enumerate() {
        for (at, port) in container.list_at("ports").iter().enumerate() {
            let number = |field: &str| port.get(field).and_then(Value::as_i64).filter(|number| *number != 0);
            let place = format!("{PLACE}.containers[{index}].ports[{at}].hostPort");
            let Some(own) = number("hostPort").or_else(|| number("containerPort").filter(|_| host_network)) else {
                continue;
            };
            if host_network && number("containerPort").is_some_and(|container| container != own) {
                errors.push(wrong(&place, "must be the containerPort with hostNetwork"));
            }
            let protocol = port.text_at("protocol").unwrap_or("TCP");
            if !taken.insert((protocol, port.str_at("hostIP"), own)) {
                errors.push(wrong(place, format!("host port {own}/{protocol} is used twice in this pod")));
            }
        }
    }
}

/// No request above its limit, and none negative.
fn resources(container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let of = |kind: &str, name: &str| {
        let amount = container.get("resources")?.get(kind)?.get(name)?;
        parse_json(amount).map(|amount| amount.milli_value())
    };
    for kind in ["limits", "requests"] {
        let amounts = container.get("resources").and_then(|resources| resources.get(kind)).and_then(Value::as_object);
        for name in amounts.into_iter().flat_map(|amounts| amounts.keys()) {
            let place = format!("{place}.resources.{kind}[{name}]");
            match of(kind, name) {
                Some(amount) if amount < 0 => errors.push(wrong(place, "must not be negative")),
                Some(amount) if kind == "requests" && of("limits", name).is_some_and(|limit| amount > limit) => {
                    errors.push(wrong(place, "must not be more than the limit"));
                }
                _ => {}
            }
        }
    }
}

/// Exactly one of `kinds`, if there is a probe or hook at all.
fn handler(found: Option<&Value>, kinds: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    let Some(found) = found.and_then(Value::as_object) else { return };
    let set = found.iter().filter(|(kind, value)| kinds.contains(&kind.as_str()) && !value.is_null()).count();
    if set != 1 {
        errors.push(wrong(place, format!("must have exactly one of {}", kinds.join(", "))));
    }
}

/// Upstream's `IsValidPortName`.
fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests;
