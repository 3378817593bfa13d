//! A template with the patches that apply to a node.
//!
//! Owns what a patch may not do to a template. Must not know nodes.

use serde_json::Value;

use crate::core::bounds::Bound;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate;

use super::Overlays;
use super::merge;

/// What decides where a pod runs: the coordinator and the agent judge that by the template alone.
const PLACEMENT: [&str; 5] = ["affinity", "hostNetwork", "nodeName", "nodeSelector", "tolerations"];

/// `template` with the patches of `overlays`, and every field that a patch may not have or that is invalid once all are
/// merged. `None`: there is no patch, one cannot be merged, or there is more than `bound` allows.
pub(super) fn apply(template: &Value, overlays: &Overlays, bound: &Bound) -> (Option<Value>, Vec<FieldError>) {
    if overlays.patches.is_empty() {
        return (None, Vec::new());
    }
    // Too large a patch is not merged: merging takes longer the larger it is.
    let mut errors = bound.exceeded_by(template);
    if !errors.is_empty() {
        return (None, errors);
    }
    let mut patched = template.clone();
    for patch in &overlays.patches {
        let place = format!("{}.patch", overlays.source(patch.index));
        unknown_containers(template, &patch.patch, &place, &mut errors);
        errors.extend(merge::merge(&mut patched, &patch.patch, &place).err());
        if errors.is_empty() {
            let over = bound.exceeded_by(&patched).into_iter();
            errors.extend(over.map(|error| FieldError { reason: format!("{}, with {place}", error.reason), ..error }));
        }
        if !errors.is_empty() {
            return (None, errors);
        }
    }
    let is_changed = |field: &&str| template.at(["spec", *field]) != patched.at(["spec", *field]);
    for field in PLACEMENT.into_iter().filter(is_changed) {
        let mut writes =
            overlays.patches.iter().filter(|patch| patch.patch.pointer(&format!("/spec/{field}")).is_some());
        let place = writes.next().map_or_else(
            || format!("ConfigMap {}", overlays.config_map),
            |patch| format!("{}.patch", overlays.source(patch.index)),
        );
        errors.push(FieldError {
            field: format!("{place}.spec.{field}"),
            reason: "an overlay cannot change where the DaemonSet runs".to_owned(),
            hint: Some(format!("write {field} into the DaemonSet's template")),
        });
    }
    errors.extend(
        validate::pod_template(&patched)
            .into_iter()
            .map(|error| FieldError { reason: format!("{}, with {overlays}", error.reason), ..error }),
    );
    (Some(patched), errors)
}

/// Refuses the first item of `containers`, and of `initContainers`, whose name the template does not have.
fn unknown_containers(template: &Value, patch: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for list in ["initContainers", "containers"] {
        let names = |of| -> Vec<&str> { Value::list_at(of, ["spec", list]).iter().map(|c| c.str_at("name")).collect() };
        let known = names(template);
        let is_unknown = |(_, name): &(usize, &&str)| !name.is_empty() && !known.contains(name);
        if let Some((index, name)) = names(patch).iter().enumerate().find(is_unknown) {
            let hint = match known.is_empty() {
                true => format!("the template has no {list}"),
                false => format!("it has {}", known.join(", ")),
            };
            errors.push(FieldError {
                field: format!("{place}.spec.{list}[{index}].name"),
                reason: format!("the template has no container {name} in {list}"),
                hint: Some(hint),
            });
        }
    }
}
