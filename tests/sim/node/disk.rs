//! What the world does to single files, and where faults of the disk are.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Doing;
use daemonlet::simulation::Links;
use daemonlet::simulation::Owner;
use daemonlet::simulation::Simulated;
use nix::errno::Errno;

use crate::moves::Fault;

use super::FOLDER;
use super::KUBELET;
use super::MANIFESTS;
use super::STATE;

/// Where a volume's data is.
pub(crate) fn volume_path(uid: &str, volume: &str) -> PathBuf {
    Path::new(KUBELET).join("pods").join(uid).join("volumes/kubernetes.io~empty-dir").join(volume)
}

pub(super) fn second_file(daemon: u8) -> String {
    format!("{FOLDER}/aa-{daemon}.yaml")
}

/// A static pod that is not daemonlet's.
pub(crate) fn foreign() -> &'static str {
    "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: kube-system, uid: foreign}\nspec: {containers: [{name: e, image: e}]}\n"
}

pub(super) fn places(fault: Fault) -> &'static [(Doing, &'static str, Errno)] {
    match fault {
        Fault::StateReadOnly => &[
            (Doing::Create, STATE, Errno::EROFS),
            (Doing::Rename, STATE, Errno::EROFS),
            (Doing::Remove, STATE, Errno::EROFS),
            (Doing::Write, STATE, Errno::EROFS),
        ],
        Fault::StateFull => &[(Doing::Create, STATE, Errno::ENOSPC), (Doing::Write, STATE, Errno::ENOSPC)],
        Fault::ManifestsFull => &[(Doing::Create, MANIFESTS, Errno::ENOSPC), (Doing::Write, MANIFESTS, Errno::ENOSPC)],
        Fault::ManifestsUnreadable => &[(Doing::Read, MANIFESTS, Errno::EIO), (Doing::Open, MANIFESTS, Errno::EIO)],
        Fault::PodsFull => &[(Doing::Create, KUBELET, Errno::ENOSPC), (Doing::Write, KUBELET, Errno::ENOSPC)],
        Fault::StateBroken => &[(Doing::Write, STATE, Errno::EIO), (Doing::Sync, STATE, Errno::EIO)],
        Fault::ManifestsReadOnly => &[
            (Doing::Create, MANIFESTS, Errno::EROFS),
            (Doing::Rename, MANIFESTS, Errno::EROFS),
            (Doing::Remove, MANIFESTS, Errno::EROFS),
            (Doing::Write, MANIFESTS, Errno::EROFS),
            (Doing::SetAttributes, MANIFESTS, Errno::EROFS),
        ],
        Fault::ManifestsBroken => &[(Doing::Write, MANIFESTS, Errno::EIO), (Doing::Sync, MANIFESTS, Errno::EIO)],
        Fault::PodsReadOnly => &[
            (Doing::Create, KUBELET, Errno::EROFS),
            (Doing::Rename, KUBELET, Errno::EROFS),
            (Doing::Remove, KUBELET, Errno::EROFS),
            (Doing::Write, KUBELET, Errno::EROFS),
            (Doing::SetAttributes, KUBELET, Errno::EROFS),
        ],
        Fault::PodsBroken => &[(Doing::Write, KUBELET, Errno::EIO), (Doing::Sync, KUBELET, Errno::EIO)],
        Fault::FolderUnreadable => &[(Doing::Open, FOLDER, Errno::EIO), (Doing::Read, FOLDER, Errno::EIO)],
    }
}

pub(super) fn chmod(disk: &Arc<Simulated>, path: &Path, mode: u32) {
    let file = disk.open_file(&DiskHandle::Start, path, Links::Refuse);
    file.and_then(|file| disk.set_mode(&file, mode)).unwrap_or_default();
}

/// Gives the file to the user `nobody`.
pub(super) fn give(disk: &Arc<Simulated>, path: &Path) {
    let nobody = Owner { uid: Some(65_534), gid: None };
    disk.set_owner_at(&DiskHandle::Start, path, nobody).unwrap_or_default();
}

/// As an editor saves: a new file takes the place of the old one.
pub(super) fn replace(disk: &Arc<Simulated>, path: &Path, data: &[u8]) {
    let aside = path.with_file_name(".aside");
    disk.put(&aside, data);
    disk.rename(&DiskHandle::Start, &aside, &DiskHandle::Start, path).unwrap_or_default();
    if let Ok(folder) = disk.open_folder(&DiskHandle::Start, path.parent().unwrap_or(path), Links::Follow) {
        disk.sync(&folder).unwrap_or_default();
    }
}

/// As `>` does: the same file with another content.
pub(super) fn overwrite(disk: &Arc<Simulated>, path: &Path, data: &[u8]) {
    disk.overwrite(path, data);
}

pub(super) fn link(disk: &Arc<Simulated>, path: &Path, target: &str) {
    disk.unlink(&DiskHandle::Start, path).unwrap_or_default();
    disk.create_link(Path::new(target), &DiskHandle::Start, path).unwrap_or_default();
    if let Ok(folder) = disk.open_folder(&DiskHandle::Start, path.parent().unwrap_or(path), Links::Follow) {
        disk.sync(&folder).unwrap_or_default();
    }
}

pub(crate) fn base64(data: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(data)
}

pub(crate) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
