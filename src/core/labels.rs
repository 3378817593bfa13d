//! Labels: valid keys and values, requirements, and selectors.
//!
//! Follows apimachinery's `labels` package (`selector.go`). Must not know DaemonSets or nodes.

mod parse;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::core::dns;
use crate::core::named::named;

pub use parse::parse;

named! {
    /// What a requirement asks of a label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
    pub enum Operator {
        /// The label's value is one of the values.
        In = "In",
        /// The label is absent or has another value.
        NotIn = "NotIn",
        /// The label is there.
        Exists = "Exists",
        /// The label is not there.
        DoesNotExist = "DoesNotExist",
        /// The label's value is a whole number above the one value.
        Gt = "Gt",
        /// The label's value is a whole number below the one value.
        Lt = "Lt",
    }
}

/// Why a selector or requirement is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LabelError(pub(crate) String);

/// One requirement on a label, valid by construction (upstream's `NewRequirement`).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// A requirement on the label `key`.
    ///
    /// # Errors
    /// An invalid key or value, or values that do not fit the operator.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, LabelError> {
        if !is_label_key(key) {
            return Err(LabelError(format!("{key:?} is no valid label key")));
        }
        let fits = match operator {
            Operator::In | Operator::NotIn => !values.is_empty(),
            Operator::Exists | Operator::DoesNotExist => values.is_empty(),
            Operator::Gt | Operator::Lt => values.len() == 1 && values.iter().all(|v| v.parse::<i64>().is_ok()),
        };
        if !fits {
            let need = match operator {
                Operator::In | Operator::NotIn => "at least one value",
                Operator::Exists | Operator::DoesNotExist => "no value",
                Operator::Gt | Operator::Lt => "exactly one whole number",
            };
            return Err(LabelError(format!("{key}: operator {operator:?} needs {need}")));
        }
        match values.iter().find(|value| !is_label_value(value)) {
            Some(value) => Err(LabelError(format!("{key}: {value:?} is no valid label value"))),
            None => Ok(Self { key: key.to_owned(), operator, values }),
        }
    }

    /// Whether `labels` meet the requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let bound = || self.values.first().and_then(|value| value.parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => number().zip(bound()).is_some_and(|(number, bound)| number > bound),
            Operator::Lt => number().zip(bound()).is_some_and(|(number, bound)| number < bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match (self.operator, self.values.len()) {
            (Operator::In, 1) => write!(f, "{key}={values}"),
            (Operator::NotIn, 1) => write!(f, "{key}!={values}"),
            (Operator::In, _) => write!(f, "{key} in ({values})"),
            (Operator::NotIn, _) => write!(f, "{key} notin ({values})"),
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::Gt, _) => write!(f, "{key}>{values}"),
            (Operator::Lt, _) => write!(f, "{key}<{values}"),
        }
    }
}

/// Requirements that must all be met; with none, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Self { requirements }
    }

    /// What it requires.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether `labels` meet every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Whether `key` is a qualified name: `[DNS subdomain/]name`, the name at most 63 characters.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => dns::subdomain(prefix).is_none() && is_name(name),
        None => is_name(key),
    }
}

/// Whether `value` is a label value: empty, or at most 63 of `[A-Za-z0-9._-]` with alphanumeric ends.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 63 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

#[cfg(test)]
mod tests;
