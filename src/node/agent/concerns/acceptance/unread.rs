//! Manifests that the kubelet cannot read, such as one that was cut off, or lost, on a disk with errors.
//!
//! Owns since when the kubelet can: what it cannot read it has not rejected.

use crate::core::record::Instance;
use crate::core::time::Timestamp;

use super::Acceptance;
use super::Observation;

impl Acceptance {
    /// Since when the manifest of `instance` can be read; the beginning of time: as long as it is there.
    pub(super) fn read_since(&mut self, instance: &Instance, observation: &Observation) -> Timestamp {
        let scan = observation.manifests.current();
        if scan.is_some_and(|scan| !scan.ours.values().any(|manifest| manifest.uid == instance.uid)) {
            self.unread.insert(instance.uid.clone(), observation.now);
        }
        let at = self.unread.get(&instance.uid).copied().unwrap_or_default();
        observation.boot.present(at, observation.now).min(observation.now)
    }
}
