//! Volume data on disk, where the kubelet finds it: emptyDirs filled before their pod exists.
//!
//! Owns the folders of the volumes it wrote: content, modes, owners, links, readiness markers. Must not decide what a
//! volume contains (`crate::core::render` does), nor touch anything else under the kubelet's root. The layout is that
//! of the kubelet's AtomicWriter (pkg/volume/util/atomic_writer.go): a reader sees one complete version or the next.

mod clear;
mod error;
mod gates;
mod layout;
mod ownership;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::PathBuf;
use std::thread;

use crate::core::volume::VolumeData;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::FsError;
use crate::node::fsx::NewFile;
use crate::node::fsx::Owner;
use crate::node::fsx::Shared;
use crate::node::fsx::Stamp;
use crate::node::fsx::Unsynced;

pub use error::VolumeError;
pub use layout::VolumesRoot;

/// The file that tries whether the disk takes data.
const TRIED: &str = ".daemonlet-try";

/// What files and folders are rounded up to, where it is tried whether they have room.
const BLOCK: usize = 4_096;

/// The folders that a volume has of its own, for itself, its version and its marker.
const FOLDERS_OF_VOLUME: usize = 3;

/// The result of one pass over the volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Volumes whose data changed: a new version was switched in.
    pub published: BTreeSet<String>,
    /// Volumes with correct data, but wrong links, modes or marker.
    pub repaired: BTreeSet<String>,
}

impl Written {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.published.is_empty() && self.repaired.is_empty()
    }
}

/// The remains of an ended pod's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Nothing of ours is left.
    Gone,
    /// Something is mounted there or below: nothing was touched. Try again later.
    Mounted {
        /// One of the mount points.
        at: PathBuf,
    },
    /// Ours is removed; the rest is left to the kubelet.
    Foreign {
        /// One remaining entry.
        left: PathBuf,
    },
}

/// The volumes under one [`VolumesRoot`], with a cache of their last correct state.
#[derive(Debug)]
pub struct Volumes {
    disk: Shared,
    target: VolumesRoot,
    seen: BTreeMap<String, BTreeMap<String, SeenVolume>>,
}

/// One volume when it was last compared or written.
#[derive(Debug)]
struct SeenVolume {
    content: u64,
    /// Paths below the pod's folder, each with its state.
    stamps: Vec<(PathBuf, Stamp)>,
}

impl SeenVolume {
    fn holds(&self, pod: &Dir) -> bool {
        self.stamps.iter().all(|(path, stamp)| matches!(pod.stat(path), Ok(Some(now)) if now.stamp == *stamp))
    }
}

impl Volumes {
    /// Volumes on `disk` below `target`.
    pub fn new(disk: Shared, target: VolumesRoot) -> Self {
        Self { disk, target, seen: BTreeMap::new() }
    }

