//! How often a DaemonSet's status is written: each write goes to every agent that watches it.
//!
//! At most once a second for a DaemonSet on up to 1,000 nodes, proportionally rarer beyond; the end of a
//! rollout does not wait. That what is unchanged is not written at all is the pass's business.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// Between two writes of one status on up to [`MANY`] nodes.
const PERIOD: Span = Span::from_secs(1);
/// See [`PERIOD`].
const MANY: i64 = 1_000;

/// When each status was last written.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    written: BTreeMap<ObjectKey, Timestamp>,
}

impl Pace {
    /// Takes the turn of `key` if it has come, or if it does not wait for one.
    ///
    /// # Errors
    /// When its turn comes.
    pub fn take(&mut self, key: &ObjectKey, nodes: usize, at_once: bool, now: Timestamp) -> Result<(), Timestamp> {
        // A clock that was set back must not silence it.
        let last = self.written.get(key).filter(|last| **last <= now);
        match last.map(|last| *last + period(nodes)).filter(|at| *at > now && !at_once) {
            Some(at) => Err(at),
            None => {
                self.written.insert(key.clone(), now);
                Ok(())
            }
        }
    }

    /// Forgets those that are gone.
    pub fn retain(&mut self, keeps: impl Fn(&ObjectKey) -> bool) {
        self.written.retain(|key, _| keeps(key));
    }
}

/// Between two writes of the status of a DaemonSet on so many nodes.
fn period(nodes: usize) -> Span {
    PERIOD * i64::try_from(nodes).unwrap_or(i64::MAX).max(MANY) / MANY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;

    #[test]
    fn a_status_has_its_turn_once_a_second_and_rarer_on_many_nodes() {
        let (one, other) = (ObjectKey::new("a", "one"), ObjectKey::new("a", "other"));
        let mut pace = Pace::default();
        assert_eq!(pace.take(&one, 1_000, false, at(5_000)), Ok(()));
        assert_eq!(pace.take(&one, 1_000, false, at(5_999)), Err(at(6_000)));
        assert_eq!(pace.take(&other, 1_000, false, at(5_999)), Ok(()), "each has turns of its own");
        assert_eq!(pace.take(&one, 1_000, false, at(6_000)), Ok(()));
        assert_eq!(pace.take(&one, 2_500, false, at(8_499)), Err(at(8_500)));
        assert_eq!(pace.take(&one, 5_000, false, at(8_500)), Err(at(11_000)));
        assert_eq!(pace.take(&one, 1, false, at(6_500)), Err(at(7_000)));
    }

    #[test]
    fn the_end_of_a_rollout_does_not_wait_and_takes_the_turn() {
        let key = ObjectKey::new("a", "one");
        let mut pace = Pace::default();
        assert_eq!(pace.take(&key, 1, false, at(5_000)), Ok(()));
        assert_eq!(pace.take(&key, 1, true, at(5_001)), Ok(()));
        assert_eq!(pace.take(&key, 1, false, at(5_500)), Err(at(6_001)));
        assert_eq!(pace.take(&key, 1, false, at(4_000)), Ok(()), "the clock was set back");
        pace.retain(|_| false);
        assert_eq!(pace.take(&key, 1, false, at(4_001)), Ok(()));
    }
}
