//! What the last pass saw, decided and did.
//!
//! Owns when nothing is pending any more that could change at once.

use std::sync::Arc;

use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::api::Api;

use super::observation::Observation;
use super::outcome::EffectOutcome;
use super::state::AgentState;
use super::wake::ClockReading;

/// What the last pass saw, decided and did.
pub(super) struct LastPass {
    pub(super) observation: Observation,
    pub(super) plan: Arc<Plan>,
    pub(super) outcome: EffectOutcome,
    pub(super) problems: Vec<Problem>,
    pub(super) due: Timestamp,
    /// When the next pass is made though nothing wakes the loop.
    pub(super) next: tokio::time::Instant,
    /// Whether nothing but news, or `due`, gives another pass anything to decide.
    pub(super) is_at_rest: bool,
}

impl Default for LastPass {
    fn default() -> Self {
        Self {
            observation: Observation::default(),
            plan: Arc::default(),
            outcome: EffectOutcome::default(),
            problems: Vec::new(),
            due: Timestamp::MIN,
            next: ClockReading::now(Timestamp::MIN).until(Timestamp::MIN),
            is_at_rest: false,
        }
    }
}

impl LastPass {
    /// Whether neither the API server, a pull nor a file that comes to rest could still change anything at once.
    pub(super) fn has_nothing_pending(&self, state: &AgentState, api: Option<&Api>) -> bool {
        let observation = &self.observation;
        let waits = |d: &DaemonPlan| {
            let is_asked = state.concerns.admission_dry_runs.is_open(&d.key);
            let is_unread = observation.snapshot().is_some_and(|api| api.is_unread(&d.key));
            !d.actions.is_empty() || !d.summary.waiting_for.is_empty() || is_asked || is_unread
        };
        let is_complete = |api: &Api| api.store().snapshot().is_complete() && !self.plan.daemons.iter().any(waits);
        let rests = observation.pulls.open() == 0 && !observation.folders.view.is_held;
        let is_unknown = state.concerns.removal_guard.is_unidentified(state.inputs.cluster_uid.as_ref());
        rests && !state.asks_runtime && !is_unknown && api.is_none_or(is_complete)
    }
}
