//! What is rendered of a definition that is held back because of its cost.
//!
//! Owns what stands in for its rendering. Must not decide what is held back.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::rendering::RenderResult;
use crate::core::set_aside::HeldBack;
use crate::node::agent::objects::Objects;
use crate::node::agent::render_cache::RenderCacheInputs;

use super::ObservedState;

impl ObservedState<'_> {
    /// For `daemon_set`, which is not to be rendered, and `why`: a running instance keeps getting its tokens.
    pub(super) fn held_back(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, why: &HeldBack) -> Arc<RenderResult> {
        let is_own = |i: &&Instance| i.daemon_set.as_ref().is_some_and(|d| Arc::ptr_eq(d, daemon_set));
        let runs = |i: &&Instance| i.phase == Phase::Live && i.incarnation == incarnation && is_own(i);
        match self.instances.values().map(|(_, instance)| *instance).find(runs) {
            Some(instance) => {
                let objects = Objects { live: true, has_run: true, ..self.objects };
                self.render_cache.tokens_alone(
                    daemon_set,
                    instance,
                    RenderCacheInputs { objects: &objects, ..self.inputs },
                )
            }
            None => Arc::new(RenderResult::held_back(why.to_string())),
        }
    }
}
