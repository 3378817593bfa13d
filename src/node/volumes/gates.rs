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
        self.open_where(uid, |volume| volume == GateVolume::Ours)
    }

    /// The same for a pod that has a gate for certain: one of which nothing is on this disk yet opens, too.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn open_closed_gate(&mut self, uid: &str) -> Result<(), VolumeError> {
        self.open_where(uid, |volume| volume != GateVolume::Theirs)
    }

    fn open_where(&mut self, uid: &str, opens: impl Fn(GateVolume) -> bool) -> Result<(), VolumeError> {
        layout::check_uid(uid)?;
        let failed = |source| VolumeError::Pod { uid: uid.to_owned(), source };
        let Some(pod) = self.target.open_pod(&self.disk, uid).map_err(failed)? else { return Ok(()) };
        match opens(self.gate_volume(&pod).map_err(failed)?) {
            true => self.write(uid, [&open_gate()]).map(drop),
            false => Ok(()),
        }
    }

    fn gate_volume(&self, pod: &Dir) -> Result<GateVolume, FsError> {
        let Some(volume) = descend(pod, &self.target.volumes_below_pod().join(GATE))? else {
            // Its marker stays while a gate is closed.
            let markers = self.target.markers_below_pod();
            let marker = markers.map(|markers| descend(pod, &markers.join(GATE))).transpose()?.flatten();
            return Ok(match descend(pod, &self.target.volumes_below_pod())? {
                _ if marker.is_some() => GateVolume::Ours,
                Some(_) => GateVolume::Absent,
                // Nothing is created for a pod that has ended.
                None => GateVolume::Theirs,
            });
        };
        let is_of_gate = |name: &str| name == GATE_FILE || name.starts_with("..");
        let is_ours = volume.names()?.iter().all(|name| name.to_str().is_some_and(is_of_gate));
        Ok(if is_ours { GateVolume::Ours } else { GateVolume::Theirs })
    }
}

/// What the disk has of a pod's gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateVolume {
    /// Open or closed.
    Ours,
    /// A volume of that name with files of others, or none any more.
    Theirs,
    /// No volume of that name beside others.
    Absent,
}

#[cfg(test)]
mod tests;
