//! `spec.selector`: not empty, well formed, and matching the template's labels.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rules;
use super::wrong;
use crate::core::json::Json;
use crate::core::model::FieldError;

/// Whether a label selector from the API, which is valid, matches `labels`; an empty one matches nothing.
pub fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let wanted = super::strings(selector.get("matchLabels"));
    let expressions = selector.list_at("matchExpressions");
    (!wanted.is_empty() || !expressions.is_empty())
        && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.iter().all(|expression| expression_matches(expression, labels).unwrap_or(false))
}

/// Whether a label selector at `place` selects `labels`; an empty one selects everything (`LabelSelectorAsSelector`).
///
/// # Errors
/// Every field of it that is invalid, whatever the labels are.
pub fn label_selector(
    selector: &Value,
    labels: &BTreeMap<String, String>,
    place: &str,
) -> Result<bool, Vec<FieldError>> {
    let mut errors = super::types::label_selector(selector, place);
    rules::labels(selector.get("matchLabels"), &format!("{place}.matchLabels"), &mut errors);
    let wanted = super::strings(selector.get("matchLabels"));
    let mut selects = wanted.iter().all(|(key, value)| labels.get(key) == Some(value));
    for (index, expression) in selector.list_at("matchExpressions").iter().enumerate() {
        let place = format!("{place}.matchExpressions[{index}]");
        rules::label_values(expression, &place, &mut errors);
        match expression_matches(expression, labels) {
            Ok(holds) => {
                selects &= holds;
                rules::qualified_name(expression.str_at("key"), format!("{place}.key"), &mut errors);
            }
            Err((field, reason)) => errors.push(wrong(format!("{place}.{field}"), reason)),
        }
    }
    if errors.is_empty() { Ok(selects) } else { Err(errors) }
}

/// Checks the selector against the labels of the template.
pub(super) fn check(selector: Option<&Value>, labels: &BTreeMap<String, String>, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else {
        errors.push(FieldError {
            field: "spec.selector".to_owned(),
            reason: "required".to_owned(),
            hint: Some("name labels of the template under spec.selector.matchLabels".to_owned()),
        });
        return;
    };
    let wanted = super::strings(selector.get("matchLabels"));
    let expressions = selector.list_at("matchExpressions");
    if wanted.is_empty() && expressions.is_empty() {
        errors.push(wrong("spec.selector", "must not be empty: it would select every pod"));
        return;
    }
    rules::labels(selector.get("matchLabels"), "spec.selector.matchLabels", errors);
    let mut matches = wanted.iter().all(|(key, value)| labels.get(key) == Some(value));
    for (index, expression) in expressions.iter().enumerate() {
        let place = format!("spec.selector.matchExpressions[{index}]");
        match expression_matches(expression, labels) {
            Ok(holds) => {
                matches &= holds;
                rules::qualified_name(expression.str_at("key"), format!("{place}.key"), errors);
                rules::label_values(expression, &place, errors);
            }
            Err((field, reason)) => {
                errors.push(wrong(format!("{place}.{field}"), reason));
                return;
            }
        }
    }
    if !matches {
        errors.push(FieldError {
            field: "spec.template.metadata.labels".to_owned(),
            reason: "the selector does not match the labels of the template".to_owned(),
            hint: Some("add the labels of spec.selector to the template".to_owned()),
        });
    }
}

/// `LabelSelectorAsSelector` for one expression.
fn expression_matches(
    expression: &Value,
    labels: &BTreeMap<String, String>,
) -> Result<bool, (&'static str, &'static str)> {
    let values = expression.list_at("values").iter();
    let values: Vec<&str> = values.map(|value| value.as_str().unwrap_or_default()).collect();
    let key = expression.str_at("key");
    if key.is_empty() {
        return Err(("key", "required"));
    }
    let found = labels.get(key);
    let listed = found.is_some_and(|value| values.contains(&value.as_str()));
    match expression.str_at("operator") {
        "In" | "NotIn" if values.is_empty() => Err(("values", "required with In and NotIn")),
        "In" => Ok(listed),
        "NotIn" => Ok(!listed),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Err(("values", "must be empty with Exists and DoesNotExist"))
        }
        "Exists" => Ok(found.is_some()),
        "DoesNotExist" => Ok(found.is_none()),
        _ => Err(("operator", "must be In, NotIn, Exists or DoesNotExist")),
    }
}
