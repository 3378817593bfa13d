//! The mounted file system of a folder.

use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

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

/// The identity of `folder`'s file system; `None` if the folder does not exist.
pub(super) fn of(disk: &Shared, folder: &Path) -> Option<FolderIdentity> {
    let folder = disk.resolve(folder).ok()?;
    let file_system = Dir::open(disk, &folder).and_then(|dir| dir.file_system()).ok()?;
    let mounts = disk.text("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_of(&mounts, &folder);
    let lasts = !matches!(mount.kind.as_str(), "tmpfs" | "ramfs");
    let id = match file_system {
        0 => format!("device {}", mount.device),
        id => format!("{id:x}"),
    };
    let boot = if lasts { None } else { disk.boot_id() };
    Some(FolderIdentity { kind: mount.kind, id, mount_point: mount.point, root: mount.root, boot })
}

#[derive(Debug, Default, PartialEq)]
struct Mount {
    device: String,
    root: String,
    point: String,
    kind: String,
}

/// The mount of `path`: the longest mount point above it, the last of equal ones (proc(5), mountinfo).
fn mount_of(mounts: &str, path: &Path) -> Mount {
    let mut found = Mount::default();
    let mut longest = 0;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = left.split(' ').collect();
        let [_, _, device, root, point, ..] = fields[..] else { continue };
        let point = unescape(point);
        if path.starts_with(&point) && point.len() >= longest {
            longest = point.len();
            let kind = right.split(' ').next().unwrap_or_default();
            found = Mount { device: device.to_owned(), root: unescape(root), point, kind: kind.to_owned() };
        }
    }
    found
}

/// The kernel writes spaces as octal escapes.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fsx::Real;

    #[test]
    fn the_longest_mount_point_holds_a_path() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:25 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n\
            31 22 8:1 /srv/ds /etc/a\\040b rw - ext4 /dev/sda1 rw\nbroken\n";
        let mount = |path: &str| mount_of(mounts, Path::new(path));
        assert_eq!((mount("/etc/x").point.as_str(), mount("/etc/x").kind.as_str()), ("/", "ext4"));
        assert_eq!(mount("/run/daemonlet").kind, "tmpfs");
        assert_eq!(mount("/runner").point, "/");
        assert_eq!((mount("/etc/a b/c").root.as_str(), mount("/etc/a b/c").point.as_str()), ("/srv/ds", "/etc/a b"));
    }

    #[test]
    fn a_folder_that_is_missing_has_none() {
        let disk = Real::shared();
        assert_eq!(of(&disk, Path::new("/nowhere/at/all")), None);
        assert_eq!(of(&disk, Path::new("/proc")).unwrap().kind, "proc");
    }
}
