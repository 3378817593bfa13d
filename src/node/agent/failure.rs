//! Something that an effect could not do, in words for people.

/// What failed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct EffectFailure {
    /// What failed, with its causes.
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

/// An error with its causes, as one line.
pub(super) fn of(error: &dyn std::error::Error, hint: Option<String>) -> EffectFailure {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    EffectFailure { message, hint }
}
