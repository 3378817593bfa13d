//! What one pass decides: effects in order, requests, what to report, and when to look again.
//!
//! A value that can be printed, compared, executed and recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::status::Problem;
use crate::core::time::Timestamp;

use super::concerns::kubelet_resync::ToTouch;
use super::daemon_event::DaemonEvent;
use super::gates::Gates;
use super::log::Log;
use super::requests::Request;
use super::state::AgentState;

/// What one pass decides.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// One plan a daemon: its actions in order, the record to be written, and its summary.
    pub(super) plan: Arc<Plan>,
    /// Whether the remembered inputs are written before anything else, and after everything else.
    pub(super) save_inputs: SaveInputs,
    /// Daemons that adopt instances of others. Their records are written first: an instance that is in neither record would
    /// count as unrelated.
    pub(super) adopters: Vec<ObjectKey>,
    /// Gates of pods that start after others.
    pub(super) gates: Gates,
    /// Manifests that are touched so that the kubelet tries again.
    pub(super) to_touch: Vec<ToTouch>,
    /// Folders of ended pods that are to be cleared.
    pub(super) to_clear: BTreeSet<String>,
    /// Sent after the effects.
    pub(super) requests: Vec<Request>,
    /// Events on DaemonSets that do not follow from an action.
    pub(super) events: Vec<DaemonEvent>,
    /// What is wrong beside single daemons.
    pub(super) problems: Vec<Problem>,
    pub(super) log: Log,
    /// When to look again though nothing happens.
    pub(super) due: Timestamp,
    /// The agent's state when everything has been done.
    pub(super) state: AgentState,
}

#[cfg(any(test, feature = "simulation"))]
impl Decision {
    /// Asserts that `other` decides the same; requests and lines may stand in another order.
    pub(super) fn assert_same(&self, other: &Self, why: &str) {
        let sorted = |decision: &Self| {
            let mut requests: Vec<String> = decision.requests.iter().map(|request| format!("{request:?}")).collect();
            let mut lines: Vec<String> = decision.log.0.iter().map(|line| line.text.clone()).collect();
            requests.sort();
            lines.sort();
            (requests, lines)
        };
        assert_eq!(sorted(self), sorted(other), "{why}");
        assert!(self.plan == other.plan, "{why}: another plan");
        assert_eq!((self.due, &self.problems), (other.due, &other.problems), "{why}");
        assert!(self.state.records == other.state.records, "{why}: other records");
        assert!(self.state.concerns == other.state.concerns, "{why}: other concerns");
    }
}

/// When the remembered inputs are written in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum SaveInputs {
    /// Not in this pass.
    No,
    /// Before the other effects: the inputs change what runs.
    Before,
    /// Before the other effects, and without waiting for the disk: only the name of this boot is new in them.
    BootBefore,
    /// After the other effects: some time has passed since they changed.
    After,
}

impl Decision {
    pub(super) fn daemon(&self, key: &ObjectKey) -> Option<&DaemonPlan> {
        self.plan.daemons.iter().find(|daemon| daemon.key == *key)
    }
}
