//! Where a daemon's definition came from, and what its absence from there proves.
//!
//! Owns the rules of evidence for folders. Must not decide what follows.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

use super::FileView;
use super::FolderIdentity;
use super::FolderView;
use super::ScannedFolder;
use crate::core::input::InputProblem;
use crate::core::model::ObjectKey;
use crate::core::sources::FolderState;
use crate::core::sources::Unproven;

/// The source of a DaemonSet, stored with what runs: it decides later whether an absence is evidence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FolderOrigin {
    /// The file.
    pub path: PathBuf,
    /// The file system of its folder.
    pub folder: FolderIdentity,
}

/// The file that last defined a daemon, and the file system of its folder, where that is remembered.
type LastSeen<'a> = (&'a Path, Option<&'a FolderIdentity>);

impl FolderView {
    /// The source of `key`, to be remembered while it runs.
    pub fn origin_of(&self, key: &ObjectKey) -> Option<FolderOrigin> {
        let file = self.file_of(key)?;
        // Not its folder's present file system: a kept file may be missing because the folder is now on another one.
        Some(FolderOrigin { path: file.path.clone(), folder: file.mounted.clone()? })
    }

    /// Whether a link to /dev/null masks the file at `path`.
    pub fn is_masked(&self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy());
        self.masked.iter().any(|masked| name.as_deref() == Some(masked)) && !self.is_empty(path)
    }

    /// The state of `key`, which came from `origin` when it was last seen (`None`: from no folder).
    ///
    /// Its absence is evidence only if its file is gone, masked by a link to /dev/null, or valid without it, while the
    /// folder is on the same mounted file system as then. Nor does another file's definition take its place before.
    pub fn state(&self, key: &ObjectKey, origin: Option<&FolderOrigin>) -> FolderState<'_> {
        self.state_since(key, origin.map(|origin| (origin.path.as_path(), Some(&origin.folder))))
    }

    /// As [`FolderView::state`], where only the path of its file is known.
    pub fn state_by_path(&self, key: &ObjectKey, path: &Path) -> FolderState<'_> {
        self.state_since(key, Some((path, None)))
    }

    fn state_since(&self, key: &ObjectKey, last: Option<LastSeen<'_>>) -> FolderState<'_> {
        let in_force = self.daemon_sets.get(key).and_then(|(set, file)| Some((set, self.files.get(*file)?)));
        let why = last.and_then(|last| match in_force {
            Some((_, file)) => self.why_not_instead(key, last, file),
            None => self.why_not_gone(key, last),
        });
        let is_going = in_force.is_some_and(|(_, file)| self.is_going(file));
        match (why.or(is_going.then_some(Unproven::FileGoing)), in_force) {
            (Some(reason), _) => FolderState::Unsure { reason },
            (None, Some((daemon_set, file))) => FolderState::Present { daemon_set, fingerprint: &file.fingerprint },
            (None, None) => FolderState::Absent,
        }
    }

    /// Whether a file is missing from a folder that is there, and still counts only until that folder has rested.
    fn is_going(&self, file: &FileView) -> bool {
        let folder = || self.folders.iter().find(|folder| folder.path == file.folder);
        file.vanished && folder().is_some_and(|f| f.readable && f.identity.is_some() && f.identity == file.mounted)
    }

    /// Why nothing proves that the file of `last` does not define `key` any more.
    fn why_not_gone(&self, key: &ObjectKey, last: LastSeen<'_>) -> Option<Unproven> {
        if let Some(why) = self.why_unknown(key, last.0, None) {
            return Some(why);
        }
        let name = last.0.file_name().map(|name| name.to_string_lossy());
        if self.masked.iter().any(|masked| name.as_deref() == Some(masked)) {
            return None;
        }
        match self.folder_of(last.0) {
            None => Some(Unproven::FolderNotConfigured),
            Some(folder) => why_unlike(folder, last.1).or((!folder.quiet).then_some(Unproven::FolderChanging)),
        }
    }

    /// Why the definition of `key` in `other` may be in force only because the file of `last`, which was in force
    /// before, cannot be read well.
    fn why_not_instead(&self, key: &ObjectKey, last: LastSeen<'_>, other: &FileView) -> Option<Unproven> {
        let path = last.0;
        let folder = self.folder_of(path)?;
        let lies_below = last.1.zip(other.mounted.as_ref()).is_some_and(|(then, now)| then.is_missing_on(now));
        if other.folder == folder.path && lies_below {
            return Some(Unproven::NotMounted);
        }
        let defines = |file: &&Arc<FileView>| file.path == path && file.daemon_sets.iter().any(|d| d.key == *key);
        // Where both define it, the order of files decides.
        if other.path == path || self.files.iter().any(|file| defines(&file)) {
            return None;
        }
        let has_vanished = !self.files.iter().any(|file| file.path == path && !file.vanished);
        // Whoever writes the files of this folder gave it another one.
        if has_vanished && other.folder == folder.path {
            return self.is_empty(path).then_some(Unproven::FileEmpty);
        }
        why_unlike(folder, last.1).or_else(|| self.why_unknown(key, path, Some(other)))
    }

    /// Why the file at `path`, or one in its place, does not tell whether it defines `key`.
    fn why_unknown(&self, key: &ObjectKey, path: &Path, but: Option<&FileView>) -> Option<Unproven> {
        let name = path.file_name().map(|name| name.to_string_lossy());
        // A file of the same name in another folder hides it, and what that defines may not be known either.
        let is_it = |file: &&Arc<FileView>| file.path == path || name.as_deref() == Some(file.name.as_str());
        if self.is_empty(path) {
            return Some(Unproven::FileEmpty);
        }
        // The copy of a folder that is no longer configured is no evidence about its files.
        let is_read = |file: &&Arc<FileView>| self.folder_of(&file.path).is_some();
        let is_other = |file: &&Arc<FileView>| but.is_none_or(|but| file.path != but.path);
        let mut found = self.files.iter().filter(is_it).filter(is_read).filter(is_other);
        found.any(|file| !file.defines_well(key)).then_some(Unproven::FileInvalid)
    }

    /// Whether a file of this name has no document.
    fn is_empty(&self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy());
        self.empty.iter().any(|empty| name.as_deref() == Some(empty))
    }

    fn folder_of(&self, path: &Path) -> Option<&ScannedFolder> {
        self.folders.iter().find(|folder| Some(folder.path.as_path()) == path.parent())
    }
}

/// Why a folder does not show what was in it when it was on the file system `then`.
fn why_unlike(folder: &ScannedFolder, then: Option<&FolderIdentity>) -> Option<Unproven> {
    match folder {
        ScannedFolder { identity: None, .. } => Some(Unproven::FolderMissing),
        ScannedFolder { readable: false, .. } => Some(Unproven::FolderUnread),
        ScannedFolder { identity, .. } if then.is_some() && identity.as_ref() != then => {
            Some(Unproven::OtherFileSystem)
        }
        _ => None,
    }
}

impl FileView {
    /// Whether anything is known that it defines.
    pub(super) fn defines_something(&self) -> bool {
        !self.daemon_sets.is_empty() || !self.objects.is_empty()
    }

    /// Whether the absence of `key` from it is evidence.
    fn defines_well(&self, key: &ObjectKey) -> bool {
        let refused = |problem: &InputProblem| problem.object.as_ref().is_some_and(|object| object.key == *key);
        self.complete && self.quiet && !self.problems.iter().any(refused)
    }
}
