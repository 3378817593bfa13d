//! The links by which readers see the version in force.
//!
//! Owns the names at the top of a volume. Must not touch what is mounted there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::core::volume::VolumeData;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::volumes::ownership::VolumeOwnership;

use super::DATA;

/// The top-level names that readers see, each with the owner of its link.
fn visible(volume: &VolumeData) -> BTreeMap<&str, Option<u32>> {
    let mut visible = BTreeMap::new();
    for (path, file) in &volume.files {
        let name = path.split('/').next().unwrap_or(path);
        let uid = visible.entry(name).or_insert(file.uid);
        *uid = uid.or(file.uid);
    }
    visible
}

/// Creates the links into `..data`; `true` if something changed.
pub(super) fn make_links(dir: &Dir, volume: &VolumeData, ownership: VolumeOwnership) -> Result<bool, FsError> {
    let mut changed = false;
    for (name, uid) in visible(volume) {
        let target = Path::new(DATA).join(name);
        match dir.stat(name)? {
            // A mount point of another volume: like the kubelet, leaves it and the hidden files below it.
            Some(stat) if stat.kind == FileKind::Folder => continue,
            Some(stat)
                if dir.read_link(name)?.as_deref() == Some(target.as_os_str()) && ownership.is_owned(&stat, uid) =>
            {
                continue;
            }
            Some(_) => drop(dir.unlink(name)?),
            None => {}
        }
        dir.symlink(&target, name)?;
        ownership.lenient(dir.set_owner_of(name, ownership.owner(uid)))?;
        changed = true;
    }
    Ok(changed)
}

/// Removes links to files that no longer exist, and versions that are not in force.
pub(super) fn sweep(dir: &Dir, volume: &VolumeData, version: &str) -> Result<bool, FsError> {
    let visible = visible(volume);
    let mut changed = false;
    let names = dir.names()?;
    for name in names.iter().filter(|name| name.to_str().is_none_or(|name| !visible.contains_key(name))) {
        if is_into_data(dir, name)? {
            changed |= dir.unlink(name)?;
        }
    }
    for name in names.iter().filter(|name| name.as_bytes().starts_with(b"..")) {
        if name != DATA && name != version {
            dir.remove_tree(name)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Whether `name` is a link into `..data`.
pub(in crate::node::volumes) fn is_into_data(dir: &Dir, name: &OsStr) -> Result<bool, FsError> {
    Ok(dir.read_link(name)?.is_some_and(|target| target.as_bytes().starts_with(b"..data/")))
}
