//! The pace of writes to this Node.
//!
//! Owns that one write is under way at a time, that a failure is reported once, and when the next write may be made. Must not
//! know what is written.

use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::NodeWriteResult;

use super::log::Log;
use super::observation::Observation;

/// Until the next write at least, after one that was made or failed; after each further failure twice as long.
const AGAIN: Span = Span::from_secs(2);
/// At most this after what passes by itself.
const AGAIN_SOON: Span = Span::from_secs(10);
/// At most this while a right or a policy is missing.
const AGAIN_MOST: Span = Span::from_secs(300);

/// What is known of the last write of one kind. `W`: what is to be written.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct NodeWrites<W> {
    writing: bool,
    /// What the last write was to change.
    #[serde(default = "Option::default")]
    change: Option<W>,
    /// Whether there was a connection to the API server.
    #[serde(default)]
    is_linked: bool,
    /// Not before.
    next: Option<Timestamp>,
    /// How long the last failure was waited for.
    pause: Span,
    /// Why the Node is not as it is to be.
    problem: Option<Problem>,
}

impl<W> Default for NodeWrites<W> {
    fn default() -> Self {
        Self { writing: false, change: None, is_linked: false, next: None, pause: Span::ZERO, problem: None }
    }
}

impl<W: PartialEq> NodeWrites<W> {
    /// Forgets a deadline that has passed; a clock that was set back does not prolong it. A failure from before a new
    /// connection to the API server says nothing about the present one.
    pub(super) fn observe(&mut self, observation: &Observation) {
        let (now, was_linked) = (observation.now, self.is_linked);
        self.is_linked = observation.is_linked();
        if self.is_linked && !was_linked {
            self.begin_anew();
        }
        self.next = self.next.filter(|next| *next > now).map(|next| next.min(now + AGAIN_MOST));
    }

    /// Takes the answer to the write. `failed`: why it was not made.
    pub(super) fn end(&mut self, now: Timestamp, result: &NodeWriteResult, failed: Option<Problem>, log: &mut Log) {
        let most = if result.lacks_rights() { AGAIN_MOST } else { AGAIN_SOON };
        self.pause = match &failed {
            None => Span::ZERO,
            Some(_) => (self.pause + self.pause).clamp(AGAIN, most),
        };
        (self.writing, self.next) = (false, Some(now + self.pause.max(AGAIN)));
        if let Some(new) = failed.as_ref().filter(|new| self.problem.as_ref() != Some(*new)) {
            log.warn(new.reason.clone()).hint(new.hint.as_deref());
        }
        self.problem = failed;
    }

    /// The Node is as it should be.
    pub(super) fn rest(&mut self) {
        (self.next, self.pause, self.problem, self.change) = (None, Span::ZERO, None, None);
    }

    /// Whether a write of `change` may be made now; then it is under way.
    pub(super) fn begin(&mut self, now: Timestamp, change: W) -> bool {
        if self.writing {
            return false;
        }
        if self.change.as_ref().is_some_and(|last| *last != change) {
            self.begin_anew();
        }
        self.change = Some(change);
        self.writing = self.next.is_none_or(|next| next <= now);
        self.writing
    }

    /// The next write is due as after a first failure.
    fn begin_anew(&mut self) {
        let longer = self.pause.max(AGAIN) - AGAIN;
        self.next = self.next.map(|next| next - longer);
        self.pause = Span::ZERO;
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
