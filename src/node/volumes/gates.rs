//! The gates of pods that start after others.

use super::VolumeError;
use super::Volumes;
use super::clear::descend;
use super::layout;
use crate::core::render::GATE;
use crate::core::render::GATE_FILE;
use crate::core::render::open_gate;
use crate::node::fsx::Dir;
use crate::node::fsx::FsError;

impl Volumes {
    /// Closes the gate of the pod `uid`: its file goes.
    ///
    /// # Errors
    /// It could not be closed.
    pub fn close_gate(&mut self, uid: &str) -> Result<(), VolumeError> {
        self.withdraw(uid, |volume| volume != GATE)
    }

    /// Opens the gate of the pod `uid`, if it has one. A volume of that name with other files is not a gate.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn open_gate(&mut self, uid: &str) -> Result<(), VolumeError> {
        layout::check_uid(uid)?;
        let failed = |source| VolumeError::Pod { uid: uid.to_owned(), source };
        let Some(pod) = self.target.open_pod(&self.disk, uid).map_err(failed)? else { return Ok(()) };
        match self.has_gate(&pod).map_err(failed)? {
            true => self.write(uid, [&open_gate()]).map(drop),
            false => Ok(()),
        }
    }

    fn has_gate(&self, pod: &Dir) -> Result<bool, FsError> {
        let Some(volume) = descend(pod, &self.target.volumes_below_pod().join(GATE))? else {
            // Its marker stays while a gate is closed.
            let markers = self.target.markers_below_pod();
            return Ok(markers.map(|markers| descend(pod, &markers.join(GATE))).transpose()?.flatten().is_some());
        };
        let is_of_gate = |name: &str| name == GATE_FILE || name.starts_with("..");
        Ok(volume.names()?.iter().all(|name| name.to_str().is_some_and(is_of_gate)))
    }
}

#[cfg(test)]
mod tests;
