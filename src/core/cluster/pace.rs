//! How often a DaemonSet's status is written: each write goes to every agent that watches it.
//!
//! At most once a second for a DaemonSet on up to 1,000 nodes, proportionally rarer beyond; the end of a
//! rollout does not wait. The pass leaves out what is unchanged.

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
    /// When the turn of `key` comes; `None`: it has.
    pub fn waits(&self, key: &ObjectKey, nodes: usize, now: Timestamp) -> Option<Timestamp> {
        // A clock that was set back must not silence it.
        let last = self.written.get(key).filter(|last| **last <= now);
        last.map(|last| *last + period(nodes)).filter(|at| *at > now)
    }

    pub fn written(&mut self, key: ObjectKey, now: Timestamp) {
        self.written.insert(key, now);
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
        assert_eq!(pace.waits(&one, 1_000, at(5_000)), None);
        pace.written(one.clone(), at(5_000));
        assert_eq!(pace.waits(&one, 1_000, at(5_999)), Some(at(6_000)));
        assert_eq!(pace.waits(&other, 1_000, at(5_999)), None, "each has turns of its own");
        assert_eq!(pace.waits(&one, 1_000, at(6_000)), None);
        assert_eq!(pace.waits(&one, 1, at(5_500)), Some(at(6_000)), "few nodes are as good as 1,000");
        assert_eq!(pace.waits(&one, 2_500, at(7_499)), Some(at(7_500)));
        assert_eq!(pace.waits(&one, 5_000, at(7_500)), Some(at(10_000)));
        assert_eq!(pace.waits(&one, 1, at(4_000)), None, "the clock was set back");
        pace.retain(|_| false);
        assert_eq!(pace.waits(&one, 1, at(5_001)), None);
    }
}