    /// Makes the disk contain exactly `volumes` for the pod `uid`: data, modes, owners and links. What another volume
    /// of the pod has stays.
    ///
    /// Writes nothing if it already does. On success the data survives a power loss, so a manifest may follow. Each
    /// volume is switched in one rename; after an error every volume has either its old or its new version.
    pub fn write<'v>(
        &mut self,
        uid: &str,
        volumes: impl IntoIterator<Item = &'v VolumeData>,
    ) -> Result<Written, VolumeError> {
        let volumes: Vec<&VolumeData> = volumes.into_iter().collect();
        layout::check_uid(uid)?;
        for volume in &volumes {
            layout::check_volume(uid, volume)?;
        }
        let mut written = Written::default();
        if let Some(seen) = self.seen.get_mut(uid) {
            seen.retain(|name, _| volumes.iter().any(|volume| volume.name == *name));
        }
        if volumes.is_empty() {
            return Ok(written);
        }
        let fail = |source| VolumeError::pod(uid, source);
        let pod = self.target.make_pod(&self.disk, uid).map_err(fail)?;
        let (mut first, mut unsynced) = (Vec::new(), Unsynced::default());
        let result = self.write_all(&pod, uid, &volumes, &mut written, &mut first, &mut unsynced);
        let synced = match written.is_empty() {
            true => Ok(()),
            false => unsynced.sync(|| self.above(&pod), || {}).map_err(fail),
        };
        if synced.is_err() {
            self.unwrite(&pod, uid, &first);
        }
        result.and(synced).map(|()| written)
    }

    /// Writes the volumes of many new pods, and syncs all of them together with `others`; a following
    /// [`Volumes::write`] finds them written. Only a hint: what fails is undone, and the error shows in the write.
    /// Returns whether everything was synced, `others` included. `meanwhile` runs while the disk works.
    pub fn write_together(
        &mut self,
        pods: &[(&str, &[VolumeData])],
        mut others: Unsynced,
        meanwhile: impl FnOnce(),
    ) -> bool {
        let Ok(all) = self.target.make_pods(&self.disk) else {
            return others.sync(|| Ok(Vec::new()), meanwhile).is_ok();
        };
        let (target, (some, rest)) = (&self.target, pods.split_at(pods.len() / 2));
        let mut laid = thread::scope(|scope| {
            // The kernel creates the folders; two processors are twice as fast.
            let (all, mut of_some) = (&all, Unsynced::default());
            let work = move || (lay(target, all, some, &mut of_some), of_some);
            let other = match fsx::threads(2) {
                1 => None,
                _ => thread::Builder::new().spawn_scoped(scope, work).ok(),
            };
            let mut laid = match &other {
                Some(_) => lay(target, all, rest, &mut others),
                None => lay(target, all, pods, &mut others),
            };
            if let Some(other) = other {
                let (more, unsynced) = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                laid.extend(more);
                others.absorb(unsynced);
            }
            laid
        });
        for Laid { pod, uid, seen, first, is_whole } in &mut laid {
            match is_whole {
                true => drop(self.seen.insert((*uid).to_owned(), std::mem::take(seen))),
                false => self.unwrite(pod, uid, first),
            }
        }
        laid.retain(|laid| laid.is_whole);
        let above = || {
            let mut above = vec![all];
            for Laid { pod, .. } in &laid {
                above.extend(self.above_in_pod(pod)?);
            }
            Ok(above)
        };
        let is_good = others.sync(above, meanwhile).is_ok();
        if !is_good {
            laid.iter().for_each(|laid| self.unwrite(&laid.pod, laid.uid, &laid.first));
        }
        is_good
    }

    /// To be called before the first write for a pod that has no manifest yet: what a process before this one wrote for it
    /// may not be on stable storage, though it reads as it should, and is written again.
    pub fn distrust<'v>(&self, uid: &str, volumes: impl IntoIterator<Item = &'v VolumeData>) {
        if self.seen.contains_key(uid) || layout::check_uid(uid).is_err() {
            return;
        }
        let Ok(Some(pod)) = self.target.open_pod(&self.disk, uid) else { return };
        let volumes = volumes.into_iter().filter(|volume| layout::check_volume(uid, volume).is_ok());
        volumes.for_each(|volume| write::withdraw(&self.target, &pod, &volume.name));
    }

    /// What was not synced is written again next time.
    fn unwrite(&mut self, pod: &Dir, uid: &str, first: &[String]) {
        self.seen.remove(uid);
        first.iter().for_each(|volume| write::withdraw(&self.target, pod, volume));
    }

    /// Every folder above the volumes of a pod: each may have a new entry.
    fn above(&self, pod: &Dir) -> Result<Vec<Dir>, FsError> {
        let mut above = self.above_in_pod(pod)?;
        above.push(self.target.make_pods(&self.disk)?);
        Ok(above)
    }

    fn above_in_pod(&self, pod: &Dir) -> Result<Vec<Dir>, FsError> {
        pod.child(".")?.map_or_else(|| Ok(Vec::new()), |pod| self.target.above(pod))
    }

    fn write_all(
        &mut self,
        pod: &Dir,
        uid: &str,
        volumes: &[&VolumeData],
        written: &mut Written,
        first: &mut Vec<String>,
        unsynced: &mut Unsynced,
    ) -> Result<(), VolumeError> {
        let volumes = volumes.iter().copied();
        let seen = self.seen.entry(uid.to_owned()).or_default();
        write_pod(&self.target, pod, uid, volumes, seen, written, first, unsynced)
    }

    /// Whether everything that [`Volumes::write`] last wrote for `uid` is untouched. Reads no data, so a pass over
    /// many idle pods is cheap; false only means that it should be written again.
    pub fn intact(&self, uid: &str) -> bool {
        let Some(seen) = self.seen.get(uid) else { return false };
        match self.target.open_pod(&self.disk, uid) {
            Ok(Some(pod)) => seen.values().all(|volume| volume.holds(&pod)),
            Ok(None) | Err(_) => false,
        }
    }

    /// Whether the disk takes data for the pod `uid`.
    ///
    /// # Errors
    /// What it does not take.
    pub fn try_disk(&self, uid: &str) -> Result<(), VolumeError> {
        self.try_blocks(uid, 1)
    }

    /// Whether the disk has room for `volumes` besides those of the pod `uid`.
    ///
    /// # Errors
    /// What it does not take.
    pub fn try_room(&self, uid: &str, volumes: &[VolumeData]) -> Result<(), VolumeError> {
        let of_files =
            |volume: &VolumeData| volume.files.values().map(|file| file.data.len() / BLOCK + 1).sum::<usize>();
        match volumes.iter().map(|volume| of_files(volume) + FOLDERS_OF_VOLUME).sum() {
            0 => Ok(()),
            blocks => self.try_blocks(uid, blocks),
        }
    }

    fn try_blocks(&self, uid: &str, blocks: usize) -> Result<(), VolumeError> {
        layout::check_uid(uid)?;
        let written = self.target.make_pod(&self.disk, uid).and_then(|pod| {
            // An agent may have ended before it removed its own.
            pod.unlink(TRIED)?;
            let fill = |file: &mut NewFile<'_>| (0..blocks).try_for_each(|_| file.put(&[0; BLOCK]));
            let tried = pod.create_file_with(TRIED, 0o600, Owner::default(), fill).and_then(|file| file.sync());
            let gone = pod.unlink(TRIED);
            tried.and(gone).map(drop)
        });
        written.map_err(|source| VolumeError::pod(uid, source))
    }

    /// Whether each of these volumes of the pod `uid` has data, right or wrong.
    pub fn has_data(&self, uid: &str, volumes: &[String]) -> bool {
        let pod = match self.target.open_pod(&self.disk, uid) {
            Ok(Some(pod)) => pod,
            Ok(None) => return volumes.is_empty(),
            // What cannot be looked at is not known to lack anything.
            Err(_) => return true,
        };
        let data = |volume: &String| self.target.volumes_below_pod().join(volume).join("..data");
        volumes.iter().all(|volume| !matches!(pod.stat(data(volume)), Ok(None)))
    }

    /// Removes our data from the volumes of the pod `uid`, except those in `keep`, even if something reads them. The
    /// folders remain.
    pub fn withdraw(&mut self, uid: &str, keep: impl Fn(&str) -> bool) -> Result<(), VolumeError> {
        layout::check_uid(uid)?;
        self.seen.remove(uid);
        clear::withdraw(&self.disk, &self.target, uid, keep)
            .map_err(|source| VolumeError::Clear { uid: uid.to_owned(), source })
    }

    /// Removes the remains of the ended pod `uid`: volumes in our layout, their markers, then empty folders. Nothing
    /// that is mounted, and nothing that is not ours.
    pub fn clear(&mut self, uid: &str) -> Result<Cleared, VolumeError> {
        layout::check_uid(uid)?;
        self.seen.remove(uid);
        clear::clear(&self.disk, &self.target, uid).map_err(|source| VolumeError::Clear { uid: uid.to_owned(), source })
    }
}

