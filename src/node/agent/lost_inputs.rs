//! When inputs that were lost are complete again.
//!
//! Owns who has to be heard. Must not decide what is kept meanwhile.

use crate::core::pass::Plan;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::observation::Observation;

/// Whether API server or folders have yet to say what they have of what is in use.
pub(super) fn is_unsaid(observation: &Observation, plan: &Plan) -> bool {
    let mut objects = plan.daemons.iter().flat_map(|daemon| &daemon.references);
    let is_unlisted = |api: &Snapshot| {
        api.lists(&Scope::DaemonSets) == 0 || objects.any(|object| api.lists(&Scope::Object(object.clone())) == 0)
    };
    observation.folders.view.is_unread() || observation.snapshot().is_some_and(is_unlisted)
}
