//! Owners and modes in a volume.
//!
//! Follows SetVolumeOwnership with a read-only mask.

use nix::errno::Errno;

use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Stat;

const SET_GID: u32 = 0o2000;

/// The ownership of everything in one volume, and whether it is required here.
#[derive(Clone, Copy)]
pub(super) struct VolumeOwnership {
    fs_group: Option<u32>,
    pub(super) strict: bool,
}

impl VolumeOwnership {
    /// Everything belongs to `fs_group` where there is one; `strict`: an owner that cannot be set is an error.
    pub(super) fn new(fs_group: Option<u32>, strict: bool) -> Self {
        Self { fs_group, strict }
    }

    /// The mode of a folder that the kubelet creates with `mode`, after SetVolumeOwnership.
    pub(super) fn folder_mode(self, mode: u32) -> u32 {
        if self.fs_group.is_some() { mode | SET_GID | 0o550 } else { mode }
    }

    pub(super) fn owner(self, uid: Option<u32>) -> Owner {
        // Without an fsGroup, entries belong to their creator: the kubelet runs as root, and so do we.
        let uid = uid.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
        let gid = self.fs_group.unwrap_or_else(|| nix::unistd::getegid().as_raw());
        Owner { uid: Some(uid), gid: Some(gid) }
    }

    pub(super) fn is_owned(self, stat: &Stat, uid: Option<u32>) -> bool {
        let owner = self.owner(uid);
        !self.strict || (Some(stat.uid) == owner.uid && Some(stat.gid) == owner.gid)
    }

    pub(super) fn is_folder(self, stat: &Stat, mode: u32) -> bool {
        stat.kind == FileKind::Folder && stat.mode == self.folder_mode(mode) && self.is_owned(stat, None)
    }

    /// Owners that cannot be set are ignored if they are not required.
    pub(super) fn lenient(self, result: Result<(), FsError>) -> Result<(), FsError> {
        match result {
            Err(e) if !self.strict && e.source.raw_os_error() == Some(Errno::EPERM as i32) => Ok(()),
            other => other,
        }
    }

    pub(super) fn set_folder(self, dir: &Dir, mode: u32) -> Result<(), FsError> {
        self.lenient(dir.set_owner(self.owner(None)))?;
        dir.set_mode(self.folder_mode(mode))
    }
}
