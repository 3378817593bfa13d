//! The state folder: small files that outlive the agent, each written whole and checked when read.
//!
//! Owns the files below `state-dir`; their bytes are `format`'s. Must not know what the records mean. A damaged file is set aside and reported; it is never fatal and never used in part.
//!
//! A record can be written first ([`CheckpointStore::write_unsynced`]) and synced later ([`CheckpointStore::sync`]). A
//! written record survives a crash of the agent: the next [`CheckpointStore::open`] puts it in force. A power loss may
//! lose it, but never its predecessor.

mod error;
mod file_name;
mod format;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::node::fsx::Dir;
use crate::node::fsx::File;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Shared;
use crate::node::fsx::Stat;

use file_name::file_name;
use format::Encoded;
use trust::refuse_unsafe;
use trust::trusted;
use trust::why_unsafe;

pub use error::CheckpointError;
pub use error::DamageCause;
pub use error::Damaged;

/// The most damaged versions of one record that are kept; a newer one replaces the last of them.
const MAX_SET_ASIDE: u32 = 10;
/// A record; written but not yet renamed to its own name; and its successor while that is being written.
const RECORD: &str = ".json";
const STAGED: &str = ".tmp";
const BEGUN: &str = ".new";

/// What the name of one that was set aside has before its number.
const SET_ASIDE: &str = ".bad-";
/// The folder in the state folder with a record for each daemon.
pub const DAEMONS: &str = "daemons";

/// What was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded<T> {
    /// The record as saved.
    Present(T),
    /// The record does not exist.
    Absent,
    Damaged(Damaged),
}

/// The state folder of one agent.
#[derive(Debug)]
pub struct CheckpointStore {
    path: PathBuf,
    dir: Dir,
    read_only: bool,
    /// Whether the folder is not there; `dir` is the one above.
    is_missing: bool,
    /// Records that were there and could not be read.
    unread: Mutex<BTreeSet<String>>,
}

impl CheckpointStore {
    /// Opens the folder `path`, made (0700) if it is not there. One that others may write to, or that
    /// belongs to another user, is refused. Files that a crash cut off are removed; complete ones that were not yet
    /// renamed are put in force. Where that cannot be done (the disk is read-only or full), they are read without it.
    pub fn open(disk: &Shared, path: &Path) -> Result<Self, CheckpointError> {
        let fail = |source| CheckpointError::Folder { path: path.to_owned(), source };
        let (dir, _) = Dir::open_or_create(disk, path, 0o700).map_err(fail)?;
        refuse_unsafe(path, &dir)?;
        for name in dir.names().map_err(fail)? {
            let name = name.to_string_lossy();
            // What fails here shows again, and is reported, when the record is next written.
            if name.strip_suffix(BEGUN).is_some_and(|file| file.ends_with(RECORD)) {
                let _ = dir.remove_tree(&*name);
            } else if let Some(file) = name.strip_suffix(STAGED) {
                let _ = put_in_force(&dir, &name, file);
            }
        }
        Ok(Self { path: path.to_owned(), dir, read_only: false, is_missing: false, unread: Mutex::default() })
    }

    /// Opens the folder to look at: nothing is created, removed or set aside. `None` if it does not exist.
    pub fn open_read_only(disk: &Shared, path: &Path) -> Result<Option<Self>, CheckpointError> {
        match Dir::open(disk, path) {
            Ok(dir) => {
                refuse_unsafe(path, &dir)?;
                Ok(Some(Self {
                    path: path.to_owned(),
                    dir,
                    read_only: true,
                    is_missing: false,
                    unread: Mutex::default(),
                }))
            }
            // The end of a link that leads nowhere may be there later.
            Err(e) if e.source.kind() == ErrorKind::NotFound && disk.look_at_link(path).is_err() => Ok(None),
            Err(source) => Err(CheckpointError::Folder { path: path.to_owned(), source }),
        }
    }

    /// The store in the folder `name` (created, 0700, if missing) of this one.
    pub fn folder(&self, name: &str) -> Result<CheckpointStore, CheckpointError> {
        CheckpointStore::open(self.dir.disk(), &self.path.join(name))
    }

