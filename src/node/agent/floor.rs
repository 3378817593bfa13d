//! The floor on disk: what keeps a pod UID from being used twice where records are lost, and another cluster from being
//! believed where the remembered inputs are damaged.
//!
//! Owns the file. It holds a bound above every incarnation number in use, raised [`STEP`] at a time before a number
//! beyond it is used: a record that cannot be read has no higher number.

use serde::Deserialize;
use serde::Serialize;

use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::CheckpointStore;

/// The floor's name in the state folder.
pub(super) const FLOOR: &str = "floor";

/// How many numbers one write covers.
const STEP: u64 = 1_000;

/// What outlives records and the remembered inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Floor {
    /// The first number of a name without a record.
    pub(super) next_incarnation: u64,
    /// Above every number in use.
    #[serde(default)]
    pub(super) bound: u64,
    /// The cluster that the remembered inputs are of: UID of the namespace kube-system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cluster_uid: Option<String>,
}

impl Floor {
    /// Where names without a record begin, if records or the floor are lost and `highest` is above all numbers known.
    pub(super) fn above(highest: u64) -> u64 {
        highest.saturating_add(1_000 * STEP)
    }

    /// One that covers the numbers below `top`, and the names that begin at `next`.
    fn covering(&self, next: u64, top: u64) -> Self {
        let top = top.max(next);
        let bound = if top > self.bound { top.saturating_add(STEP) } else { self.bound };
        Self { next_incarnation: next.max(self.next_incarnation), bound, cluster_uid: self.cluster_uid.clone() }
    }

    /// Saves one that covers these numbers and names `cluster`, unless this one, which is on disk, does.
    pub(super) fn raise(
        &mut self,
        store: &CheckpointStore,
        next: u64,
        top: u64,
        cluster: Option<&String>,
    ) -> Result<(), CheckpointError> {
        let raised = Self { cluster_uid: cluster.cloned(), ..self.covering(next, top) };
        if raised != *self {
            store.save(FLOOR, &raised)?;
            *self = raised;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_raised_once_in_a_thousand_numbers() {
        let mut floor = Floor::default();
        let mut writes = 0;
        for top in 0..=2_500 {
            let raised = floor.covering(0, top);
            writes += u32::from(raised != floor);
            floor = raised;
            assert!(floor.bound >= top && floor.next_incarnation == 0);
        }
        assert_eq!(writes, 3);
        assert_eq!(floor.covering(7, 0), Floor { next_incarnation: 7, ..floor.clone() });
        let lost = Floor::default().covering(Floor::above(7), 8);
        assert_eq!(lost, Floor { next_incarnation: 1_000_007, bound: 1_001_007, cluster_uid: None });
        assert_eq!(Floor::default().covering(u64::MAX, u64::MAX).bound, u64::MAX);
    }

    #[test]
    fn a_floor_of_an_earlier_version_has_no_bound() {
        let floor: Floor = serde_json::from_str("{\"nextIncarnation\": 5}").unwrap();
        assert_eq!(floor, Floor { next_incarnation: 5, bound: 0, cluster_uid: None });
    }
}
