//! Affinity to nodes and to other pods.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::label_selector;
use crate::core::validate::rules::label_values;
use crate::core::validate::rules::operator_and_values;
use crate::core::validate::rules::qualified_name;
use crate::core::validate::rules::required;
use crate::core::validate::rules::within;
use crate::core::validate::wrong;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NULL: &Value = &Value::Null;

/// `validateAffinity`.
pub(super) fn check(affinity: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if let Some(node) = affinity.at("nodeAffinity") {
        node_affinity(node, &format!("{place}.nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.at(kind) else { continue };
        for (index, term) in pods.list_at(REQUIRED).iter().enumerate() {
            pod_term(term, &format!("{place}.{kind}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in pods.list_at(PREFERRED).iter().enumerate() {
            let place = format!("{place}.{kind}.{PREFERRED}[{index}]");
            within(term, "weight", &(1..=100), &place, errors);
            pod_term(term.at("podAffinityTerm").unwrap_or(NULL), &format!("{place}.podAffinityTerm"), errors);
        }
    }
}

/// `validateNodeAffinity`; preferred terms may ask for values that no label can have.
fn node_affinity(affinity: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if let Some(selector) = affinity.at(REQUIRED) {
        let place = format!("{place}.{REQUIRED}");
        required(selector, "nodeSelectorTerms", &place, errors);
        for (index, term) in selector.list_at("nodeSelectorTerms").iter().enumerate() {
            node_term(term, true, &format!("{place}.nodeSelectorTerms[{index}]"), errors);
        }
    }
    for (index, term) in affinity.list_at(PREFERRED).iter().enumerate() {
        let place = format!("{place}.{PREFERRED}[{index}]");
        within(term, "weight", &(1..=100), &place, errors);
        node_term(term.at("preference").unwrap_or(NULL), false, &format!("{place}.preference"), errors);
    }
}

/// `ValidateNodeSelectorTerm`.
fn node_term(term: &Value, check_values: bool, place: &str, errors: &mut Vec<FieldError>) {
    for (index, expression) in term.list_at("matchExpressions").iter().enumerate() {
        let place = format!("{place}.matchExpressions[{index}]");
        operator_and_values(expression, true, &place, errors);
        qualified_name(expression.str_at("key"), format!("{place}.key"), errors);
        if check_values {
            label_values(expression, &place, errors);
        }
    }
    for (index, expression) in term.list_at("matchFields").iter().enumerate() {
        node_field(expression, &format!("{place}.matchFields[{index}]"), errors);
    }
}

/// `ValidateNodeFieldSelectorRequirement`.
fn node_field(expression: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let values = expression.list_at("values");
    match expression.str_at("operator") {
        "In" | "NotIn" if values.len() != 1 => errors.push(wrong(format!("{place}.values"), "must be one value")),
        "In" | "NotIn" => {}
        _ => errors.push(wrong(format!("{place}.operator"), "must be In or NotIn")),
    }
    if expression.str_at("key") != "metadata.name" {
        errors.push(wrong(format!("{place}.key"), "must be metadata.name"));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        if let Some(reason) = dns::subdomain(value.as_str().unwrap_or_default()) {
            errors.push(wrong(format!("{place}.values[{index}]"), reason));
        }
    }
}

/// `validatePodAffinityTerm`.
fn pod_term(term: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for selector in ["labelSelector", "namespaceSelector"] {
        label_selector(term.at(selector), &format!("{place}.{selector}"), errors);
    }
    for (index, name) in term.list_at("namespaces").iter().enumerate() {
        if let Some(reason) = dns::label(name.as_str().unwrap_or_default()) {
            errors.push(wrong(format!("{place}.namespaces[{index}]"), reason));
        }
    }
    label_keys(term, &["matchLabelKeys", "mismatchLabelKeys"], place, errors);
    qualified_name(term.str_at("topologyKey"), format!("{place}.topologyKey"), errors);
}

/// `ValidateMatchLabelKeysAndMismatchLabelKeys` of the `fields` that the term has.
///
/// A key to match may be in the selector once: in a pod, that is what the API server adds for it.
pub(super) fn label_keys(term: &Value, fields: &[&str], place: &str, errors: &mut Vec<FieldError>) {
    let keys = |field: &str| term.list_at(field).iter().map(|key| key.as_str().unwrap_or_default()).enumerate();
    let selector = term.at("labelSelector");
    for field in fields {
        if selector.is_none() && !term.list_at(*field).is_empty() {
            errors.push(wrong(format!("{place}.{field}"), "needs a labelSelector"));
        } else {
            keys(field).for_each(|(index, key)| qualified_name(key, format!("{place}.{field}[{index}]"), errors));
        }
    }
    let selector = selector.unwrap_or(NULL);
    let mut seen: BTreeSet<&str> =
        selector.at("matchLabels").and_then(Value::as_object).into_iter().flatten().map(|(key, _)| &**key).collect();
    let expressions = selector.list_at("matchExpressions").iter().map(|expression| expression.str_at("key"));
    let twice: BTreeSet<&str> = expressions.filter(|key| !seen.insert(*key)).collect();
    let mismatched: BTreeSet<&str> = match fields.contains(&"mismatchLabelKeys") {
        true => keys("mismatchLabelKeys").map(|(_, key)| key).collect(),
        false => BTreeSet::new(),
    };
    for (index, key) in keys("matchLabelKeys") {
        let place = format!("{place}.matchLabelKeys[{index}]");
        if twice.contains(key) {
            errors.push(wrong(&place, format!("{key} is in labelSelector, too")));
        }
        if mismatched.contains(key) {
            errors.push(wrong(place, format!("{key} is in mismatchLabelKeys, too")));
        }
    }
}
