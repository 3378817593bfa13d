//! The kubelet's folder of static pods: verifies a manifest, puts it in place by one rename, and detects drift.
//!
//! Owns the files with our annotation, and the staging folder `.daemonlet` (the kubelet skips names with a leading
//! dot). Must never touch, rename or count foreign files, and never decides which manifests there should be.

mod attributes;
mod error;
mod folder;
mod lock;
mod proof;
mod scan;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

use crate::core::rendering::hex;
use crate::node::fsx::Dir;
use crate::node::fsx::File;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Shared;
use crate::node::fsx::Stamp;
use crate::node::fsx::Unsynced;

pub use attributes::FileAttributes;
pub use error::ManifestError;
use folder::ManifestFolder;
pub use lock::ManifestLock;
pub use lock::holder;
use proof::reads_as;
pub use scan::Manifest;
pub use scan::Scan;
use scan::ScanCache;
use watch::Expected;
use watch::ManifestsWatch;

/// The longest manifest that the kubelet reads.
const MAX_BYTES: u64 = crate::core::manifest::MAX_BYTES as u64;

/// A staged file.
#[derive(Debug)]
struct StagedManifest {
    file: Arc<File>,
    is_synced: bool,
    /// Whether it was decoded to what was intended.
    is_decoded: bool,
}

/// The manifest folder of one agent.
#[derive(Debug)]
pub struct ManifestDir {
    path: PathBuf,
    folder: ManifestFolder,
    lock: Option<ManifestLock>,
    scan_cache: ScanCache,
    expected: Expected,
    watch: Option<ManifestsWatch>,
    /// Staged files that are not synced yet.
    prepared: BTreeMap<String, StagedManifest>,
    /// Whether there were renames that are not synced yet.
    has_unsynced_names: bool,
    /// Manifests whose attributes cannot be changed, with those.
    immutable: BTreeMap<String, FileAttributes>,
}

impl ManifestDir {
    /// Opens the folder for writing: creates it (0700) if it is missing, refuses a symbolic link, a folder that others
    /// may write to, or another user's, locks it unless `lock`, which is taken over, does, and empties the staging folder.
    pub fn open(disk: &Shared, path: &Path, lock: &mut Option<ManifestLock>) -> Result<Self, ManifestError> {
        // Without a trailing slash, which would follow a link.
        let path: PathBuf = path.components().collect();
        let folder = ManifestFolder::open(disk, &path, lock)?;
        Ok(Self { lock: lock.take(), ..Self::with(path, folder) })
    }

    /// Closes the folder; what is left is its lock.
    pub fn into_lock(self) -> Option<ManifestLock> {
        self.lock
    }

    /// Opens the folder read-only. `None` if it does not exist.
    pub fn open_read_only(disk: &Shared, path: &Path) -> Result<Option<Self>, ManifestError> {
        let path: PathBuf = path.components().collect();
        Ok(ManifestFolder::open_read_only(disk, &path)?.map(|folder| Self::with(path, folder)))
    }

