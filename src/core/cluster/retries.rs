//! When a write that did not go through is tried again.
//!
//! Owns the back-off. What the API server refuses for what it is (a right, a quota, an admission policy, a schema) is
//! tried ever more rarely. A server that is away is asked every second. A write that was decided from an old version
//! waits until a watch brings another.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;

use super::requests::RequestTarget;
use super::requests::SendError;

/// The first wait, and each wait after an error that is no refusal.
const FIRST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(300);
/// A refusal that has lasted for so long does not pass by itself.
const STANDS: Span = Span::from_secs(30);

/// What did not go through, by what it is.
#[derive(Clone, Debug, Default)]
pub struct Retries {
    waiting: BTreeMap<RequestTarget, Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// When it may be tried again.
    again: Timestamp,
    wait: Span,
    why: Why,
}

#[derive(Clone, Debug, PartialEq)]
enum Why {
    Failed(SendError),
    /// It was decided from this version, which is not the newest.
    Outdated(String),
}

impl Retries {
    /// Whether its last try failed: what is refused for good must not keep anything else from its turn.
    pub fn has_failed(&self, target: &RequestTarget) -> bool {
        self.failure(target).is_some()
    }

    /// How its last try failed, if it did.
    pub fn failure(&self, target: &RequestTarget) -> Option<&SendError> {
        match &self.waiting.get(target)?.why {
            Why::Failed(error) => Some(error),
            Why::Outdated(_) => None,
        }
    }

    /// When a write is tried again that the API server refuses for what it is, if it does.
    pub fn refused_until(&self, target: &RequestTarget) -> Option<Timestamp> {
        let waiting = self.waiting.get(target)?;
        matches!(waiting.why, Why::Failed(SendError::Refused(_))).then_some(waiting.again)
    }

    /// Whether the API server has refused the status of a DaemonSet again and again: its next try is so far away.
    pub fn lacks_status(&self) -> bool {
        self.waiting.iter().any(|(target, waiting)| {
            let is_refused = matches!(waiting.why, Why::Failed(SendError::Refused(_)));
            matches!(target, RequestTarget::Status(_)) && is_refused && waiting.wait > STANDS
        })
    }

    /// When a write that was decided from `version` may be tried; `None`: now.
    pub fn waits(&self, target: &RequestTarget, version: &str, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.waiting.get(target)?;
        let is_new = matches!(&waiting.why, Why::Outdated(old) if old != version);
        // A clock that was set back must not silence it.
        let waits = !is_new && waiting.again > now && waiting.again - waiting.wait <= now;
        waits.then_some(waiting.again)
    }

    /// It was written, or is to be decided anew.
    pub fn passed(&mut self, target: &RequestTarget) {
        self.waiting.remove(target);
    }

    /// It was decided from `version`, which is not the newest.
    pub fn outdated(&mut self, target: RequestTarget, version: String, now: Timestamp) {
        self.waiting.insert(target, Waiting { again: now + FIRST, wait: FIRST, why: Why::Outdated(version) });
    }

    /// It failed. Gives whether the error is new.
    pub fn failed(&mut self, target: RequestTarget, error: SendError, now: Timestamp) -> bool {
        let known = self.waiting.get(&target).filter(|known| matches!(known.why, Why::Failed(_)));
        let wait = match (&error, known) {
            (SendError::Refused(_), Some(known)) => doubled(known.wait, 1, LONGEST),
            _ => FIRST,
        };
        let why = Why::Failed(error);
        let is_new = known.is_none_or(|known| known.why != why);
        self.waiting.insert(target, Waiting { again: now + wait, wait, why });
        is_new
    }

    /// Forgets what is not wanted any more.
    pub fn retain(&mut self, wanted: &BTreeSet<RequestTarget>) {
        self.waiting.retain(|target, _| wanted.contains(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::ObjectKey;
    use crate::core::time::at;

    fn target(node: &str) -> RequestTarget {
        RequestTarget::Approvals(node.to_owned())
    }

    fn refused(message: &str) -> SendError {
        SendError::Refused(message.to_owned())
    }

    #[test]
    fn what_is_refused_is_tried_ever_more_rarely_and_reported_once() {
        let (mut retries, one) = (Retries::default(), target("one"));
        let mut now = at(0);
        for (number, wait) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].into_iter().enumerate() {
            let again = now + Span::from_secs(wait);
            assert_eq!(retries.waits(&one, "1", now), None);
            assert_eq!(retries.failed(one.clone(), refused("no"), now), number == 0);
            assert_eq!(
                retries.waits(&one, "2", again - Span::from_millis(1)),
                Some(again),
                "a new version is no reason"
            );
            now = again;
        }
        assert!(retries.failed(one.clone(), refused("no, for another reason"), now));
        assert_eq!(retries.waits(&target("another"), "1", now), None, "each for itself");
        assert_eq!(retries.waits(&one, "1", at(0)), None, "the clock was set back");
        retries.passed(&one);
        assert_eq!(retries.waits(&one, "1", now), None);
        assert!(retries.failed(one.clone(), refused("no"), now), "from the beginning");
        assert_eq!(retries.waits(&one, "1", now), Some(now + FIRST));
        assert!(retries.has_failed(&one) && !retries.has_failed(&target("another")));
        retries.retain(&BTreeSet::from([target("another")]));
        assert!(!retries.has_failed(&one), "it was not wanted any more");
    }

    #[test]
    fn a_status_that_is_refused_for_half_a_minute_is_lacking() {
        let (mut retries, status) = (Retries::default(), RequestTarget::Status(ObjectKey::new("n", "net")));
        let refuse = |retries: &mut Retries, target: &RequestTarget, seconds: i64| {
            retries.failed(target.clone(), refused("no"), at(seconds * 1_000));
            retries.lacks_status()
        };
        for seconds in [0, 1, 3, 7, 15] {
            assert!(!refuse(&mut retries, &status, seconds) && !refuse(&mut retries, &target("one"), seconds));
        }
        assert!(!refuse(&mut retries, &target("one"), 31), "a node's approvals are something else");
        assert!(refuse(&mut retries, &status, 31));
        retries.passed(&status);
        assert!(!retries.lacks_status());
    }

    #[test]
    fn a_server_that_is_away_is_asked_every_second() {
        let mut retries = Retries::default();
        for (now, is_new) in [(0, true), (1_000, false), (2_000, false)] {
            let error = SendError::Unanswered("connection refused".to_owned());
            assert_eq!(retries.failed(target("one"), error, at(now)), is_new);
            assert_eq!(retries.waits(&target("one"), "1", at(now)), Some(at(now + 1_000)));
        }
    }

    #[test]
    fn what_was_decided_from_an_old_version_waits_for_another() {
        let (mut retries, one) = (Retries::default(), target("one"));
        retries.outdated(one.clone(), "1".to_owned(), at(0));
        assert_eq!(retries.waits(&one, "1", at(999)), Some(at(1_000)));
        assert_eq!((retries.waits(&one, "2", at(1)), retries.waits(&one, "1", at(1_000))), (None, None));
        assert!(!retries.has_failed(&one));
    }
}