    /// The store in the folder `name` of this one; read-only, and without a record if there is no such folder.
    pub fn folder_read_only(&self, name: &str) -> Result<Self, CheckpointError> {
        let (disk, path) = (self.dir.disk(), self.path.join(name));
        if let Some(folder) = Self::open_read_only(disk, &path)? {
            return Ok(folder);
        }
        let dir =
            Dir::open(disk, &self.path).map_err(|source| CheckpointError::Folder { path: path.clone(), source })?;
        Ok(Self { path, dir, read_only: true, is_missing: true, unread: Mutex::default() })
    }

    /// Whether the path still leads to the folder that was opened, and no other user may write to it.
    pub fn is_in_place(&self) -> bool {
        let here = self.dir.own_stat().ok().filter(|here| why_unsafe(here, &self.path).is_none());
        let there = self.dir.disk().look(&self.path).ok();
        here.zip(there).is_some_and(|(here, there)| here.stamp.is_same_file(&there.stamp))
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Saves `record` as `<name>.json` (0600), and gives its size in bytes. On success the record survives a power loss; on
    /// error its predecessor is unchanged. A long name is shortened with a hash, so the record itself must name its owner.
    pub fn save<T: Serialize>(&self, name: &str, record: &T) -> Result<u64, CheckpointError> {
        let unsynced = self.write_unsynced(name, record)?;
        self.sync(&unsynced).inspect_err(|_| {
            // A record whose save failed must not come into force later.
            let _ = self.dir.unlink(unsynced.staged());
        })?;
        Ok(unsynced.bytes)
    }

    /// Writes `record` as `name` without fsync: it survives a crash of the agent at once, a power loss only after
    /// [`CheckpointStore::sync`].
    pub fn write_unsynced<T: Serialize>(&self, name: &str, record: &T) -> Result<UnsyncedRecord, CheckpointError> {
        let file = file_name(name);
        let path = self.path.join(&file);
        let encoded = Encoded::of(record).map_err(|source| CheckpointError::Encode { path: path.clone(), source })?;
        let staged = format!("{file}{STAGED}");
        match self.stage(&staged, &format!("{file}{BEGUN}"), &encoded) {
            Ok(written) => Ok(UnsyncedRecord { file, written, bytes: encoded.size() }),
            Err(source) => Err(CheckpointError::Save { path, source }),
        }
    }

    /// Writes the file `staged`. If there is one already, the new one is completed under the name `begun` first.
    fn stage<T: Serialize>(&self, staged: &str, begun: &str, encoded: &Encoded<'_, T>) -> Result<File, FsError> {
        let create = |name: &str| {
            let created = self.dir.create_file_with(name, 0o600, Owner::default(), |file| encoded.write(file));
            created.inspect_err(|error| {
                if error.source.kind() != ErrorKind::AlreadyExists {
                    let _ = self.dir.unlink(name);
                }
            })
        };
        match create(staged) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {
                self.dir.unlink(begun)?;
                let written = create(begun)?;
                let renamed = self.dir.rename(begun, &self.dir, staged);
                renamed.inspect_err(|_| drop(self.dir.unlink(begun)))?;
                Ok(written)
            }
            created => created,
        }
    }

    /// Fsyncs the record, gives it its own name, and fsyncs the folder. If the same name has been written again since,
    /// that newer record is used.
    pub fn sync(&self, unsynced: &UnsyncedRecord) -> Result<(), CheckpointError> {
        self.rename(unsynced)?;
        self.sync_dir(unsynced)
    }

