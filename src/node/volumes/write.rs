//! One volume: compares it with the disk, and publishes a new version if they differ.
//!
//! Follows AtomicWriter.Write, and what the configMap, secret and projected plugins do around it
//! (emptyDir's setupDir, MakeNestedMountpoints).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use nix::errno::Errno;

use super::layout::VolumesRoot;
use super::ownership::VolumeOwnership;
use crate::clock;
use crate::core::volume::VolumeData;
use crate::core::volume::VolumeFile;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Stamp;
use crate::node::fsx::Unsynced;

mod links;

pub(super) use links::is_into_data;
use links::make_links;
use links::sweep;

/// The link that names the version in force.
pub(super) const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
const READY: &str = "ready";
const PERMISSIONS: u32 = 0o7777;

/// What was done to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeChange {
    /// Nothing.
    None,
    /// Links, modes or the marker were repaired.
    Repaired,
    /// A new version was switched in.
    Published,
    /// The first version was switched in; it is not synced before everything else is.
    First,
}

/// Gives `volume` of the pod with the folder `pod` the wanted content; returns the states to remember.
///
/// What must be synced before it can be relied on goes to `unsynced`. A version that replaces another one is synced
/// before it is switched in, because a pod may be reading. The first one is not: no manifest refers to it yet.
pub(super) fn write(
    target: &VolumesRoot,
    pod: &Dir,
    volume: &VolumeData,
    unsynced: &mut Unsynced,
) -> Result<(VolumeChange, Vec<(PathBuf, Stamp)>), FsError> {
    let ownership = VolumeOwnership::new(volume.fs_group, target.strict_ownership());
    let volumes = target.make_volumes(pod)?;
    if volume.keeps_others {
        let version = volumes.child(&volume.name)?.map_or(Ok(None), |dir| current_version(&dir))?;
        return match version {
            Some((_, version)) => write(target, pod, &with_others(&version, volume)?, unsynced),
            None => Ok((VolumeChange::None, Vec::new())),
        };
    }
    let (dir, is_new) = volumes.child_or_create(&volume.name, 0o777)?;
    let mut change = VolumeChange::None;
    if !ownership.is_folder(&dir.own_stat()?, 0o777) {
        ownership.set_folder(&dir, 0o777)?;
        change = VolumeChange::Repaired;
    }
    if make_mount_points(&dir, volume, ownership)? {
        change = VolumeChange::Repaired;
    }

    // A new folder contains neither a version nor anything to remove.
    let current = if is_new { None } else { current_version(&dir)? };
    let holds = match &current {
        Some((_, version)) => version_holds(version, volume, ownership)?,
        None => false,
    };
    let version_name = match current {
        Some((name, _)) if holds => name,
        Some(_) => {
            change = VolumeChange::Published;
            publish(&dir, volume, ownership, None, is_new)?
        }
        None => {
            change = VolumeChange::First;
            publish(&dir, volume, ownership, Some(unsynced), is_new)?
        }
    };
    if make_links(&dir, volume, ownership)? | (!is_new && sweep(&dir, volume, &version_name)?) {
        change = change.max_with(VolumeChange::Repaired);
    }
    // Last: with the marker in place the kubelet considers the volume set up, and never applies the fsGroup itself
    // (emptyDir's SetUpAt), which would give files wider modes than the data's own plugin does.
    if let Some(marker) = target.make_marker(pod, &volume.name)?
        && marker.stat(READY)?.is_none()
    {
        marker.create_file(READY, b"", 0o644, Owner::default())?;
        change = change.max_with(VolumeChange::Repaired);
    }
    let stamps = stamps(target, pod, volume, &version_name)?;
    if change != VolumeChange::None {
        unsynced.add_dir(dir, matches!(change, VolumeChange::Published | VolumeChange::First));
    }
    Ok((change, stamps))
}

impl VolumeChange {
    fn max_with(self, other: VolumeChange) -> VolumeChange {
        if matches!(self, VolumeChange::Published | VolumeChange::First) { self } else { other }
    }
}

/// The version that `..data` points to, if that is a folder of the volume.
fn current_version(dir: &Dir) -> Result<Option<(String, Dir)>, FsError> {
    let Some(target) = dir.read_link(DATA)? else { return Ok(None) };
    let Some(name) = target.to_str().filter(|name| name.starts_with("..") && !name.contains('/') && *name != "..")
    else {
        return Ok(None);
    };
    match dir.stat(name)? {
        Some(stat) if stat.kind == FileKind::Folder => Ok(dir.child(name)?.map(|version| (name.to_owned(), version))),
        _ => Ok(None),
    }
}

