//! `spec.template`: fields that a DaemonSet's pod must or must not have.

use std::collections::BTreeSet;

use serde_json::Value;

use super::wrong;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;

/// Checks the template; `types` checks the types of its fields.
pub(super) fn check(template: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(spec) = template.and_then(|template| template.get("spec")).filter(|spec| spec.is_object()) else {
        errors.push(wrong("spec.template.spec", "required"));
        return;
    };
    const PLACE: &str = "spec.template.spec";
    match spec.text_at("restartPolicy") {
        None | Some("" | "Always") => {}
        Some(other) => {
            errors.push(wrong(format!("{PLACE}.restartPolicy"), format!("must be Always in a DaemonSet, not {other}")));
        }
    }
    if spec.get("activeDeadlineSeconds").is_some_and(|seconds| !seconds.is_null()) {
        errors.push(wrong(format!("{PLACE}.activeDeadlineSeconds"), "not allowed in a DaemonSet"));
    }
    if spec.get("ephemeralContainers").and_then(Value::as_array).is_some_and(|containers| !containers.is_empty()) {
        errors.push(wrong(format!("{PLACE}.ephemeralContainers"), "not allowed in a pod template"));
    }
    let mut names = BTreeSet::new();
    if containers(spec, "containers", &mut names, errors) == 0 {
        errors.push(wrong(format!("{PLACE}.containers"), "required"));
    }
    containers(spec, "initContainers", &mut names, errors);
}

fn containers<'a>(spec: &'a Value, field: &str, names: &mut BTreeSet<&'a str>, errors: &mut Vec<FieldError>) -> usize {
    let Some(containers) = spec.get(field).and_then(Value::as_array) else { return 0 };
    for (index, container) in containers.iter().enumerate() {
        let place = format!("spec.template.spec.{field}[{index}]");
        named(container, &place, names, errors);
        let image = container.str_at("image");
        if image.is_empty() {
            errors.push(wrong(format!("{place}.image"), "required"));
        } else if image.trim() != image {
            errors.push(wrong(format!("{place}.image"), "must not have leading or trailing spaces"));
        }
    }
    containers.len()
}

fn named<'a>(item: &'a Value, place: &str, names: &mut BTreeSet<&'a str>, errors: &mut Vec<FieldError>) {
    let name = item.str_at("name");
    if let Some(reason) = dns::label(name) {
        errors.push(wrong(format!("{place}.name"), reason));
    } else if !names.insert(name) {
        errors.push(wrong(format!("{place}.name"), format!("{name} is used twice")));
    }
}
