//! A remark on a daemon, for people.

use std::fmt;

use crate::core::model::FieldError;

/// A remark; printed in one line.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub enum Note {
    /// On a field of the definition.
    Field(FieldError),
    /// On anything else.
    Other(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Field(error) => f.write_str(&error.with_hint()),
            Note::Other(text) => f.write_str(text),
        }
    }
}
