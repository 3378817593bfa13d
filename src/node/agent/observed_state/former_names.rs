//! What instances are rendered with that were made under a former name of the node.

use crate::core::model::DaemonSet;
use crate::core::record::Instance;
use crate::core::render::RenderOptions;

use super::ObservedState;

impl ObservedState<'_> {
    /// What an instance that was made under a former name of the node is rendered with, and a version for that.
    pub(super) fn former_options(&self, daemon_set: &DaemonSet, incarnation: u64) -> Option<(RenderOptions, u64)> {
        if self.state.made_under.is_empty() {
            return None;
        }
        let is_it = |i: &Instance| {
            i.incarnation == incarnation && i.daemon_set.as_ref().is_some_and(|own| own.key == daemon_set.key)
        };
        let made = self.instances.values().filter(|(_, i)| is_it(i));
        let name = made.filter_map(|(_, i)| self.state.made_under.get(&i.uid)).next()?;
        let version = self.inputs.options_version | 1 << 63;
        Some((RenderOptions { node_name: name.clone(), ..self.inputs.options.clone() }, version))
    }
}