/// `volume` with the files of `version` that it does not have.
fn with_others(version: &Dir, volume: &VolumeData) -> Result<VolumeData, FsError> {
    let mut files = BTreeMap::new();
    let mut open = vec![(String::new(), version.child(".")?)];
    while let Some((prefix, dir)) = open.pop() {
        let Some(dir) = dir else { continue };
        for name in dir.names()? {
            let (Some(name), Some(stat)) = (name.to_str(), dir.stat(&name)?) else { continue };
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            if stat.kind == FileKind::Folder {
                open.push((path, dir.child(name)?));
            } else if let Some(data) = dir.read_file(name, stat.size() + 1)?.filter(|_| stat.kind == FileKind::File) {
                files.insert(path, VolumeFile { data: data.into(), mode: stat.mode, uid: Some(stat.uid) });
            }
        }
    }
    files.extend(volume.files.clone());
    Ok(VolumeData { files, keeps_others: false, ..volume.clone() })
}

/// Every folder below a version that the files of a volume need.
fn folders(volume: &VolumeData) -> BTreeSet<&str> {
    let mut folders = BTreeSet::new();
    for path in volume.files.keys() {
        for (at, _) in path.match_indices('/') {
            folders.insert(&path[..at]);
        }
    }
    folders
}

/// Whether `version` contains exactly the files and folders of `volume`.
fn version_holds(version: &Dir, volume: &VolumeData, ownership: VolumeOwnership) -> Result<bool, FsError> {
    if !ownership.is_folder(&version.own_stat()?, 0o755) {
        return Ok(false);
    }
    let folders = folders(volume);
    let mut found = 0;
    let mut open = vec![(String::new(), None)];
    while let Some((prefix, dir)) = open.pop() {
        let dir: &Dir = dir.as_ref().unwrap_or(version);
        for name in dir.names()? {
            let Some(name) = name.to_str() else { return Ok(false) };
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            if let Some(file) = volume.files.get(&path) {
                if !file_holds(dir, name, file, ownership)? {
                    return Ok(false);
                }
                found += 1;
            } else if folders.contains(path.as_str()) {
                let Some(child) = dir.child(name).ok().flatten() else { return Ok(false) };
                if !ownership.is_folder(&child.own_stat()?, 0o755) {
                    return Ok(false);
                }
                open.push((path, Some(child)));
            } else {
                return Ok(false);
            }
        }
    }
    Ok(found == volume.files.len())
}

