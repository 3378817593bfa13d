//! Labels, annotations, finalizers and owners, of a DaemonSet and of its template.

use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;

use super::rules;
use super::rules::LABEL_KEY;
use super::scheduling;
use super::wrong;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::model::FieldError;
use crate::core::model::GENERATION_ANNOTATION;

/// Finalizers without a domain (`IsStandardFinalizerName`).
const FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Labels and annotations of the object with `metadata` at `place`.
pub(super) fn check(metadata: &Value, place: &str, errors: &mut Vec<FieldError>) {
    rules::labels(metadata.get("labels"), &format!("{place}.labels"), errors);
    rules::annotations(metadata.get("annotations"), &format!("{place}.annotations"), errors);
}

/// What only the DaemonSet itself has: a prefix for its name, finalizers, owners, and the annotation that is a field in upstream's own form.
pub(super) fn of_object(metadata: &Value, errors: &mut Vec<FieldError>) {
    let prefix = metadata.text_at("generateName").map(dns::masked);
    let no_prefix = prefix.and_then(|name| dns::subdomain(&name));
    errors
        .extend(no_prefix.map(|reason| wrong("metadata.generateName", format!("{reason}, but for a '-' at its end"))));
    finalizers(metadata, errors);
    owners(metadata.list_at("ownerReferences"), errors);
    // Upstream keeps it in a field of its own (`Convert_v1_DaemonSet_To_apps_DaemonSet`).
    let generation =
        metadata.at("annotations").and_then(|annotations| annotations.get(GENERATION_ANNOTATION)).map(text);
    if generation.is_some_and(|generation| generation.parse::<i64>().is_err()) {
        errors.push(wrong(format!("metadata.annotations[{GENERATION_ANNOTATION}]"), "must be a number of 64 bits"));
    }
}

/// `ValidateOwnerReferences`.
fn owners(owners: &[Value], errors: &mut Vec<FieldError>) {
    const PLACE: &str = "metadata.ownerReferences";
    for (index, owner) in owners.iter().enumerate() {
        let place = |field: &str| format!("{PLACE}[{index}].{field}");
        let api_version = owner.str_at("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.is_empty() || version.contains('/') {
            errors.push(wrong(place("apiVersion"), "must be VERSION or GROUP/VERSION"));
        }
        for field in ["kind", "name", "uid"].into_iter().filter(|field| owner.str_at(*field).is_empty()) {
            errors.push(wrong(place(field), "required"));
        }
        if (group, version, owner.str_at("kind")) == ("", "v1", "Event") {
            errors.push(wrong(place("kind"), "an Event owns nothing"));
        }
    }
    if owners.iter().filter(|owner| owner.flag_at("controller")).count() > 1 {
        errors.push(wrong(PLACE, "only one may have controller: true"));
    }
}

/// `ValidateFinalizers` and `validateKubeFinalizerName`.
fn finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    const PLACE: &str = "metadata.finalizers";
    let found: Vec<&str> = metadata.list_at("finalizers").iter().map(|one| one.as_str().unwrap_or_default()).collect();
    for (index, name) in found.iter().enumerate() {
        if !is_label_key(name) {
            errors.push(wrong(format!("{PLACE}[{index}]"), LABEL_KEY));
        } else if !name.contains('/') && !FINALIZERS.contains(name) {
            errors.push(wrong(format!("{PLACE}[{index}]"), "must have a domain and '/' before it"));
        }
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
        if key == MIRROR && spec.str_at("nodeName").is_empty() {
            errors.push(wrong(place(), "only a kubelet sets it, on mirror pods"));
        } else if key == TOLERATIONS && !value.is_empty() {
            tolerations(value, &place(), errors);
        } else if key == DELETION_COST && !is_cost(value) {
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

/// `ValidateTolerationsInPodAnnotations`: a JSON list, whose names Go reads in any case.
fn tolerations(text: &str, place: &str, errors: &mut Vec<FieldError>) {
    const FIELDS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
    let list = serde_json::from_str::<Option<Vec<Option<Map<String, Value>>>>>(text);
    let Ok(list) = list else { return errors.push(wrong(place, "must be a list of tolerations, as JSON")) };
    for (index, written) in list.into_iter().flatten().enumerate() {
        let place = format!("{place}[{index}]");
        let mut read = Map::new();
        for (name, value) in written.into_iter().flatten() {
            let Some(field) = FIELDS.into_iter().find(|field| folded(field) == folded(&name)) else { continue };
            let is_typed = match field {
                "tolerationSeconds" => value.is_i64(),
                _ => value.is_string(),
            };
            if !is_typed && !value.is_null() || read.insert(field.to_owned(), value).is_some() {
                return errors.push(wrong(format!("{place}.{field}"), "has the wrong type, or is there twice"));
            }
        }
        scheduling::toleration(&Value::Object(read), &place, errors);
    }
}

/// As `encoding/json` compares names.
fn folded(name: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
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
    let is_plain = value == "0" || value.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first));
    is_plain && value.parse::<i32>().is_ok()
}

/// `ValidateSeccompProfile`.
fn is_seccomp(value: &str) -> bool {
    let is_path = |path: &str| !path.starts_with('/') && path.split('/').all(|part| part != "..");
    matches!(value, "runtime/default" | "docker/default" | "unconfined")
        || value.strip_prefix("localhost/").is_some_and(is_path)
}
