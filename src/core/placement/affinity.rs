//! nodeSelector and required node affinity (component-helpers' `nodeaffinity`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::labels::Operator;
use crate::core::labels::Requirement;
use crate::core::model::NodeView;
use crate::core::placement::is_gate;

/// The only node field that node affinity knows.
const NAME_FIELD: &str = "metadata.name";
/// Where a pod's spec has the terms of which a node must match one.
pub(super) const REQUIRED: [&str; 3] = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];

/// One entry of a nodeSelector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelCheck {
    pub key: String,
    /// The value it must have.
    pub wanted: String,
    /// The value it has; `None`: the node has no such label.
    pub found: Option<String>,
    /// Whether the entry is met.
    pub matches: bool,
    /// Whether the entry is daemonlet's own, which is ignored.
    pub ignored: bool,
}

/// One expression of an affinity term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionCheck {
    /// The label or the node field.
    pub key: String,
    /// Whether `key` is a field (`matchFields`).
    pub field: bool,
    /// The operator as written.
    pub operator: String,
    /// The values as written.
    pub values: Vec<String>,
    /// The node's value; `None`: it has none.
    pub found: Option<String>,
    /// Whether the expression is met.
    pub matches: bool,
    /// Why the expression is invalid; then its term matches nothing.
    pub invalid: Option<String>,
}

/// One term of the required node affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TermCheck {
    /// Its expressions, then its fields; an empty term matches nothing.
    pub expressions: Vec<ExpressionCheck>,
    pub matches: bool,
}

impl TermCheck {
    /// The first expression that fails, as one line.
    pub(super) fn why_not(&self) -> String {
        let failed = self.expressions.iter().find(|e| e.invalid.is_some());
        match failed.or_else(|| self.expressions.iter().find(|e| !e.matches)) {
            Some(expression) => expression.to_string(),
            None => "an empty term matches no node".to_owned(),
        }
    }
}

/// Each entry of `spec.nodeSelector`; a null value counts as `""`, as in Go.
pub(super) fn node_selector(spec: &Value, node: &NodeView) -> Vec<LabelCheck> {
    let entries = spec.get("nodeSelector").and_then(Value::as_object);
    entries
        .into_iter()
        .flatten()
        .map(|(key, wanted)| {
            let wanted = wanted.as_str().unwrap_or("").to_owned();
            let found = node.labels.get(key).cloned();
            let ignored = is_gate(key);
            let matches = ignored || found.as_ref() == Some(&wanted);
            LabelCheck { key: key.clone(), wanted, found, matches, ignored }
        })
        .collect()
}

/// Each term of the required node affinity; `None`: there is none, so every node matches.
pub(super) fn required_terms(spec: &Value, node: &NodeView) -> Option<Vec<TermCheck>> {
    let required = spec.at(REQUIRED)?;
    Some(required.list_at("nodeSelectorTerms").iter().map(|term| check_term(term, node)).collect())
}

fn check_term(term: &Value, node: &NodeView) -> TermCheck {
    let labels = term.list_at("matchExpressions").iter().map(|e| check(e, false, &node.labels));
    let mut fields = BTreeMap::new();
    if !node.name.is_empty() {
        fields.insert(NAME_FIELD.to_owned(), node.name.clone());
    }
    let mut expressions: Vec<_> = labels.collect();
    expressions.extend(term.list_at("matchFields").iter().map(|e| check(e, true, &fields)));
    // A node without a name has no fields; field expressions then exclude nothing, unless they are invalid.
    let met = |e: &ExpressionCheck| e.invalid.is_none() && (e.matches || (e.field && fields.is_empty()));
    let matches = !expressions.is_empty() && expressions.iter().all(met);
    TermCheck { expressions, matches }
}

fn check(expression: &Value, field: bool, has: &BTreeMap<String, String>) -> ExpressionCheck {
    let (key, operator) = (expression.str_at("key").to_owned(), expression.str_at("operator").to_owned());
    let values: Vec<_> = expression.list_at("values").iter().map(|v| v.as_str().unwrap_or("").to_owned()).collect();
    let verdict = match Operator::from_name(&operator) {
        Some(op @ (Operator::In | Operator::NotIn)) if field => check_field(&key, op, &values, has),
        Some(op) if !field => Requirement::new(&key, op, values.clone())
            .map(|requirement| requirement.matches(has))
            .map_err(|error| error.to_string()),
        _ => Err(format!("operator {operator:?} is not supported")),
    };
    let found = has.get(&key).cloned();
    let (matches, invalid) = match verdict {
        Ok(matches) => (matches, None),
        Err(reason) => (false, Some(reason)),
    };
    ExpressionCheck { key, field, operator, values, found, matches, invalid }
}

/// Field selectors treat an absent field as empty.
fn check_field(
    key: &str,
    operator: Operator,
    values: &[String],
    has: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let [value] = values else { return Err(format!("{key}: must have one value")) };
    let equal = has.get(key).map_or("", String::as_str) == value;
    Ok(equal == (operator == Operator::In))
}

impl fmt::Display for LabelCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: ", self.key, self.wanted)?;
        match &self.found {
            _ if self.ignored => f.write_str("daemonlet's own gate, ignored"),
            Some(found) => write!(f, "the node has {found:?}"),
            None => f.write_str("the node has no such label"),
        }
    }
}

impl fmt::Display for ExpressionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator)?;
        if !self.values.is_empty() {
            write!(f, " [{}]", self.values.join(", "))?;
        }
        match (&self.invalid, &self.found) {
            (Some(reason), _) => write!(f, ": invalid, so its term matches no node: {reason}"),
            (None, Some(found)) => write!(f, ": the node has {found:?}"),
            (None, None) => write!(f, ": the node has no such {}", if self.field { "field" } else { "label" }),
        }
    }
}
