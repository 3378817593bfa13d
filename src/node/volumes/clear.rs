//! The remains of an ended pod: removes ours, leaves the rest to the kubelet.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::path::PathBuf;

use nix::errno::Errno;

use super::Cleared;
use super::TRIED;
use super::layout::VolumesRoot;
use super::write::DATA;
use super::write::is_into_data;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Shared;

/// Clears the pod `uid` below `target`.
pub(super) fn clear(disk: &Shared, target: &VolumesRoot, uid: &str) -> Result<Cleared, FsError> {
    let Some(pod) = target.open_pod(disk, uid)? else { return Ok(Cleared::Gone) };
    if let Some(at) = mount_below(disk, pod.path())? {
        return Ok(Cleared::Mounted { at });
    }
    pod.unlink(TRIED)?;
    let volumes_path = target.volumes_below_pod();
    let volumes = descend(&pod, &volumes_path)?;
    if let Some(volumes) = &volumes {
        for name in volumes.names()? {
            clear_volume(volumes, &name)?;
        }
    }
    clear_markers(target, &pod, volumes.as_ref())?;
    for path in [target.markers_below_pod(), Some(volumes_path)].into_iter().flatten() {
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            remove_if_empty(&pod, path)?;
        }
    }
    let pods = Dir::open(disk, &target.pods())?;
    if remove_if_empty(&pods, uid)? {
        return Ok(Cleared::Gone);
    }
    let left = pod.names()?.into_iter().next().map_or_else(|| pod.path().to_owned(), |name| pod.path().join(name));
    Ok(Cleared::Foreign { left })
}

/// Removes the markers of volumes that are gone, including those that an interrupted clearing removed.
fn clear_markers(target: &VolumesRoot, pod: &Dir, volumes: Option<&Dir>) -> Result<(), FsError> {
    let Some(path) = target.markers_below_pod() else { return Ok(()) };
    let Some(markers) = descend(pod, &path)? else { return Ok(()) };
    for name in markers.names()? {
        let stands = match volumes {
            Some(volumes) => volumes.stat(&name)?.is_some(),
            None => false,
        };
        if !stands && let Some(marker) = markers.child(&name)? {
            marker.unlink("ready")?;
            remove_if_empty(&markers, &name)?;
        }
    }
    Ok(())
}

/// Removes our data from the volumes of the pod `uid` that are not in `keep`.
pub(super) fn withdraw(
    disk: &Shared,
    target: &VolumesRoot,
    uid: &str,
    keep: impl Fn(&str) -> bool,
) -> Result<(), FsError> {
    let Some(pod) = target.open_pod(disk, uid)? else { return Ok(()) };
    let Some(volumes) = descend(&pod, &target.volumes_below_pod())? else { return Ok(()) };
    for name in volumes.names()?.iter().filter(|name| !name.to_str().is_some_and(&keep)) {
        clear_volume(&volumes, name)?;
    }
    Ok(())
}

/// The folder `path` below `dir`; no step follows a link.
pub(super) fn descend(dir: &Dir, path: &Path) -> Result<Option<Dir>, FsError> {
    let mut found = dir.child(".")?;
    for name in path {
        let Some(dir) = found else { return Ok(None) };
        found = dir.child(name)?;
    }
    Ok(found)
}

/// Removes the volume `name` if it has our layout.
fn clear_volume(volumes: &Dir, name: &OsString) -> Result<(), FsError> {
    if !matches!(volumes.stat(name)?, Some(stat) if stat.kind == FileKind::Folder) {
        return Ok(());
    }
    let Some(volume) = volumes.child(name)? else { return Ok(()) };
    let names = volume.names()?;
    // `..data` identifies the layout: a daemon's own emptyDir has none and is the kubelet's to remove.
    if volume.read_link(DATA)?.is_some_and(|version| version.as_bytes().starts_with(b"..")) {
        for entry in &names {
            if is_into_data(&volume, entry)? {
                volume.unlink(entry)?;
            }
        }
        // `..data` goes last, so that after a crash the volume is recognised again.
        for entry in names.iter().filter(|entry| entry.as_bytes().starts_with(b"..") && *entry != DATA) {
            volume.remove_tree(entry)?;
        }
        for entry in names.iter().filter(|entry| !entry.as_bytes().starts_with(b"..")) {
            remove_empty_tree(&volume, entry)?;
        }
        volume.unlink(DATA)?;
    }
    remove_if_empty(volumes, name).map(drop)
}

/// Removes folders below `name` that contain no files: mount points made for other volumes.
fn remove_empty_tree(dir: &Dir, name: &OsString) -> Result<(), FsError> {
    if !matches!(dir.stat(name)?, Some(stat) if stat.kind == FileKind::Folder) {
        return Ok(());
    }
    if let Some(child) = dir.child(name)? {
        for entry in child.names()? {
            remove_empty_tree(&child, &entry)?;
        }
    }
    remove_if_empty(dir, name).map(drop)
}

/// Removes the folder `name` if it is empty; `true` if nothing of that name is left.
fn remove_if_empty(dir: &Dir, name: impl AsRef<Path>) -> Result<bool, FsError> {
    match dir.remove_dir(name) {
        Ok(_) => Ok(true),
        Err(e) => match e.source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY | Errno::ENOTDIR) => Ok(false),
            _ => Err(e),
        },
    }
}

/// A mount point at or below `path`, if there is one.
fn mount_below(disk: &Shared, path: &Path) -> Result<Option<PathBuf>, FsError> {
    let path = disk.resolve(path).map_err(|e| FsError::reading(path, e.into()))?;
    let table = Path::new("/proc/self/mountinfo");
    let table = disk.load(table, u64::MAX).map_err(|e| FsError::reading(table, e))?;
    let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    Ok(mounts.map(unescape).find(|mount| mount.starts_with(&path)))
}

/// Decodes a path of the mount table, in which space, tab, line break and backslash are octal escapes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'\\').then(|| tail.get(..3)).flatten().and_then(octal);
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}
