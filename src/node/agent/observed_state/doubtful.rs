//! What an instance needs of which another version may count than the one that is known.
//!
//! Owns when that is so. Must not decide what follows.

use crate::core::model::ObjectRef;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;

use super::ObservedState;

/// An object of which no source has said anything yet.
pub(super) fn missing_object(reference: &ObjectRef) -> Missing {
    Missing {
        kind: reference.kind.as_str().to_owned(),
        namespace: reference.key.namespace.clone(),
        name: reference.key.name.clone(),
        key: String::new(),
    }
}

impl ObservedState<'_> {
    /// The objects of a rendering that the folders define, while another version may count than the one that is known:
    /// what an agent before this one wrote stays. The file is being changed, or what was remembered cannot be read and
    /// the API server has not listed the object yet.
    pub(super) fn doubtful<'r>(&self, rendering: &'r RenderResult) -> Vec<&'r ObjectRef> {
        let Ok(rendered) = &rendering.result else { return Vec::new() };
        if self.state.written.contains_key(&rendering.identity.uid) {
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
