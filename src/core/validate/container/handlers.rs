//! Probes and lifecycle hooks of a container.

use serde_json::Value;

use super::restarts::is_sidecar;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::PORT_NUMBER;
use crate::core::validate::rules::is_port_number;
use crate::core::validate::rules::no_port_name;
use crate::core::validate::rules::number;
use crate::core::validate::rules::one_of;
use crate::core::validate::wrong;

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const HOOK_FIELDS: [&str; 2] = ["postStart", "preStop"];
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HOOKS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];
const COUNTS: [&str; 5] =
    ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
/// The seconds that a pod has to end, by default.
const GRACE: i64 = 30;

/// `validateLivenessProbe`, `validateReadinessProbe`, `validateStartupProbe` and `validateLifecycle`. Of init
/// containers, only sidecars may have them. A `stopSignal` is dropped by the API unless its feature gate is on.
pub(super) fn check(spec: &Value, container: &Value, is_init: bool, place: &str, errors: &mut Vec<FieldError>) {
    if is_init && !is_sidecar(container) {
        let lifecycle = container.at("lifecycle").filter(|lifecycle| !is_only_signal(lifecycle)).map(|_| "lifecycle");
        for field in PROBES.into_iter().filter(|field| container.at(*field).is_some()).chain(lifecycle) {
            let reason = "only allowed in an init container with restartPolicy Always";
            errors.push(wrong(format!("{place}.{field}"), reason));
        }
        return;
    }
    let grace = spec.at("terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(GRACE);
    for hook in HOOK_FIELDS {
        if let Some(found) = container.at(["lifecycle", hook]) {
            handler(found, &HOOKS, grace, &format!("{place}.lifecycle.{hook}"), errors);
        }
    }
    for field in PROBES {
        if let Some(found) = container.at(field) {
            probe(found, field, grace, &format!("{place}.{field}"), errors);
        }
    }
}

/// Whether the API would drop a `lifecycle` with its `stopSignal` (`dropContainerStopSignals`).
fn is_only_signal(lifecycle: &Value) -> bool {
    lifecycle.at("stopSignal").is_some() && HOOK_FIELDS.iter().all(|hook| lifecycle.at(*hook).is_none())
}

/// `validateProbe`; a count of 0 is the default one.
fn probe(probe: &Value, kind: &str, grace: i64, place: &str, errors: &mut Vec<FieldError>) {
    handler(probe, &HANDLERS, grace, place, errors);
    for field in COUNTS.into_iter().filter(|field| number(probe, field) < 0) {
        errors.push(wrong(format!("{place}.{field}"), "must not be negative"));
    }
    let readiness = kind == "readinessProbe";
    if number(probe, "successThreshold") > 1 && !readiness {
        errors.push(wrong(format!("{place}.successThreshold"), format!("must be 1 in a {kind}")));
    }
    const GRACE_FIELD: &str = "terminationGracePeriodSeconds";
    if probe.at(GRACE_FIELD).is_some() && readiness {
        errors.push(wrong(format!("{place}.{GRACE_FIELD}"), "not allowed in a readinessProbe"));
    } else if probe.at(GRACE_FIELD).is_some() && number(probe, GRACE_FIELD) <= 0 {
        errors.push(wrong(format!("{place}.{GRACE_FIELD}"), "must be more than 0"));
    }
}

/// `validateHandler`: exactly one of `kinds`, and that one right.
fn handler(found: &Value, kinds: &[&str], grace: i64, place: &str, errors: &mut Vec<FieldError>) {
    let mut set = kinds.iter().filter_map(|kind| Some((*kind, found.at(*kind)?)));
    let (Some((kind, action)), None) = (set.next(), set.next()) else {
        errors.push(wrong(place, format!("must have exactly one of {}", kinds.join(", "))));
        return;
    };
    let place = format!("{place}.{kind}");
    match kind {
        "exec" if action.list_at("command").is_empty() => errors.push(wrong(format!("{place}.command"), "required")),
        "exec" => {}
        "sleep" if !(0..=grace).contains(&number(action, "seconds")) => {
            let reason = format!("must be from 0 to the pod's terminationGracePeriodSeconds, {grace}");
            errors.push(wrong(format!("{place}.seconds"), reason));
        }
        "sleep" => {}
        "httpGet" => {
            port(action, &place, errors);
            http(action, &place, errors);
        }
        _ => port(action, &place, errors),
    }
}

/// `ValidatePortNumOrName`.
fn port(action: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let reason = match action.at("port") {
        Some(Value::String(name)) => no_port_name(name),
        _ => (!is_port_number(number(action, "port"))).then_some(PORT_NUMBER),
    };
    errors.extend(reason.map(|reason| wrong(format!("{place}.port"), reason)));
}

/// `validateHTTPGetAction`, except for its port; the path is `/` by default.
fn http(action: &Value, place: &str, errors: &mut Vec<FieldError>) {
    one_of(action, "scheme", &["HTTP", "HTTPS"], place, errors);
    for (index, header) in action.list_at("httpHeaders").iter().enumerate() {
        let name = header.str_at("name");
        let reason = if name.is_empty() {
            "required"
        } else if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            continue;
        } else {
            "must be letters, digits and '-'"
        };
        errors.push(wrong(format!("{place}.httpHeaders[{index}].name"), reason));
    }
}

#[cfg(test)]
mod tests;
