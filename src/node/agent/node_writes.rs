//! The pace of writes to this Node.
//!
//! Owns that one is under way at a time, that a failure is told once, and when the next may be made. Must not know what is
//! written.

use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::log::Log;

/// Until the next write at least, after one that was made or failed; after each further failure twice as long.
const AGAIN: Span = Span::from_secs(2);
/// At most this.
const AGAIN_MOST: Span = Span::from_secs(300);

/// What is known of the last write of one kind.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct NodeWrites {
    writing: bool,
    /// Not before.
    next: Option<Timestamp>,
    /// How long the last failure was waited for.
    pause: Span,
    /// Why the Node is not as it is to be.
    problem: Option<Problem>,
}

impl NodeWrites {
    /// Forgets a time that has come; a clock that was set back makes it wait no longer.
    pub(super) fn observe(&mut self, now: Timestamp) {
        self.next = self.next.filter(|next| *next > now).map(|next| next.min(now + AGAIN_MOST));
    }

    /// Takes the answer to the write. `failed`: why it was not made.
    pub(super) fn end(&mut self, now: Timestamp, failed: Option<Problem>, log: &mut Log) {
        self.pause = match &failed {
            None => Span::ZERO,
            Some(_) => (self.pause + self.pause).clamp(AGAIN, AGAIN_MOST),
        };
        (self.writing, self.next) = (false, Some(now + self.pause.max(AGAIN)));
        if let Some(new) = failed.as_ref().filter(|new| self.problem.as_ref() != Some(*new)) {
            log.warn(new.reason.clone()).hint(new.hint.as_deref());
        }
        self.problem = failed;
    }

    /// The Node is as it is to be.
    pub(super) fn rest(&mut self) {
        (self.next, self.pause, self.problem) = (None, Span::ZERO, None);
    }

    /// Whether a write may be made now; then it is under way.
    pub(super) fn begin(&mut self) -> bool {
        let may = !self.writing && self.next.is_none();
        self.writing |= may;
        may
    }

    /// When the next write may be made.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.writing)
    }

    /// Why the Node is not as it is to be.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }
}
