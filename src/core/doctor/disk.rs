//! The file systems below the folders that are written.
//!
//! Owns how much room is enough, and which file systems survive a pulled plug.

use super::Finding;

/// Less than this is too little to go on: a checkpoint of many daemons with their data.
const BAD_BYTES: u64 = 64 << 20;
/// Less than this part, in percent, is worth a word (the kubelet evicts at 10 to 15).
const WARN_PERCENT: u64 = 5;
/// Fewer inodes than this.
const BAD_INODES: u64 = 1_000;

/// One folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFolder {
    /// The configuration's key.
    pub key: &'static str,
    /// The folder, or the nearest one above it that exists.
    pub path: String,
    /// Why nothing is known, if so.
    pub error: Option<String>,
    /// The file system's kind, as the mount table has it: `ext4`.
    pub kind: String,
    /// Bytes free for others than root, and all.
    pub free_bytes: u64,
    /// All bytes.
    pub bytes: u64,
    /// Inodes free.
    pub free_inodes: u64,
    /// All inodes; 0: the file system does not count them.
    pub inodes: u64,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Whether an ext4 has its journal; none: it is no ext4.
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
            "mount it for writing; after a disk error look into `dmesg`",
        );
    }
    let mib = folder.free_bytes >> 20;
    if folder.free_bytes < BAD_BYTES {
        return Finding::bad(
            &check,
            format!("{path} has {mib} MiB left"),
            "make room: nothing new can be written safely",
        );
    }
    if folder.inodes > 0 && folder.free_inodes < BAD_INODES {
        return Finding::bad(
            &check,
            format!("{path} has {} inodes left of {}", folder.free_inodes, folder.inodes),
            "remove files: no new ones can be made",
        );
    }
    if matches!(folder.kind.as_str(), "tmpfs" | "ramfs") {
        return volatile(&check, folder);
    }
    if folder.ext4_journal == Some(false) || matches!(folder.kind.as_str(), "ext2" | "vfat" | "exfat" | "msdos") {
        return Finding::warn(
            &check,
            format!("{path} is {} without a journal: a pulled plug may leave it damaged", folder.kind),
            "use ext4 with a journal, xfs or btrfs",
        );
    }
    if folder.free_bytes.saturating_mul(100) < folder.bytes.saturating_mul(WARN_PERCENT) {
        return Finding::warn(
            &check,
            format!("{path} has {mib} MiB left, less than {WARN_PERCENT} %"),
            "make room: a full disk stops updates, never what runs",
        );
    }
    Finding::ok(&check, format!("{path}: {}, {mib} MiB free", folder.kind))
}

/// A folder whose content is gone after a boot.
fn volatile(check: &str, folder: &DiskFolder) -> Finding {
    let text = format!("{} is {}: it is empty after a boot", folder.path, folder.kind);
    match folder.key {
        "state-dir" => Finding::bad(
            check,
            format!("{text}, and nothing runs then before the API server answers"),
            "put state-dir onto a disk",
        ),
        _ => Finding::warn(check, text, "the agent writes it anew from its checkpoint at each boot"),
    }
}
