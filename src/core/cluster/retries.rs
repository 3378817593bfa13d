//! When a write that failed is tried again, and what is said of it.
//!
//! Owns the back-off: what the API server refuses for what it is (a right, a quota, an admission policy, a schema) is
//! not let pass a second later, and is asked for ever more rarely; a server that is away is asked at once when it may
//! be back. The same words about the same write are a warning once.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The first wait; of what is not refused, each.
const FIRST: Span = Span::from_secs(1);
/// The longest.
const LONGEST: Span = Span::from_secs(300);

/// How a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was answered, and the answer is no.
    Refused,
    /// Nobody answered, or not to the question.
    Unanswered,
}

impl Failure {
    /// What an HTTP status means: too many requests, a timeout, a fault of the server and a token that is to be renewed
    /// pass.
    pub fn of(status: u16) -> Self {
        if matches!(status, 400..=499) && !matches!(status, 401 | 408 | 429) { Self::Refused } else { Self::Unanswered }
    }
}

/// What failed, by what it is.
#[derive(Clone, Debug, Default)]
pub struct Retries {
    failed: BTreeMap<String, Failed>,
}

#[derive(Clone, Debug)]
struct Failed {
    /// When it may be tried again.
    again: Timestamp,
    wait: Span,
    words: String,
}

impl Retries {
    /// Puts what failed the last time behind the rest, each in the order that it has: what is refused for good must not
    /// keep anything else from its turn.
    pub fn order<T>(&self, writes: &mut [(String, T)]) {
        writes.sort_by_key(|(what, _)| self.failed.contains_key(what));
    }

    /// When it may be tried; `None`: now.
    pub fn waits(&self, what: &str, now: Timestamp) -> Option<Timestamp> {
        // A clock that was set back must not silence it.
        self.failed.get(what).filter(|f| f.again > now && f.again - f.wait <= now).map(|f| f.again)
    }

    /// It was written, or is to be planned anew.
    pub fn passed(&mut self, what: &str) {
        self.failed.remove(what);
    }

    /// It failed. Gives when it is to be tried again, and whether these words are new.
    pub fn failed(&mut self, what: &str, how: Failure, words: &str, now: Timestamp) -> (Timestamp, bool) {
        let known = self.failed.get(what);
        let is_new = known.is_none_or(|known| known.words != words);
        let wait = match (how, known) {
            (Failure::Refused, Some(known)) => (known.wait * 2).min(LONGEST),
            _ => FIRST,
        };
        let again = now + wait;
        self.failed.insert(what.to_owned(), Failed { again, wait, words: words.to_owned() });
        (again, is_new)
    }

    /// Forgets what is not planned any more.
    pub fn retain(&mut self, planned: &BTreeSet<&str>) {
        self.failed.retain(|what, _| planned.contains(what.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use crate::core::time::ms;

    #[test]
    fn what_is_refused_is_tried_ever_more_rarely_and_said_once() {
        let mut retries = Retries::default();
        let mut now = at(0);
        for (number, wait) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(Span::from_secs).into_iter().enumerate()
        {
            assert_eq!(retries.waits("status", now), None);
            assert_eq!(retries.failed("status", Failure::Refused, "no", now), (now + wait, number == 0));
            assert_eq!(retries.waits("status", now + wait - ms(1)), Some(now + wait));
            now += wait;
        }
        assert!(retries.failed("status", Failure::Refused, "no, for another reason", now).1);
        assert_eq!(retries.waits("another", now), None, "each for itself");
        assert_eq!(retries.waits("status", at(0)), None, "the clock was set back");
        retries.passed("status");
        assert_eq!(retries.waits("status", now), None);
        assert_eq!(
            retries.failed("status", Failure::Refused, "no", now),
            (now + ms(1_000), true),
            "from the beginning"
        );
        let ordered = |retries: &Retries| {
            let mut writes = ["status", "revision", "approvals"].map(|what| (what.to_owned(), ()));
            retries.order(&mut writes);
            writes.map(|(what, ())| what)
        };
        assert_eq!(ordered(&retries), ["revision", "approvals", "status"]);
        retries.retain(&BTreeSet::from(["another"]));
        assert_eq!(ordered(&retries), ["status", "revision", "approvals"], "it was not planned any more");
    }

    #[test]
    fn a_server_that_is_away_is_asked_every_second() {
        let mut retries = Retries::default();
        for (now, is_new) in [(at(0), true), (at(1_000), false), (at(2_000), false)] {
            assert_eq!(retries.failed("status", Failure::Unanswered, "refused", now), (now + ms(1_000), is_new));
        }
        for (status, how) in [
            (400, Failure::Refused),
            (401, Failure::Unanswered),
            (403, Failure::Refused),
            (422, Failure::Refused),
            (429, Failure::Unanswered),
            (500, Failure::Unanswered),
            (503, Failure::Unanswered),
        ] {
            assert_eq!(Failure::of(status), how, "{status}");
        }
    }
}