/// A pod's volumes that are written but not synced.
struct Laid<'a> {
    pod: Dir,
    uid: &'a str,
    seen: BTreeMap<String, SeenVolume>,
    /// Volumes whose first version was switched in.
    first: Vec<String>,
    /// Whether all of them were written.
    is_whole: bool,
}

/// Writes the volumes of `pods` in the folder `all`, except those with an invalid name or without a folder.
fn lay<'a>(
    target: &VolumesRoot,
    all: &Dir,
    pods: &[(&'a str, &[VolumeData])],
    unsynced: &mut Unsynced,
) -> Vec<Laid<'a>> {
    let mut laid = Vec::new();
    for (uid, volumes) in pods {
        if layout::check_uid(uid).is_err() || volumes.iter().any(|v| layout::check_volume(uid, v).is_err()) {
            continue;
        }
        let Ok(pod) = target.make_pod_in(all, uid) else { continue };
        let (mut seen, mut first) = (BTreeMap::new(), Vec::new());
        let written = &mut Written::default();
        let result = write_pod(target, &pod, uid, *volumes, &mut seen, written, &mut first, unsynced);
        laid.push(Laid { pod, uid, seen, first, is_whole: result.is_ok() });
    }
    laid
}

/// Writes those volumes of one pod that differ from the state last `seen`. One that cannot be written keeps no other from its
/// data; the first error is given.
#[expect(clippy::too_many_arguments, reason = "what is written, where, and the three things that are reported of it")]
fn write_pod<'v>(
    target: &VolumesRoot,
    pod: &Dir,
    uid: &str,
    volumes: impl IntoIterator<Item = &'v VolumeData>,
    seen: &mut BTreeMap<String, SeenVolume>,
    written: &mut Written,
    first: &mut Vec<String>,
    unsynced: &mut Unsynced,
) -> Result<(), VolumeError> {
    let mut failed = Ok(());
    for volume in volumes {
        let content = fingerprint(volume);
        if seen.get(&volume.name).is_some_and(|seen| seen.content == content && seen.holds(pod)) {
            continue;
        }
        seen.remove(&volume.name);
        let (change, stamps) = match write::write(target, pod, volume, unsynced) {
            Ok(written) => written,
            Err(source) => {
                failed = failed.and(Err(VolumeError::write(uid, &volume.name, source)));
                continue;
            }
        };
        seen.insert(volume.name.clone(), SeenVolume { content, stamps });
        match change {
            write::VolumeChange::None => {}
            write::VolumeChange::Repaired => drop(written.repaired.insert(volume.name.clone())),
            write::VolumeChange::Published => drop(written.published.insert(volume.name.clone())),
            write::VolumeChange::First => {
                first.push(volume.name.clone());
                written.published.insert(volume.name.clone());
            }
        }
    }
    failed
}

/// A hash of the wanted content of a volume; equal contents have equal hashes within this process.
fn fingerprint(volume: &VolumeData) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    volume.fs_group.hash(&mut hasher);
    volume.keeps_others.hash(&mut hasher);
    volume.nested_mount_points.hash(&mut hasher);
    for (path, file) in &volume.files {
        (path, &*file.data, file.mode, file.uid).hash(&mut hasher);
    }
    volume.files.len().hash(&mut hasher);
    hasher.finish()
}
