//! The location of a pod's volumes below a root, and the valid names there.

use std::path::Path;
use std::path::PathBuf;

use super::VolumeError;
use crate::core::volume::VolumeData;
use crate::core::volume::is_entry_name;
use crate::core::volume::unwritable;
use crate::node::fsx::Dir;
use crate::node::fsx::FsError;
use crate::node::fsx::Shared;

/// The kubelet's folder of emptyDirs, for volumes and for readiness markers.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// A root below which pods have their volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesRoot {
    dir: PathBuf,
    kubelet: bool,
    strict_ownership: bool,
}

impl VolumesRoot {
    /// A kubelet's root folder: `DIR/pods/<uid>/volumes/kubernetes.io~empty-dir/<volume>/`. If an owner cannot be set,
    /// writing fails.
    pub fn kubelet(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), kubelet: true, strict_ownership: true }
    }

    /// A plain folder for inspection: `DIR/volumes/<uid>/<volume>/`. Owners that this process may not set are ignored.
    pub fn plain(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), kubelet: false, strict_ownership: false }
    }

    /// Whether an owner that cannot be set is an error.
    pub(super) fn strict_ownership(&self) -> bool {
        self.strict_ownership
    }

    /// The folder that holds the pods' folders.
    pub(super) fn pods(&self) -> PathBuf {
        self.dir.join(if self.kubelet { "pods" } else { "volumes" })
    }

    /// The volumes' folder below a pod's folder; empty: the pod's folder itself.
    pub(super) fn volumes_below_pod(&self) -> PathBuf {
        if self.kubelet { Path::new("volumes").join(EMPTY_DIR) } else { PathBuf::new() }
    }

    /// The readiness markers' folder below a pod's folder (volume/util.SetReady), if a kubelet reads it.
    pub(super) fn markers_below_pod(&self) -> Option<PathBuf> {
        self.kubelet.then(|| Path::new("plugins").join(EMPTY_DIR))
    }

    /// The pod's folder, if it exists.
    pub(super) fn open_pod(&self, disk: &Shared, uid: &str) -> Result<Option<Dir>, FsError> {
        match Dir::open(disk, &self.pods()) {
            Ok(pods) => pods.child(uid),
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The pod's folder, created as by the kubelet (makePodDataDirs: 0750) if it is missing.
    pub(super) fn make_pod(&self, disk: &Shared, uid: &str) -> Result<Dir, FsError> {
        self.make_pod_in(&self.make_pods(disk)?, uid)
    }

    /// The folder of all pods, created if it is missing.
    pub(super) fn make_pods(&self, disk: &Shared) -> Result<Dir, FsError> {
        Ok(Dir::open_or_create(disk, &self.pods(), 0o750)?.0)
    }

    /// As [`VolumesRoot::make_pod`], in the folder of all pods.
    pub(super) fn make_pod_in(&self, pods: &Dir, uid: &str) -> Result<Dir, FsError> {
        Ok(pods.child_or_create(uid, 0o750)?.0)
    }

    /// The volumes' folder of a pod, created if it is missing: `volumes` 0750 (makePodDataDirs), the plugin's folder
    /// 0755 (the emptyDir plugin's MkdirAll with the usual umask).
    pub(super) fn make_volumes(&self, pod: &Dir) -> Result<Dir, FsError> {
        if !self.kubelet {
            return pod.child(".")?.ok_or_else(|| pod.missing("."));
        }
        let (volumes, _) = pod.child_or_create("volumes", 0o750)?;
        Ok(volumes.child_or_create(EMPTY_DIR, 0o755)?.0)
    }

    /// The pod's folder and all folders between it and its volumes, innermost first.
    pub(super) fn above(&self, pod: Dir) -> Result<Vec<Dir>, FsError> {
        let mut above = Vec::new();
        for path in self.volumes_below_pod().ancestors().filter(|path| !path.as_os_str().is_empty()) {
            above.extend(pod.child(path)?);
        }
        above.push(pod);
        Ok(above)
    }

    /// The readiness marker's folder of `volume`, created if it is missing (0750 each).
    pub(super) fn make_marker(&self, pod: &Dir, volume: &str) -> Result<Option<Dir>, FsError> {
        if !self.kubelet {
            return Ok(None);
        }
        let (plugins, _) = pod.child_or_create("plugins", 0o750)?;
        let (empty_dirs, _) = plugins.child_or_create(EMPTY_DIR, 0o750)?;
        let (marker, _) = empty_dirs.child_or_create(volume, 0o750)?;
        Ok(Some(marker))
    }
}

/// Refuses a UID that is no single entry name.
pub(super) fn check_uid(uid: &str) -> Result<(), VolumeError> {
    if is_entry_name(uid) { Ok(()) } else { Err(VolumeError::Uid { uid: uid.to_owned() }) }
}

/// Refuses names that would leave the volume or clash with its versions, as AtomicWriter's validatePath does;
/// rendering has refused them already, with the field's name.
pub(super) fn check_volume(uid: &str, volume: &VolumeData) -> Result<(), VolumeError> {
    let fail =
        |path: &str| VolumeError::Path { uid: uid.to_owned(), volume: volume.name.clone(), path: path.to_owned() };
    if !is_entry_name(&volume.name) {
        return Err(fail(&volume.name));
    }
    for path in volume.files.keys().chain(&volume.nested_mount_points) {
        if unwritable(path).is_some() {
            return Err(fail(path));
        }
    }
    Ok(())
}
