//! Why a DaemonSet of the API is not ours.
//!
//! Owns the texts. Must not decide anything.

use std::fmt;

use crate::core::labels::Selector;
use crate::core::model::FieldError;
use crate::core::model::MODE_LABEL;
use crate::core::model::Mode;
use crate::core::model::joined_with_hints;
use crate::core::render::Missing;

/// Whether a DaemonSet of the API is ours.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Covered {
    /// It is, in this mode.
    Yes(Mode),
    /// It is not, and why.
    No(NotCovered),
}

/// Why a DaemonSet of the API is not ours.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NotCovered {
    /// Its mode label has this value, which is no mode.
    UnknownMode(String),
    /// It has no mode label, and `default-mode` is `labelled`.
    ModeLabelled,
    /// Its labels do not match the configuration's selector.
    Selector(Selector),
    /// Its namespace is not among those of the configuration.
    Namespace { namespace: String, namespaces: Vec<String> },
    /// It differs from the folder's, and may not start here.
    Refused(Vec<FieldError>),
    /// It differs from the folder's, and what its start depends on has not been read.
    Unread(Missing),
    /// As the cluster sees it: it has no mode label, and no agent reports it.
    Unreported,
}

impl fmt::Display for NotCovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMode(value) => {
                write!(f, "label {MODE_LABEL} is {value:?}, which is neither static nor bootstrap")
            }
            Self::ModeLabelled => write!(f, "it has no label {MODE_LABEL}, and default-mode is labelled"),
            Self::Selector(selector) => write!(f, "its labels do not match selector {selector}"),
            Self::Namespace { namespace, namespaces } => {
                write!(f, "namespace {namespace} is not among policy.namespaces ({})", namespaces.join(", "))
            }
            Self::Refused(errors) => f.write_str(&joined_with_hints(errors)),
            Self::Unread(missing) => write!(f, "{missing} has not been read yet"),
            Self::Unreported => f.write_str("it has no mode label, and no agent runs it"),
        }
    }
}
