//! Something that an effect could not do, in words for people.

use crate::node::api::words;

/// What failed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct EffectFailure {
    /// What failed, with its causes.
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

/// An error with its causes, as one line.
pub(super) fn of(error: &(dyn std::error::Error + 'static), hint: Option<String>) -> EffectFailure {
    EffectFailure { message: words(error), hint }
}
