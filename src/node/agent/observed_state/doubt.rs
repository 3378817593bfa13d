//! What of an instance's data is in doubt when an agent starts.
//!
//! Owns which objects are. Must not decide what follows: planning keeps what runs as it is.

use crate::core::model::ObjectRef;
use crate::core::record::WrittenData;
use crate::core::rendering::RenderResult;

use super::ObservedState;

impl ObservedState<'_> {
    /// The objects of a rendering that the folders define, while another version may count than the one that is known:
    /// what an agent before this one wrote stays, until this one has written all volumes. The file is being changed, or
    /// what was remembered cannot be read and the API server has not listed the object yet.
    pub(super) fn doubtful<'r>(&self, rendering: &'r RenderResult) -> Vec<&'r ObjectRef> {
        let Ok(rendered) = &rendering.result else { return Vec::new() };
        let uid = rendering.identity.uid.as_str();
        let written = self.instances.get(uid).and_then(|(_, instance)| instance.data.as_ref());
        let is_whole =
            |data: &WrittenData| rendering.volumes().iter().all(|volume| data.volumes.contains(&volume.name));
        if self.state.written.contains_key(uid) && written.is_some_and(is_whole) {
            return Vec::new();
        }
        let is_doubtful = |reference: &&ObjectRef| {
            self.objects.is_folders(reference)
                && (self.observation.folders.is_restless(reference)
                    || self.state.inputs_are_lost && self.objects.is_unlisted(reference))
        };
        rendered.pod.references.iter().filter(is_doubtful).collect()
    }
}
