//! The file systems of the folders that the agent writes to.
//!
//! Owns how much space is enough, and which file systems survive a power loss.

use super::Finding;

/// Too little for a checkpoint of many daemons with their data.
const BAD_BYTES: u64 = 64 << 20;
/// Below this percentage of free space, a warning (the kubelet evicts at 10 to 15).
const WARN_PERCENT: u64 = 5;
/// Fewer inodes than this.
const BAD_INODES: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFolder {
    /// The configuration's key.
    pub key: &'static str,
    /// The folder, or its nearest existing parent.
    pub path: String,
    /// Why nothing is known about it, if so.
    pub error: Option<String>,
    /// The file system's type, as in the mount table: `ext4`.
    pub kind: String,
    /// Bytes free for users other than root.
    pub free_bytes: u64,
    pub bytes: u64,
    /// 0: the file system does not count inodes.
    pub free_inodes: u64,
    /// 0: the file system does not count inodes.
    pub inodes: u64,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Whether an ext4 has its journal; `None`: it is not ext4.
    pub ext4_journal: Option<bool>,
}

/// All checks of disks: one a folder.
pub fn examine(folders: &[DiskFolder]) -> Vec<Finding> {
    folders.iter().map(folder).collect()
}

fn folder(folder: &DiskFolder) -> Finding {
    let check = format!("disk of {}", folder.key);
    let path = &folder.path;
    if let Some(error) = &folder.error {
        return Finding::bad(
            &check,
            format!("{path}: {error}"),
            format!("correct {}, or mount what is missing", folder.key),
        );
    }
    if folder.read_only {
        return Finding::bad(
            &check,
            format!("{path} is mounted read-only"),
            "remount it read-write; if a disk error caused this, see `dmesg`",
        );
    }
    let mib = folder.free_bytes >> 20;
    if folder.free_bytes < BAD_BYTES {
        return Finding::bad(
            &check,
            format!("{path} has {mib} MiB left"),
            "free space: nothing new can be written safely",
        );
    }
    if folder.inodes > 0 && folder.free_inodes < BAD_INODES {
        return Finding::bad(
            &check,
            format!("{path} has {} inodes left of {}", folder.free_inodes, folder.inodes),
            format!("see what has so many files with `du --inodes -x {path}`: no new ones can be created"),
        );
    }
    if matches!(folder.kind.as_str(), "tmpfs" | "ramfs") {
        return volatile(&check, folder);
    }
    if folder.ext4_journal == Some(false) || matches!(folder.kind.as_str(), "ext2" | "vfat" | "exfat" | "msdos") {
        return Finding::warn(
            &check,
            format!("{path} is {} without a journal: a power loss may damage it", folder.kind),
            "use ext4 with a journal, xfs or btrfs",
        );
    }
    if folder.free_bytes.saturating_mul(100) < folder.bytes.saturating_mul(WARN_PERCENT) {
        return Finding::warn(
            &check,
            format!("{path} has {mib} MiB left, less than {WARN_PERCENT} %"),
            "free space: a full disk stops updates, but never what runs",
        );
    }
    Finding::ok(&check, format!("{path}: {}, {mib} MiB free", folder.kind))
}

/// A folder whose content is lost at boot.
fn volatile(check: &str, folder: &DiskFolder) -> Finding {
    let text = format!("{} is {}: it is empty after a boot", folder.path, folder.kind);
    match folder.key {
        "state-dir" => Finding::bad(
            check,
            format!("{text}, so nothing runs then until the API server answers"),
            "put state-dir on a disk",
        ),
        _ => Finding::warn(check, text, "at each boot the agent rewrites it from its checkpoint"),
    }
}
