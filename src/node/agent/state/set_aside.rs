//! Definitions of tenants that cost too much to work on.
//!
//! Owns how what was spent goes into the state, and which definitions are held back. Must not measure anything:
//! `super::super::inputs` does.

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::policy::Policy;
use crate::core::set_aside::HeldBack;
use crate::node::agent::log::Log;
use crate::node::agent::observation::Observation;
use crate::node::api::Presence;

use super::AgentState;

/// Whether `daemon_set` is of a tenant: of the API, in a namespace that is not trusted.
pub(in crate::node::agent) fn is_tenants(policy: &Policy, daemon_set: &DaemonSet) -> bool {
    policy.confines(daemon_set).is_some()
}

impl AgentState {
    /// Takes what was spent, and forgets the daemons that are gone.
    pub(super) fn follow_spent(&mut self, observation: &Observation, log: &mut Log) {
        for line in self.set_aside.observe(&observation.spent) {
            log.warn(line);
        }
        if let Some(api) = observation.snapshot() {
            let is_gone =
                |key: &ObjectKey| matches!(api.presence(key), Presence::Deleted { .. } | Presence::ListedAbsent { .. });
            self.set_aside.retain(|key| !is_gone(key));
        }
    }

    /// Whether the definition of a DaemonSet of the API is of a tenant and is held back; why.
    pub(in crate::node::agent) fn held_back(
        &self,
        observation: &Observation,
        daemon_set: &DaemonSet,
    ) -> Option<HeldBack> {
        let is_of_api = daemon_set.source == Source::Api;
        if !is_of_api || !is_tenants(&self.policy, daemon_set) {
            return None;
        }
        self.set_aside.holds_back(daemon_set, &observation.turn)
    }
}
