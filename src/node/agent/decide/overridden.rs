//! A DaemonSet that a folder's overrides, and that the API server deletes meanwhile.
//!
//! Owns forgetting it: once the file overrides no more, it decides alone. Must not end or start anything.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::Reason;
use crate::core::sources::ApiState;
use crate::core::sources::Confirmation;
use crate::node::agent::observation::Observation;
use crate::node::agent::state::AgentState;

/// Forgets what the API server last had of DaemonSets whose files override, and that a GET confirms to be gone; asks
/// where none was sent. The files have then given way as to a newer version: what the API server has later counts.
pub(super) fn forget_deleted(observation: &Observation, state: &mut AgentState, plan: &mut Plan) {
    let Some(api) = observation.snapshot() else { return };
    let overrides: BTreeMap<&ObjectKey, &str> = observation.folders.overrides().collect();
    if overrides.is_empty() {
        return;
    }
    let is_in_force = |source: &Option<Source>| source.as_ref().is_some_and(|source| *source != Source::Api);
    for daemon in plan.daemons.iter_mut().filter(|daemon| is_in_force(&daemon.summary.source)) {
        let (key, record) = (&daemon.key, &mut daemon.record);
        let Some(file) = overrides.get(key) else { continue };
        let is_known = record.api_uid.is_some() || state.inputs.daemon_sets.contains_key(key);
        if !is_known || !matches!(state.definitions.api_state(key, api), ApiState::Absent { .. }) {
            continue;
        }
        let (guard, about) = (&state.concerns.removal_guard, state.definitions.version(key));
        match guard.confirmation(key, about, observation.now) {
            Confirmation::Gone => {
                record.api_uid = None;
                state.inputs.daemon_sets.remove(key);
                state.inputs.superseded.insert(key.clone(), (*file).to_owned());
            }
            Confirmation::Unasked => daemon.actions.push(Action::Confirm { reason: Reason::OverriddenUnlisted }),
            Confirmation::NotCovered | Confirmation::StillThere | Confirmation::Failed(_) => {}
        }
    }
}
