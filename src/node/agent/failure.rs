//! Something that an effect could not do.

use crate::core::local_failure::LocalFailure;
use crate::node::api::words;

/// What failed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct EffectFailure {
    #[serde(rename = "message")]
    pub(super) cause: LocalFailure,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

impl EffectFailure {
    /// In one line, with what to do about it.
    pub(super) fn with_hint(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!(" (hint: {hint})"));
        format!("{}{hint}", self.cause)
    }
}

impl From<LocalFailure> for EffectFailure {
    fn from(cause: LocalFailure) -> Self {
        Self { cause, hint: None }
    }
}

/// An error with its causes, as one line.
pub(super) fn of(error: &(dyn std::error::Error + 'static), hint: Option<String>) -> EffectFailure {
    EffectFailure { cause: words(error).into(), hint }
}
