//! The mounted file system of a folder.

use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

use crate::core::mounts::MountTable;
use crate::node::fsx::Dir;
use crate::node::fsx::Shared;

/// A mounted file system, distinguished from others across boots as well as the kernel allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FolderIdentity {
    /// Its type, such as `ext4`.
    pub kind: String,
    /// Its `statvfs` identity; the device number if it has none.
    pub id: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Which part of it is mounted there (bind mounts).
    pub root: String,
    /// The boot that it belongs to, if it does not survive one (`tmpfs`).
    pub boot: Option<String>,
}

impl FolderIdentity {
    /// Whether this file system is not mounted where `now` is: what is there now lies below its mount point.
    pub(super) fn is_missing_on(&self, now: &Self) -> bool {
        let is_deeper =
            self.mount_point != now.mount_point && Path::new(&self.mount_point).starts_with(&now.mount_point);
        is_deeper && self.id != now.id
    }
}

/// The identity of `folder`'s file system; `None` if the folder does not exist.
pub(super) fn of(disk: &Shared, folder: &Path) -> Option<FolderIdentity> {
    let folder = disk.resolve(folder).ok()?;
    let file_system = Dir::open(disk, &folder).and_then(|dir| dir.file_system()).ok()?;
    let mounts = disk.text("/proc/self/mountinfo").unwrap_or_default();
    let mount = MountTable::parse(&mounts).mount_of(&folder).cloned().unwrap_or_default();
    let lasts = !matches!(mount.kind, "tmpfs" | "ramfs");
    let id = match file_system {
        0 => format!("device {}", mount.device),
        id => format!("{id:x}"),
    };
    let boot = if lasts { None } else { disk.boot_id() };
    let (mount_point, root) = (mount.point.into_owned(), mount.root.into_owned());
    Some(FolderIdentity { kind: mount.kind.to_owned(), id, mount_point, root, boot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fsx::Real;

    #[test]
    fn a_folder_that_is_missing_has_none() {
        let disk = Real::shared();
        assert_eq!(of(&disk, Path::new("/nowhere/at/all")), None);
        assert_eq!(of(&disk, Path::new("/proc")).unwrap().kind, "proc");
    }
}
