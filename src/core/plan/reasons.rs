//! The reasons of one daemon together.

use std::borrow::Cow;
use std::fmt;

use crate::core::escape;

use super::Reason;

/// The reasons of one daemon, the most important first; printed in one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reasons(Vec<Reason>);

impl Reasons {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, reason: &Reason) -> bool {
        self.0.contains(reason)
    }

    /// Whether they say only that its readiness is unknown.
    pub fn say_unseen_only(&self) -> bool {
        self.0.iter().all(|reason| matches!(reason, Reason::ReadinessUnknown(_)))
    }

    /// Those that do not only say what is not seen of it.
    pub fn without_unseen(self) -> Self {
        Self(self.0.into_iter().filter(|reason| !matches!(reason, Reason::ReadinessUnknown(_))).collect())
    }

    /// Keeps of texts that are too long, which quote other sources, only the beginning.
    pub(super) fn shorten(&mut self) {
        if let Cow::Owned(short) = escape::short(&self.to_string(), escape::TEXT) {
            self.0 = vec![Reason::Shortened(short)];
        }
    }

    pub(super) fn extend(&mut self, reasons: impl IntoIterator<Item = Reason>) {
        self.0.extend(reasons);
    }

    /// Puts `reasons` before the others.
    pub(super) fn prepend(&mut self, reasons: impl IntoIterator<Item = Reason>) {
        self.0.splice(..0, reasons);
    }
}

impl<I: IntoIterator<Item = Reason>> From<I> for Reasons {
    fn from(reasons: I) -> Self {
        Self(reasons.into_iter().collect())
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.0.iter().enumerate() {
            write!(f, "{}{reason}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
