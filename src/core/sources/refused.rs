//! Why the API's version of a DaemonSet is refused.
//!
//! Owns the texts. Must not decide anything.

use std::fmt;

use crate::core::model::FieldError;
use crate::core::model::joined;
use crate::core::model::joined_with_hints;
use crate::core::set_aside::HeldBack;

/// Why the API's version of a DaemonSet is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedVersion {
    /// These fields are invalid.
    Invalid(Vec<FieldError>),
    /// The same, and its mode label has an unknown value: no node that does not run it knows more of it.
    Mistyped(Vec<FieldError>),
    /// These fields are too large for its namespace, which is not trusted.
    TooLarge(Vec<FieldError>),
    /// No pass works on it now.
    HeldBack(HeldBack),
}

impl RefusedVersion {
    /// The fields that are wrong.
    pub fn errors(&self) -> &[FieldError] {
        match self {
            Self::Invalid(errors) | Self::Mistyped(errors) | Self::TooLarge(errors) => errors,
            Self::HeldBack(_) => &[],
        }
    }

    /// In one line, with what to do about it.
    pub fn with_hints(&self) -> String {
        match self {
            Self::Invalid(errors) | Self::Mistyped(errors) | Self::TooLarge(errors) => joined_with_hints(errors),
            Self::HeldBack(_) => self.to_string(),
        }
    }
}

/// In one line, without what to do about it.
impl fmt::Display for RefusedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) | Self::Mistyped(errors) | Self::TooLarge(errors) => f.write_str(&joined(errors)),
            Self::HeldBack(why) => why.fmt(f),
        }
    }
}
