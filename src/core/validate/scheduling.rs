//! Where a pod may run: node selector, affinity, tolerations, spread constraints and gates.
//!
//! Follows `ValidatePodSpec` with the feature gates that are on by default.

mod affinity;

use std::collections::BTreeSet;

use serde_json::Value;

use super::rules::LABEL_VALUE;
use super::rules::label_selector;
use super::rules::labels;
use super::rules::number;
use super::rules::one_of;
use super::rules::qualified_name;
use super::rules::required;
use super::rules::written_one_of;
use super::wrong;
use crate::core::json::Json;
use crate::core::labels::is_label_value;
use crate::core::model::FieldError;

const PLACE: &str = "spec.template.spec";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const POLICIES: [&str; 2] = ["Honor", "Ignore"];

/// Checks what a pod's `spec` says of scheduling, with `ValidateLabels` for the node selector, `validateAffinity`,
/// `ValidateTolerations`, `validateTopologySpreadConstraints`, `validateSchedulingGates` and `validateReadinessGates`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    labels(spec.get("nodeSelector"), &format!("{PLACE}.nodeSelector"), errors);
    if let Some(affinity) = spec.at("affinity") {
        affinity::check(affinity, &format!("{PLACE}.affinity"), errors);
    }
    for (index, toleration) in spec.list_at("tolerations").iter().enumerate() {
        self::toleration(toleration, &format!("{PLACE}.tolerations[{index}]"), errors);
    }
    spread_constraints(spec.list_at("topologySpreadConstraints"), errors);
    let mut gates = BTreeSet::new();
    for (index, gate) in spec.list_at("schedulingGates").iter().enumerate() {
        let place = format!("{PLACE}.schedulingGates[{index}].name");
        let name = gate.str_at("name");
        qualified_name(name, &place, errors);
        if !gates.insert(name) {
            errors.push(wrong(place, format!("{name} is used twice")));
        }
    }
    for (index, gate) in spec.list_at("readinessGates").iter().enumerate() {
        let place = format!("{PLACE}.readinessGates[{index}].conditionType");
        qualified_name(gate.str_at("conditionType"), place, errors);
    }
}

/// One toleration, `ValidateTolerations`.
pub(super) fn toleration(toleration: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let key = toleration.str_at("key");
    let operator = toleration.str_at("operator");
    let value = toleration.str_at("value");
    if !key.is_empty() {
        qualified_name(key, format!("{place}.key"), errors);
    }
    if key.is_empty() && operator != "Exists" {
        errors.push(wrong(format!("{place}.operator"), "must be Exists without a key"));
    } else {
        one_of(toleration, "operator", &["Equal", "Exists"], place, errors);
    }
    match operator {
        "" | "Equal" if !is_label_value(value) => errors.push(wrong(format!("{place}.value"), LABEL_VALUE)),
        "Exists" if !value.is_empty() => errors.push(wrong(format!("{place}.value"), "must be empty with Exists")),
        _ => {}
    }
    if toleration.at("tolerationSeconds").is_some() && toleration.str_at("effect") != "NoExecute" {
        errors.push(wrong(format!("{place}.effect"), "must be NoExecute with tolerationSeconds"));
    } else {
        one_of(toleration, "effect", &EFFECTS, place, errors);
    }
}

/// `validateTopologySpreadConstraints`.
fn spread_constraints(constraints: &[Value], errors: &mut Vec<FieldError>) {
    let mut pairs = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let place = format!("{PLACE}.topologySpreadConstraints[{index}]");
        let place = place.as_str();
        if number(constraint, "maxSkew") < 1 {
            errors.push(wrong(format!("{place}.maxSkew"), "must be more than 0"));
        }
        required(constraint, "topologyKey", place, errors);
        required(constraint, "whenUnsatisfiable", place, errors);
        one_of(constraint, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"], place, errors);
        let when = constraint.str_at("whenUnsatisfiable");
        if !pairs.insert((constraint.str_at("topologyKey"), when)) {
            errors.push(wrong(place, "another constraint has the same topologyKey and whenUnsatisfiable"));
        }
        if constraint.at("minDomains").is_some() {
            if number(constraint, "minDomains") < 1 {
                errors.push(wrong(format!("{place}.minDomains"), "must be more than 0"));
            }
            if when != "DoNotSchedule" {
                errors.push(wrong(format!("{place}.minDomains"), "needs whenUnsatisfiable DoNotSchedule"));
            }
        }
        written_one_of(constraint, "nodeAffinityPolicy", &POLICIES, place, errors);
        written_one_of(constraint, "nodeTaintsPolicy", &POLICIES, place, errors);
        affinity::label_keys(constraint, &["matchLabelKeys"], place, errors);
        label_selector(constraint.at("labelSelector"), &format!("{place}.labelSelector"), errors);
    }
}

#[cfg(test)]
mod tests;
