//! Labels, annotations and finalizers, of a DaemonSet and of its template.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rules;
use super::rules::LABEL_KEY;
use super::wrong;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::model::FieldError;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Labels and annotations of the object with `metadata` at `place`.
pub(super) fn check(metadata: &Value, place: &str, errors: &mut Vec<FieldError>) {
    rules::labels(metadata.get("labels"), &format!("{place}.labels"), errors);
    rules::annotations(metadata.get("annotations"), &format!("{place}.annotations"), errors);
}

/// `ValidateFinalizers`.
pub(super) fn finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    const PLACE: &str = "metadata.finalizers";
    let found: Vec<&str> = metadata.list_at("finalizers").iter().map(|one| one.as_str().unwrap_or_default()).collect();
    for (index, _) in found.iter().enumerate().filter(|(_, name)| !is_label_key(name)) {
        errors.push(wrong(format!("{PLACE}[{index}]"), LABEL_KEY));
    }
    if ["orphan", "foregroundDeletion"].iter().all(|name| found.contains(name)) {
        errors.push(wrong(PLACE, "orphan and foregroundDeletion cannot both be set"));
    }
}

/// The annotations of a pod that mean something; `ValidatePodSpecificAnnotations`, and whether those that older
/// versions read agree with the fields that replaced them.
pub(super) fn of_pod(template: &Value, errors: &mut Vec<FieldError>) {
    const PLACE: &str = "spec.template.metadata.annotations";
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let names: BTreeSet<&str> = containers(spec).map(|(_, container)| container.str_at("name")).collect();
    for (key, value) in entries(template.at(["metadata", "annotations"])) {
        let place = || format!("{PLACE}[{key}]");
        if key == DELETION_COST && !is_cost(value) {
            errors.push(wrong(place(), "must be a number of 32 bits"));
        } else if (key == POD_SECCOMP || key.starts_with(CONTAINER_SECCOMP)) && !is_seccomp(value) {
            errors.push(wrong(place(), "must be runtime/default, unconfined or localhost/PATH"));
        } else if let Some(name) = key.strip_prefix(APP_ARMOR) {
            if !names.contains(name) {
                errors.push(wrong(place(), format!("the pod has no container {name}")));
            }
            if !(matches!(value, "" | "runtime/default" | "unconfined") || value.starts_with("localhost/")) {
                errors.push(wrong(place(), "must be runtime/default, unconfined or localhost/NAME"));
            }
        }
    }
    agreement(template, spec, errors);
}

/// `validateSeccompAnnotationsAndFields`, `validateAppArmorAnnotationsAndFieldsMatchOnCreate`.
fn agreement(template: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let annotation = |key: &str| template.at(["metadata", "annotations"])?.get(key).map(text);
    let of_pod = spec.at(["securityContext", "seccompProfile"]);
    let place = "spec.template.spec";
    agrees(of_pod, annotation(POD_SECCOMP), &format!("{place}.securityContext.seccompProfile"), errors);
    let is_windows = spec.str_at(["os", "name"]) == "windows";
    for (path, container) in containers(spec) {
        let name = container.str_at("name");
        let place = format!("{place}.{path}.securityContext");
        let own = container.at(["securityContext", "seccompProfile"]);
        agrees(own, annotation(&format!("{CONTAINER_SECCOMP}{name}")), &format!("{place}.seccompProfile"), errors);
        let profile = container.at(["securityContext", "appArmorProfile"]);
        let profile = profile.or_else(|| spec.at(["securityContext", "appArmorProfile"])).filter(|_| !is_windows);
        agrees(profile, annotation(&format!("{APP_ARMOR}{name}")), &format!("{place}.appArmorProfile"), errors);
    }
}

fn agrees(profile: Option<&Value>, annotation: Option<&str>, place: &str, errors: &mut Vec<FieldError>) {
    let (Some(profile), Some(annotation)) = (profile.filter(|profile| profile.is_object()), annotation) else { return };
    let (does, field) = match profile.str_at("type") {
        "Unconfined" => (annotation == "unconfined", "type"),
        "RuntimeDefault" => {
            let is_docker = place.ends_with("seccompProfile") && annotation == "docker/default";
            (annotation == "runtime/default" || is_docker, "type")
        }
        "Localhost" => {
            let named = annotation.strip_prefix("localhost/");
            let is_same = named.is_some() && named == profile.get("localhostProfile").and_then(Value::as_str);
            (is_same, if named.is_some() { "localhostProfile" } else { "type" })
        }
        _ => (true, "type"),
    };
    if !does {
        errors.push(wrong(
            format!("{place}.{field}"),
            format!("must agree with the annotation, which says {annotation:?}"),
        ));
    }
}

/// Every container with the way to it from the pod's spec.
fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(|list| {
        let number = move |(index, container)| (format!("{list}[{index}]"), container);
        spec.list_at(list).iter().enumerate().map(number)
    })
}

fn entries(map: Option<&Value>) -> impl Iterator<Item = (&String, &str)> {
    map.and_then(Value::as_object).into_iter().flatten().map(|(key, value)| (key, text(value)))
}

/// A null value is an empty string, as in Go.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `GetDeletionCostFromPodAnnotations`.
fn is_cost(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_plain = digits == "0" && value == "0" || digits.starts_with(|first: char| ('1'..='9').contains(&first));
    is_plain && value.parse::<i32>().is_ok()
}

/// `ValidateSeccompProfile`.
fn is_seccomp(value: &str) -> bool {
    let is_path = |path: &str| !path.is_empty() && !path.starts_with('/') && path.split('/').all(|part| part != "..");
    matches!(value, "runtime/default" | "docker/default" | "unconfined")
        || value.strip_prefix("localhost/").is_some_and(is_path)
}
