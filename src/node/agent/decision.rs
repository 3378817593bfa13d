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
        fn sorted<T: std::fmt::Debug>(all: &[T]) -> Vec<String> {
            let mut all: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
            all.sort();
            all
        }
        let Self {
            plan,
            save_inputs,
            adopters,
            gates,
            to_touch,
            to_clear,
            requests,
            events,
            problems,
            log,
            due,
            state,
        } = self;
        assert_eq!(sorted(requests), sorted(&other.requests), "{why}");
        assert_eq!(sorted(&log.0), sorted(&other.log.0), "{why}");
        for (daemon, other) in plan.daemons.iter().zip(&other.plan.daemons) {
            assert_eq!(daemon, other, "{why}: another plan");
        }
        assert!(*plan == other.plan, "{why}: another plan");
        assert_eq!((save_inputs, adopters, gates), (&other.save_inputs, &other.adopters, &other.gates), "{why}");
        assert_eq!((to_touch, to_clear, events), (&other.to_touch, &other.to_clear, &other.events), "{why}");
        assert_eq!((due, problems), (&other.due, &other.problems), "{why}");
        assert!(state.records == other.state.records, "{why}: other records");
        assert!(state.concerns == other.state.concerns, "{why}: other concerns");
        assert!(state.inputs == other.state.inputs, "{why}: other inputs");
        assert!(*state == other.state, "{why}: another state");
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