fn file_holds(dir: &Dir, name: &str, file: &VolumeFile, ownership: VolumeOwnership) -> Result<bool, FsError> {
    let Some(stat) = dir.stat(name)? else { return Ok(false) };
    if stat.kind != FileKind::File
        || stat.mode != file.mode & PERMISSIONS
        || stat.size() != file.data.len() as u64
        || !ownership.is_owned(&stat, file.uid)
    {
        return Ok(false);
    }
    let limit = file.data.len() as u64 + 1;
    match dir.read_file(name, limit) {
        Ok(data) => Ok(data.is_some_and(|data| *data == *file.data)),
        // A token that belongs to its reader: a process that may not read it writes it again.
        Err(e) if e.source.raw_os_error() == Some(Errno::EACCES as i32) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes the first version from force: it may not be on stable storage, and the next write must not accept it.
pub(super) fn withdraw(target: &VolumesRoot, pod: &Dir, volume: &str) {
    if let Ok(Some(dir)) = pod.child(target.volumes_below_pod().join(volume)) {
        // If even this fails, the data is later accepted although it was not synced; after a power loss the first
        // check compares all of it.
        let _ = dir.unlink(DATA);
    }
}

/// Writes a new version and, once it is synced (unless it goes to `later`), switches `..data` to it. `is_new`: the
/// volume's folder is new, without `..data`.
fn publish(
    dir: &Dir,
    volume: &VolumeData,
    ownership: VolumeOwnership,
    later: Option<&mut Unsynced>,
    is_new: bool,
) -> Result<String, FsError> {
    let (name, version) = new_version(dir)?;
    let filled = match later {
        Some(later) => fill(version, volume, ownership, later),
        None => {
            let mut written = Unsynced::default();
            fill(version, volume, ownership, &mut written).and_then(|()| written.sync(|| Ok(Vec::new()), || {}))
        }
    };
    let result = filled.and_then(|()| {
        if is_new {
            dir.symlink(Path::new(&name), DATA)?;
            return ownership.lenient(dir.set_owner_of(DATA, ownership.owner(None)));
        }
        // A crash may have left the link; it would make the kubelet fail for ever.
        dir.unlink(NEW_DATA)?;
        dir.symlink(Path::new(&name), NEW_DATA)?;
        ownership.lenient(dir.set_owner_of(NEW_DATA, ownership.owner(None)))?;
        if matches!(dir.stat(DATA)?, Some(stat) if stat.kind == FileKind::Folder) {
            dir.remove_tree(DATA)?;
        }
        dir.rename(NEW_DATA, dir, DATA)
    });
    if let Err(e) = result {
        // The old version is still in force. What cannot be removed now is removed next time.
        let _ = dir.unlink(if is_new { DATA } else { NEW_DATA });
        let _ = dir.remove_tree(&name);
        return Err(e);
    }
    Ok(name)
}

/// A new folder for a version, with a name in the kubelet's format.
fn new_version(dir: &Dir) -> Result<(String, Dir), FsError> {
    let now = clock::exact();
    let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S");
    let mut digits = now.subsec_nanosecond().unsigned_abs();
    loop {
        let name = format!("{stamp}.{digits}");
        if let Some(version) = dir.create_child(&name, 0o755)? {
            return Ok((name, version));
        }
        digits = digits.wrapping_add(1);
    }
}

fn fill(version: Dir, volume: &VolumeData, ownership: VolumeOwnership, unsynced: &mut Unsynced) -> Result<(), FsError> {
    ownership.set_folder(&version, 0o755)?;
    let mut opened: BTreeMap<&str, Dir> = BTreeMap::new();
    // Sorted: a folder comes before its content.
    for folder in folders(volume) {
        let (parent, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let (dir, _) = opened.get(parent).unwrap_or(&version).child_or_create(name, 0o755)?;
        ownership.set_folder(&dir, 0o755)?;
        opened.insert(folder, dir);
    }
    for (path, file) in &volume.files {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = opened.get(parent).unwrap_or(&version);
        let owner = ownership.owner(file.uid);
        let written = match dir.create_file(name, &file.data, file.mode, owner) {
            Err(e) if !ownership.strict && e.source.raw_os_error() == Some(Errno::EPERM as i32) => {
                dir.unlink(name)?;
                dir.create_file(name, &file.data, file.mode, Owner::default())?
            }
            other => other?,
        };
        // File by file, not syncfs(2), which would wait for every other writer of the node's disk.
        unsynced.add_file(written);
    }
    opened.into_values().for_each(|dir| unsynced.add_dir(dir, true));
    unsynced.add_dir(version, true);
    Ok(())
}

/// Creates the folders on which other volumes are mounted; `true` if one was missing.
fn make_mount_points(dir: &Dir, volume: &VolumeData, ownership: VolumeOwnership) -> Result<bool, FsError> {
    let mut changed = false;
    for path in &volume.nested_mount_points {
        let mut below: Option<Dir> = None;
        for name in path.split('/') {
            let parent = below.as_ref().unwrap_or(dir);
            // Inside the data (a link of ours): the runtime creates it or fails, as with the kubelet.
            if parent.read_link(name)?.is_some() {
                break;
            }
            let (child, made) = parent.child_or_create(name, 0o755)?;
            if made || !ownership.is_folder(&child.own_stat()?, 0o755) {
                ownership.set_folder(&child, 0o755)?;
                changed = true;
            }
            below = Some(child);
        }
    }
    Ok(changed)
}

/// The states of everything that was just compared or written.
fn stamps(
    target: &VolumesRoot,
    pod: &Dir,
    volume: &VolumeData,
    version: &str,
) -> Result<Vec<(PathBuf, Stamp)>, FsError> {
    let root = target.volumes_below_pod().join(&volume.name);
    let data = root.join(version);
    let mut paths = vec![root.clone(), root.join(DATA), data.clone()];
    paths.extend(folders(volume).into_iter().map(|path| data.join(path)));
    paths.extend(volume.files.keys().map(|path| data.join(path)));
    paths.extend(target.markers_below_pod().map(|markers| markers.join(&volume.name).join(READY)));
    let mut stamps = Vec::with_capacity(paths.len());
    for path in paths {
        // An entry removed in the meantime is left out; the folder's own state shows it.
        if let Some(stat) = pod.stat(&path)? {
            stamps.push((path, stat.stamp));
        }
    }
    Ok(stamps)
}
