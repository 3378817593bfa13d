//! Which folders and files of the state folder are trusted: those that no other user can have written.
//!
//! Must not look at what is in them.

use std::path::Path;

use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::Stat;

use super::error::CheckpointError;

/// Refuses a folder that others may write to.
pub(super) fn refuse_unsafe(path: &Path, dir: &Dir) -> Result<(), CheckpointError> {
    let stat = dir.own_stat().map_err(|source| CheckpointError::Folder { path: path.to_owned(), source })?;
    match why_unsafe(&stat, path) {
        Some((why, hint)) => Err(CheckpointError::Unsafe { path: path.to_owned(), why, hint }),
        None => Ok(()),
    }
}

/// Why nothing in a folder can be trusted, and what to do about it.
pub(super) fn why_unsafe(stat: &Stat, path: &Path) -> Option<(String, String)> {
    let hint = |why| (why, format!("chmod 0700 {}", path.display()));
    fsx::other_owner(stat, path).or_else(|| fsx::open_to_others(stat).map(hint))
}

/// Whether only we can have written the file. That others could read it does not make it untrue; the next one is written so
/// that only we can read it.
pub(super) fn trusted(stat: &Stat) -> Result<(), String> {
    if stat.kind != FileKind::File {
        return Err("is not a regular file".to_owned());
    }
    if stat.uid != nix::unistd::geteuid().as_raw() {
        return Err(format!("is owned by user {}", stat.uid));
    }
    if stat.mode & 0o022 != 0 {
        return Err(format!("can be written by other users (mode {:04o})", stat.mode));
    }
    Ok(())
}