    /// Fsyncs the record and gives it its own name: the first half of [`CheckpointStore::sync`], for many records at
    /// once.
    pub fn rename(&self, unsynced: &UnsyncedRecord) -> Result<(), CheckpointError> {
        let path = || self.path.join(&unsynced.file);
        let fail = |source| CheckpointError::Save { path: path(), source };
        let rename = || self.dir.rename(unsynced.staged(), &self.dir, &unsynced.file);
        let is_folder = || matches!(self.dir.stat(&unsynced.file), Ok(Some(Stat { kind: FileKind::Folder, .. })));
        unsynced.written.sync().map_err(fail)?;
        let is_unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner).remove(&unsynced.file);
        if is_unread {
            // What could not be read is kept for a person: it may be readable by now.
            let why = "could not be read".to_owned();
            self.set_aside(&mut Damaged { path: path(), why, kept: None, cause: DamageCause::Broken });
        }
        let renamed = match rename() {
            Err(_) if is_folder() => {
                // It could not be set aside when it was read.
                let why = "is a folder".to_owned();
                self.set_aside(&mut Damaged { path: path(), why, kept: None, cause: DamageCause::Broken });
                rename()
            }
            renamed => renamed,
        };
        renamed.map_err(fail)
    }

    /// Fsyncs the folder, and with it every rename so far: the second half of [`CheckpointStore::sync`]. An error names
    /// `unsynced`.
    pub fn sync_dir(&self, unsynced: &UnsyncedRecord) -> Result<(), CheckpointError> {
        self.dir.sync().map_err(|source| CheckpointError::Save { path: self.path.join(&unsynced.file), source })
    }

    /// Removes a record that was written and not synced; what fails is overwritten by the next one of that name.
    pub fn withdraw(&self, unsynced: UnsyncedRecord) {
        let _ = self.dir.unlink(unsynced.staged());
    }

    /// Whether there is anything under the name of the record `name`.
    pub fn has(&self, name: &str) -> bool {
        !matches!(self.dir.stat(file_name(name)), Ok(None))
    }

    /// The record `name`. A damaged one is set aside as `<name>.json.bad-<n>`.
    pub fn load<T: DeserializeOwned>(&self, name: &str) -> Loaded<T> {
        let file = file_name(name);
        match self.load_file(&file) {
            Loaded::Damaged(mut damaged) => {
                self.set_aside(&mut damaged);
                Loaded::Damaged(damaged)
            }
            loaded => loaded,
        }
    }

    /// Every record of the folder, by file name. Damaged ones stay in place until [`CheckpointStore::set_aside`]; so do
    /// those that were saved under another name than their file has: they were copied or moved. `name_of`: the name
    /// under which they were saved, if that is known.
    ///
    /// # Errors
    /// When the folder cannot be listed. A record that cannot be read counts as damaged.
    pub fn load_all<T: DeserializeOwned>(
        &self,
        name_of: impl Fn(&T) -> Option<String>,
    ) -> Result<Vec<Loaded<T>>, CheckpointError> {
        let names = if self.is_missing { Ok(Vec::new()) } else { self.dir.names() };
        let names = names.map_err(|source| CheckpointError::Folder { path: self.path.clone(), source })?;
        let names = names.iter().filter_map(|name| name.to_str());
        let files: BTreeSet<&str> = names.map(|name| name.strip_suffix(STAGED).unwrap_or(name)).collect();
        let load = |file: &str| match self.load_file(file) {
            Loaded::Present(record) => match name_of(&record).filter(|name| file_name(name) != file) {
                Some(name) => Loaded::Damaged(Damaged {
                    path: self.path.join(file),
                    why: format!("has what belongs into {}", file_name(&name)),
                    kept: None,
                    cause: DamageCause::Misplaced,
                }),
                None => Loaded::Present(record),
            },
            loaded => loaded,
        };
        Ok(files.into_iter().filter(|file| file.ends_with(RECORD)).map(load).collect())
    }

    /// Removes the record `name`; `false` if there was none. The removal survives a power loss.
    pub fn remove(&self, name: &str) -> Result<bool, CheckpointError> {
        let file = file_name(name);
        let fail = |source| CheckpointError::Remove { path: self.path.join(&file), source };
        let removed = self.dir.unlink(&file).map_err(fail)?;
        self.dir.sync().map_err(fail)?;
        Ok(removed)
    }

    fn load_file<T: DeserializeOwned>(&self, file: &str) -> Loaded<T> {
        let staged = format!("{file}{STAGED}");
        let name = if is_whole(&self.dir, &staged).unwrap_or(false) { staged.as_str() } else { file };
        let damaged = |why: String, cause: DamageCause| {
            if cause == DamageCause::Unreadable {
                self.unread.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned());
            }
            Loaded::Damaged(Damaged { path: self.path.join(file), why, kept: None, cause })
        };
        let stat = match self.dir.stat(name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Loaded::Absent,
            Err(error) => return damaged(format!("cannot be read ({})", error.source), DamageCause::Unreadable),
        };
        if let Err(why) = trusted(&stat) {
            return damaged(why, DamageCause::Untrusted);
        }
        match self.dir.open_file(name).and_then(|found| found.map(|file| format::read(&file)).transpose()) {
            Err(error) => damaged(format!("cannot be read ({})", error.source), DamageCause::Unreadable),
            Ok(Some(Ok(record))) => Loaded::Present(record),
            Ok(Some(Err((why, cause)))) => damaged(why, cause),
            Ok(None) => Loaded::Absent,
        }
    }

    /// Sets the record `name` aside because its content cannot be used; `why` says what is wrong.
    pub fn reject(&self, name: &str, why: String) -> Damaged {
        let mut damaged =
            Damaged { path: self.path.join(file_name(name)), why, kept: None, cause: DamageCause::Broken };
        self.set_aside(&mut damaged);
        damaged
    }

    /// Renames a damaged record to a name that no record has. If that fails, the next save overwrites it. One that
    /// cannot be read stays until the next save sets it aside: it may be readable again.
    pub fn set_aside(&self, damaged: &mut Damaged) {
        let Some(file) = damaged.path.file_name().and_then(|name| name.to_str()) else { return };
        if self.read_only || !damaged.is_read() {
            return;
        }
        let names = (1..MAX_SET_ASIDE).map(|n| format!("{file}{SET_ASIDE}{n}"));
        let mut free = names.filter(|name| matches!(self.dir.stat(name), Ok(None)));
        let name = free.next().unwrap_or_else(|| format!("{file}{SET_ASIDE}{MAX_SET_ASIDE}"));
        if self.dir.rename(file, &self.dir, &name).is_ok() {
            let _ = self.dir.sync();
            damaged.kept = Some(self.path.join(name));
        }
    }
}