    fn with(path: PathBuf, folder: ManifestFolder) -> Self {
        Self {
            path,
            folder,
            lock: None,
            scan_cache: ScanCache::default(),
            expected: Expected::default(),
            watch: None,
            prepared: BTreeMap::new(),
            has_unsynced_names: false,
            immutable: BTreeMap::new(),
        }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `wake` when anything changes in the folder, except by this value. A folder that is removed and created
    /// again is watched again after the next [`ManifestDir::scan`].
    pub fn watch(&mut self, wake: impl Fn() + Send + Sync + 'static) -> Result<(), ManifestError> {
        let error = |source| ManifestError::Watch { path: self.path.clone(), source };
        let disk = self.folder.dir().disk();
        self.watch = Some(ManifestsWatch::start(disk, &self.path, self.expected.clone(), wake).map_err(error)?);
        Ok(())
    }

    /// Whether foreign changes are reported.
    pub fn is_watched(&self) -> bool {
        self.watch.as_ref().is_some_and(ManifestsWatch::is_alive)
    }

    /// These manifests were written by an earlier process. What a loss of power leaves of such a file (nothing,
    /// zeros, its beginning) counts as not there, and may be replaced and removed. One that another program wrote anew stays
    /// ours.
    pub fn remember(&mut self, manifests: impl Iterator<Item = Manifest>) {
        self.scan_cache.remember(manifests);
    }

    /// The present content of the folder. Files that have not changed since the last scan are not read again.
    pub fn scan(&mut self) -> Result<Arc<Scan>, ManifestError> {
        self.reopen_if_replaced()?;
        let Self { path, folder, scan_cache, .. } = self;
        scan_cache.scan(folder.dir()).map_err(|source| ManifestError::ManifestFolder { path: path.clone(), source })
    }

    /// What the last scan found; nothing before the first.
    pub fn last_scan(&self) -> &Scan {
        self.scan_cache.last()
    }

    /// Stages `bytes` as the manifest `name` and starts writing them to disk, so that a following
    /// [`ManifestDir::write`] of the same bytes waits less. Only a hint; errors show in the write.
    ///
    /// With `together`, that value syncs it; afterwards call [`ManifestDir::are_synced`].
    pub fn prepare(&mut self, name: &str, bytes: &[u8], together: Option<&mut Unsynced>) {
        let Some(stage) = self.folder.stage() else { return };
        self.prepared.remove(name);
        if check_name(name).is_err() || stage.unlink(name).is_err() {
            return;
        }
        match stage.create_file(name, bytes, attributes::MODE, Owner::default()) {
            Ok(file) => {
                let file = Arc::new(file);
                match together {
                    Some(unsynced) => unsynced.add_file(Arc::clone(&file)),
                    None => file.begin(),
                }
                self.prepared.insert(name.to_owned(), StagedManifest { file, is_synced: false, is_decoded: false });
            }
            Err(_) => drop(stage.unlink(name)),
        }
    }

    /// Whether the disk takes `bytes` as the manifest `name`.
    ///
    /// # Errors
    /// What it does not take.
    pub fn try_room(&mut self, name: &str, bytes: &[u8]) -> Result<(), ManifestError> {
        check_name(name)?;
        self.reopen_if_replaced()?;
        let path = self.path.join(name);
        let Some(stage) = self.folder.stage() else { return Err(ManifestError::ReadOnly { path: self.path.clone() }) };
        let staged = stage_file(stage, name, bytes, self.prepared.remove(name));
        let gone = stage.unlink(name);
        staged.and(gone).map(drop).map_err(|source| ManifestError::Write { path, source })
    }

    pub fn has_prepared(&self, name: &str) -> bool {
        self.prepared.contains_key(name)
    }

    /// The prepared files are synced; or, with `false`, cannot be relied on and are staged again when they are
    /// written.
    pub fn are_synced(&mut self, are: bool) {
        match are {
            true => self.prepared.values_mut().for_each(|prepared| prepared.is_synced = true),
            false => self.discard_prepared(),
        }
    }

    /// Decodes the prepared ones of `manifests` before they are written, which must give exactly what was intended.
    /// The same bytes are not decoded again after reading them back.
    pub fn decode<'a>(&mut self, manifests: impl Iterator<Item = (&'a str, &'a [u8], &'a Value)>) {
        for (name, bytes, intended) in manifests {
            if let Some(prepared) = self.prepared.get_mut(name) {
                prepared.is_decoded = reads_as(bytes, intended).is_ok();
            }
        }
    }

    /// Puts `bytes` in place as the manifest `name`, after they were read back from the disk and decoded to exactly
    /// `intended`.
    ///
    /// The kubelet sees one event; an existing manifest of that name is replaced by the same rename. The manifest
    /// survives a power loss after [`ManifestDir::sync`].
    pub fn write(&mut self, name: &str, bytes: &[u8], intended: &Value) -> Result<(), ManifestError> {
        self.write_checked(name, bytes, |read| reads_as(read, intended))
            .map(|()| self.scan_cache.wrote(name, bytes, intended))
    }

    /// As [`ManifestDir::write`], for an existing manifest. One that was removed in the meantime is not written again:
    /// the kubelet would see a UID again that it is about to end.
    ///
    /// # Errors
    /// [`ManifestError::Gone`], and as [`ManifestDir::write`].
    pub fn rewrite(&mut self, name: &str, bytes: &[u8], intended: &Value) -> Result<(), ManifestError> {
        let put = self.put(name, bytes, |read| reads_as(read, intended), true);
        put.map(|()| self.scan_cache.wrote(name, bytes, intended))
    }

    /// As [`ManifestDir::write`], with `check` to verify the bytes that were read back.
    pub fn write_checked(
        &mut self,
        name: &str,
        bytes: &[u8],
        check: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<(), ManifestError> {
        self.put(name, bytes, check, false)
    }

    fn put(
        &mut self,
        name: &str,
        bytes: &[u8],
        check: impl FnOnce(&[u8]) -> Result<(), String>,
        must_be_there: bool,
    ) -> Result<(), ManifestError> {
        check_name(name)?;
        self.reopen_if_replaced()?;
        let path = self.path.join(name);
        if bytes.len() as u64 > MAX_BYTES {
            let why = format!("{} bytes; the kubelet reads at most {MAX_BYTES}", bytes.len());
            return Err(ManifestError::Check { path, why });
        }
        let claimed = self.scan_cache.claim(self.folder.dir(), name.as_ref());
        claimed.map_err(|source| ManifestError::ManifestFolder { path: path.clone(), source })?;
        self.refuse_foreign(name)?;
        let Some(stage) = self.folder.stage() else { return Err(ManifestError::ReadOnly { path: self.path.clone() }) };
        let fail = |source| ManifestError::Write { path: path.clone(), source };

        let prepared = self.prepared.remove(name);
        let is_decoded = prepared.as_ref().is_some_and(|prepared| prepared.is_decoded);
        let staged = stage_file(stage, name, bytes, prepared).map_err(|source| {
            // On a full disk a half-written file would take space from others.
            let _ = stage.unlink(name);
            fail(source)
        })?;
        let read = stage.read_file(name, MAX_BYTES + 1).map_err(fail)?.unwrap_or_default();
        let proven = match read == bytes {
            true if is_decoded => Ok(()),
            true => check(&read),
            false => Err("the bytes read back from the disk differ".to_owned()),
        };
        if let Err(why) = proven {
            stage.unlink(name).map_err(fail)?;
            return Err(ManifestError::Check { path, why });
        }
        let dir = self.folder.dir();
        if must_be_there && dir.stat(name).map_err(fail)?.is_none() {
            stage.unlink(name).map_err(fail)?;
            return Err(ManifestError::Gone { path });
        }
        if let Err(source) = self.expected.during(name, Some(staged), || stage.rename(name, dir, name)) {
            // What cannot be removed now is removed when the folder is next opened.
            let _ = stage.unlink(name);
            return Err(fail(source));
        }
        self.has_unsynced_names = true;
        Ok(())
    }

    /// Waits until renames are on stable storage, and discards what was prepared but not written.
    pub fn sync(&mut self) -> Result<(), ManifestError> {
        self.discard_prepared();
        if self.has_unsynced_names {
            let fail = |source| ManifestError::Write { path: self.path.clone(), source };
            self.folder.dir().sync().map_err(fail)?;
            self.has_unsynced_names = false;
        }
        Ok(())
    }

    fn discard_prepared(&mut self) {
        let prepared = std::mem::take(&mut self.prepared);
        let Some(stage) = self.folder.stage() else { return };
        for name in prepared.keys() {
            // What cannot be removed now is removed when the folder is next opened.
            let _ = stage.unlink(name);
        }
    }

    /// Removes our manifest `name`; `false` if there was none. The removal survives a power loss.
    pub fn remove(&mut self, name: &str) -> Result<bool, ManifestError> {
        check_name(name)?;
        self.reopen_if_replaced()?;
        if self.folder.stage().is_none() {
            return Err(ManifestError::ReadOnly { path: self.path.clone() });
        }
        self.refuse_foreign(name)?;
        let fail = |source| ManifestError::Remove { path: self.path.join(name), source };
        let dir = self.folder.dir();
        let removed = self.expected.during(name, None, || dir.unlink(name)).map_err(fail)?;
        // What fails to be synced now is synced with the next pass, which does not find the file any more.
        self.has_unsynced_names = true;
        dir.sync().map_err(fail)?;
        self.has_unsynced_names = false;
        Ok(removed)
    }

    /// Refuses to go on with the pod `uid` while a foreign file has it: the kubelet runs it from that file.
    ///
    /// # Errors
    /// [`ManifestError::Foreign`] with the file that the last scan found.
    pub fn refuse_foreign_pod(&self, uid: &str) -> Result<(), ManifestError> {
        let Some(file) = self.last_scan().foreign.get(uid) else { return Ok(()) };
        Err(ManifestError::Foreign {
            path: self.path.join(file),
            why: "another program wrote it, with the UID of this pod".to_owned(),
        })
    }

    fn refuse_foreign(&mut self, name: &str) -> Result<(), ManifestError> {
        let path = self.path.join(name);
        match self.scan_cache.look(self.folder.dir(), name.as_ref()) {
            Ok(None) => Ok(()),
            Ok(Some(Ok(_))) => Ok(()),
            Ok(Some(Err(foreign))) => Err(ManifestError::Foreign { path, why: foreign.why }),
            Err(source) => Err(ManifestError::ManifestFolder { path, source }),
        }
    }

    /// Reopens the folder if another one is at its path now, or creates a removed one again.
    fn reopen_if_replaced(&mut self) -> Result<(), ManifestError> {
        if self.folder.is_at(&self.path) {
            return Ok(());
        }
        let disk = self.folder.dir().disk();
        let reopened = match self.folder.stage() {
            None => ManifestFolder::open_read_only(disk, &self.path)?,
            Some(_) => Some(ManifestFolder::open(disk, &self.path, &mut self.lock)?),
        };
        // Read-only: a removed folder is empty, and the old descriptor lists nothing.
        let Some(folder) = reopened else { return Ok(()) };
        self.folder = folder;
        self.prepared.clear();
        self.scan_cache = self.scan_cache.anew();
        if self.watch.as_mut().is_some_and(|watch| watch.rearm(self.folder.dir().disk(), &self.path).is_err()) {
            // The owner of this value sees the error and retries.
            self.watch = None;
        }
        Ok(())
    }
}

/// Refuses names that the kubelet skips (leading dot), and anything that is not a single file name.
fn check_name(name: &str) -> Result<(), ManifestError> {
    if name.is_empty() || name.starts_with('.') || name.len() > 255 || name.contains(['/', '\0']) {
        return Err(ManifestError::Name { name: name.to_owned() });
    }
    Ok(())
}

/// Stages the file, unless it is `prepared`, and waits until it is on stable storage.
fn stage_file(stage: &Dir, name: &str, bytes: &[u8], prepared: Option<StagedManifest>) -> Result<Stamp, FsError> {
    match prepared {
        Some(StagedManifest { is_synced: true, .. }) => {}
        Some(StagedManifest { file, .. }) => file.sync()?,
        None => {
            stage.unlink(name)?;
            stage.create_file(name, bytes, attributes::MODE, Owner::default())?.sync()?;
        }
    }
    stage.stat(name)?.map(|stat| stat.stamp).ok_or_else(|| stage.missing(name))
}

/// SHA-256 in lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
