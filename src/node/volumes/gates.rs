//! The gates of pods that start after others, opened without knowing who waits for whom.

use super::VolumeError;
use super::Volumes;
use super::layout;
use crate::core::render::GATE;
use crate::core::render::open_gate;

impl Volumes {
    /// Opens every gate. The kubelet tries the pods again by itself.
    ///
    /// # Errors
    /// The last gate that could not be opened; the others are.
    pub fn open_gates(&mut self) -> Result<(), VolumeError> {
        let pods = self.disk.list(&self.target.pods()).unwrap_or_default();
        let mut result = Ok(());
        for uid in pods.iter().filter_map(|name| name.to_str()).filter(|uid| layout::check_uid(uid).is_ok()) {
            let Ok(Some(pod)) = self.target.open_pod(&self.disk, uid) else { continue };
            // The marker stays while the gate is closed.
            let places = [self.target.markers_below_pod(), Some(self.target.volumes_below_pod())];
            let has_gate = places.into_iter().flatten().any(|place| matches!(pod.stat(place.join(GATE)), Ok(Some(_))));
            if has_gate && let Err(error) = self.write(uid, [&open_gate()]) {
                result = Err(error);
            }
        }
        result
    }
}