/// The files of the state folder `path` that were set aside, those of records among them.
pub fn set_aside_in(disk: &Shared, path: &Path) -> Vec<PathBuf> {
    let is_aside = |name: &str| name.rsplit_once(SET_ASIDE).is_some_and(|(_, number)| number.parse::<u32>().is_ok());
    let aside = |folder: PathBuf| {
        let names = disk.list(&folder).unwrap_or_default().into_iter();
        let names = names.filter(|name| name.to_str().is_some_and(is_aside));
        names.map(|name| folder.join(name)).collect::<Vec<_>>()
    };
    let mut files: Vec<PathBuf> = [path.to_owned(), path.join(DAEMONS)].into_iter().flat_map(aside).collect();
    files.sort();
    files
}

/// Whether `record` can be put in JSON at all: a path in it may not be UTF-8.
pub fn can_encode<T: Serialize>(record: &T) -> bool {
    serde_json::to_writer(std::io::sink(), record).is_ok()
}

/// A record that is written and not yet synced.
#[derive(Debug)]
pub struct UnsyncedRecord {
    file: String,
    written: File,
    bytes: u64,
}

impl UnsyncedRecord {
    fn staged(&self) -> String {
        format!("{}{STAGED}", self.file)
    }
}

/// Gives the staged file `name` the name `file`, or removes what is not all of a record.
fn put_in_force(dir: &Dir, name: &str, file: &str) -> Result<(), FsError> {
    if !is_whole(dir, name)? {
        return dir.remove_tree(name);
    }
    // It may not be on stable storage; its predecessor is.
    dir.sync_entry(name)?;
    dir.rename(name, dir, file)?;
    dir.sync()
}

/// Whether the staged file `name` holds all of a record.
fn is_whole(dir: &Dir, name: &str) -> Result<bool, FsError> {
    if dir.stat(name)?.is_none_or(|stat| trusted(&stat).is_err()) {
        return Ok(false);
    }
    Ok(dir.open_file(name)?.map(|file| format::is_whole(&file)).transpose()?.unwrap_or(false))
}
