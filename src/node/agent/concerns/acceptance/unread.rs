//! Manifests that the kubelet cannot read, such as one that was cut off on a disk with errors.
//!
//! Owns since when the kubelet can: what it cannot read it has not rejected.

use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Timestamp;

use super::Acceptance;
use super::Observation;

impl Acceptance {
    /// Since when the manifest of `instance` can be read; the beginning of time: as long as it is there.
    pub(super) fn read_since(
        &mut self,
        record: &DaemonRecord,
        instance: &Instance,
        observation: &Observation,
    ) -> Timestamp {
        let scan = observation.manifests.current();
        if scan.is_some_and(|scan| scan.is_unreadable(&record.key.namespace, &instance.pod_name)) {
            self.unread.insert(instance.uid.clone(), observation.now);
        }
        let at = self.unread.get(&instance.uid).copied().unwrap_or_default();
        observation.boot.present(at, observation.now).min(observation.now)
    }
}
