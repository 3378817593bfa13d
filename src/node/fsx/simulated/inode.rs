//! A file or folder of the disk in memory: as it is, and as it would be after a loss of power.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::SystemTime;

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) now: InodeVersion,
    /// As it is after a loss of power; `None`: empty.
    pub(super) synced: Option<InodeVersion>,
    /// Which folder has it, under which name; of the root of a mounted file system: that of the folder below.
    pub(super) above: Option<(u64, OsString)>,
    pub(super) file_system: u64,
}

#[derive(Clone, Debug)]
pub(super) struct InodeVersion {
    pub(super) content: InodeContent,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: SystemTime,
    pub(super) changed: SystemTime,
}

#[derive(Clone, Debug)]
pub(super) enum InodeContent {
    File(Arc<Vec<u8>>),
    Folder(BTreeMap<OsString, u64>),
    Link(PathBuf),
    /// `/dev/null`.
    Device,
}

impl InodeVersion {
    pub(super) fn new(content: InodeContent, mode: u32, now: SystemTime) -> Self {
        static OWN: LazyLock<(u32, u32)> =
            LazyLock::new(|| (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()));
        let (uid, gid) = *OWN;
        Self { content, mode, uid, gid, modified: now, changed: now }
    }
}
