//! The folders of DaemonSet files: their content, what is in force, and what a missing file proves.
//!
//! Owns reading and watching. Folders are merged as systemd merges drop-ins, by file name: a later folder's file
//! replaces an earlier one's, and a link to `/dev/null` masks it; so does a file without any document, which ends nothing
//! that runs.
//! Files end in `.yaml`, `.yml` or `.json`; hidden files are ignored, others are noted. A file that becomes invalid keeps
//! what it last defined. A change of a file or folder counts only after [`QUIET_PERIOD`] without another one, so what is
//! half written never counts; only a file of which nothing was known counts at once, where nothing else defines the same.
//!
//! Must not decide what follows: it reports the objects, their files, and the problems.

mod file;
mod identity;
mod origin;
mod recalled;
mod rest;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::core::input::Ignored;
use crate::core::input::InputProblem;
use crate::core::input::ObjectName;
use crate::core::input::ProblemKind;
use crate::core::input::bounded;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::node::fsx::Stamp;
use crate::node::recording::marks;

pub use identity::FolderIdentity;
pub use origin::FolderOrigin;
pub use recalled::FileRole;
pub use recalled::RecalledFile;
pub use rest::FirstLook;
pub use rest::Rests;
pub use rest::ScanTime;
pub use scan::read;
pub use watch::FoldersWatch;

/// How long a file or folder must be unchanged before what changed in it counts.
pub const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// How long a file may change all the time before that is reported.
const RESTLESS: Duration = Duration::from_secs(10);

/// The content of all folders.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct FolderView {
    /// The folders, in ascending precedence.
    pub folders: Vec<ScannedFolder>,
    /// The files in force, by name.
    pub files: Vec<Arc<FileView>>,
    /// The names masked by a link to /dev/null, or by an empty file.
    pub masked: Vec<String>,
    /// Those of them that an empty file masks: a full disk leaves such, so it ends nothing that runs.
    #[serde(default)]
    pub empty: Vec<String>,
    /// The links to /dev/null in force: one whose folder is gone, or cannot be read, masks on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// The DaemonSets in force, each with the index of its file.
    daemon_sets: BTreeMap<ObjectKey, (Arc<DaemonSet>, usize)>,
    /// The other objects in force. An observation has them with their versions.
    #[serde(skip)]
    objects: BTreeMap<ObjectRef, Arc<Value>>,
    /// Problems beyond a single file: unreadable folders, objects that are defined twice.
    pub problems: Vec<InputProblem>,
    /// Ignored files, for users: other extensions, nested folders.
    pub notes: Vec<String>,
    /// When to read again even if nothing changes: something changed too recently.
    pub recheck: Option<Duration>,
    /// Whether a change does not count yet because it has to rest.
    #[serde(default)]
    pub is_held: bool,
}

/// A link to /dev/null.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mask {
    pub path: PathBuf,
    /// The file system of its folder.
    pub mounted: Option<FolderIdentity>,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ScannedFolder {
    pub path: PathBuf,
    /// Whether it exists and could be listed.
    pub readable: bool,
    /// Its file system, if it exists.
    pub identity: Option<FolderIdentity>,
    /// Whether it has been unchanged long enough for missing files to count.
    pub quiet: bool,
}

/// One file in force.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct FileView {
    /// Its name, without the folder.
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
    /// Hash of its bytes.
    pub fingerprint: String,
    /// The DaemonSets that it defines, or defined when it was last valid.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// Its other objects, likewise. A recording has their names alone.
    #[serde(with = "marks::references")]
    pub objects: Vec<(ObjectRef, Arc<Value>)>,
    /// Its objects of kinds that are ignored.
    pub ignored: Vec<Ignored>,
    /// What is wrong in it.
    pub problems: Vec<InputProblem>,
    pub unknown_fields: Vec<InputProblem>,
    /// Whether all objects that it should define are known.
    pub complete: bool,
    stamp: Stamp,
    quiet: bool,
    /// Whether it was taken before it rested, as nothing else was known of it.
    #[serde(default)]
    early: bool,
    /// Whether the file has changed since, and does not rest yet.
    #[serde(default)]
    held: bool,
    /// Whether nothing is at its path any more, which is no evidence that it was removed.
    #[serde(default)]
    vanished: bool,
    /// The file system of its folder when that last existed.
    mounted: Option<FolderIdentity>,
    /// Whether no document is in it.
    #[serde(default)]
    blank: bool,
    /// Whether it stands before a file of its name in an earlier folder.
    #[serde(default)]
    hides: bool,
}

impl FolderView {
    /// Whether `other` was made of the same folders and files, none of which was read again.
    pub fn is_same(&self, other: &Self) -> bool {
        let files = || self.files.iter().zip(&other.files);
        self.files.len() == other.files.len()
            && files().all(|(one, other)| Arc::ptr_eq(one, other))
            && (&self.folders, &self.masked, &self.notes) == (&other.folders, &other.masked, &other.notes)
            && (&self.empty, &self.masks) == (&other.empty, &other.masks)
            && (&self.problems, self.recheck, self.is_held) == (&other.problems, other.recheck, other.is_held)
    }

    /// The DaemonSets in force.
    pub fn daemon_sets(&self) -> impl Iterator<Item = &Arc<DaemonSet>> {
        self.daemon_sets.values().map(|(daemon_set, _)| daemon_set)
    }

    /// The definition of `key` in force.
    pub fn daemon_set(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.daemon_sets.get(key).map(|(daemon_set, _)| daemon_set)
    }

    /// The other objects in force.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Value>)> {
        self.objects.iter()
    }

    /// An object in force.
    pub fn object(&self, reference: &ObjectRef) -> Option<&Arc<Value>> {
        self.objects.get(reference)
    }

    /// The files in force by the objects other than DaemonSets that they define in force.
    pub fn files_by_object(&self) -> BTreeMap<&ObjectRef, &FileView> {
        let mut files: BTreeMap<&ObjectRef, &FileView> = BTreeMap::new();
        for file in &self.files {
            for (reference, _) in &file.objects {
                if files.get(reference).is_none_or(|known| file.takes_the_place_of(known)) {
                    files.insert(reference, file);
                }
            }
        }
        files
    }

    /// The file that defines an object other than a DaemonSet in force.
    pub fn file_of_object(&self, reference: &ObjectRef) -> Option<&FileView> {
        let files = self.files.iter().map(Arc::as_ref);
        let defining = files.filter(|file| file.objects.iter().any(|(other, _)| other == reference));
        defining.reduce(|known, file| if file.takes_the_place_of(known) { file } else { known })
    }

    /// The file that defines `key`.
    pub fn file_of(&self, key: &ObjectKey) -> Option<&FileView> {
        let (_, file) = self.daemon_sets.get(key)?;
        self.files.get(*file).map(Arc::as_ref)
    }

    /// Whether a file or folder could not be read completely, so that there may be unknown definitions.
    pub fn is_incomplete(&self) -> bool {
        self.files.iter().any(|file| !file.complete)
            || self.folders.iter().any(|folder| folder.identity.is_some() && !folder.readable)
    }

    /// Whether a folder may be there and cannot be read.
    pub fn has_unreadable_folder(&self) -> bool {
        let is_reported = |path: &PathBuf| self.problems.iter().any(|problem| problem.file == *path);
        self.folders.iter().any(|folder| !folder.readable && is_reported(&folder.path))
    }

    /// Whether a file or folder may define what is not known: it cannot be read whole, or it has no document, as files on
    /// a full disk.
    pub fn may_define_more(&self) -> bool {
        self.is_unread() || !self.empty.is_empty()
    }

    /// Whether a file or folder that may be there cannot be read whole.
    pub fn is_unread(&self) -> bool {
        self.is_incomplete() || self.has_unreadable_folder()
    }

    /// Every problem: of folders, between files, and in each file.
    pub fn all_problems(&self) -> impl Iterator<Item = &InputProblem> {
        self.problems.iter().chain(self.files.iter().flat_map(|file| &file.problems))
    }

    /// The problems of `key` in the files, even if another file defines it correctly.
    pub fn problems_of(&self, key: &ObjectKey) -> impl Iterator<Item = &InputProblem> {
        let of_it = |object: &ObjectName| object.kind == "DaemonSet" && object.key == *key;
        self.all_problems().filter(move |problem| problem.object.as_ref().is_some_and(of_it))
    }

    /// The problems of files and documents whose objects are unknown: they may concern any object.
    pub fn nameless_problems(&self) -> impl Iterator<Item = &InputProblem> {
        let hides = |problem: &&InputProblem| problem.kind == ProblemKind::Syntax || problem.line > 0;
        self.all_problems().filter(|problem| problem.object.is_none()).filter(hides)
    }

    /// Whether the file that defines `key` does not rest, so that another definition may follow.
    pub fn is_restless(&self, key: &ObjectKey) -> bool {
        self.file_of(key).is_some_and(FileView::is_restless)
    }

    /// Whether what defines `key` is remembered, as its file is not there or cannot be read whole.
    pub fn is_remembered(&self, key: &ObjectKey) -> bool {
        self.file_of(key).is_some_and(|file| !file.complete)
    }

    /// The files that have changed and do not rest yet: their last version counts.
    pub fn held(&self) -> impl Iterator<Item = &Arc<FileView>> {
        self.files.iter().filter(|file| file.held)
    }

    /// Unknown fields in the definition of `key` that is in force.
    pub fn unknown_fields_of(&self, key: &ObjectKey) -> impl Iterator<Item = &InputProblem> {
        let unknown_fields = self.file_of(key).into_iter().flat_map(|file| &file.unknown_fields);
        unknown_fields
            .filter(move |unknown_field| unknown_field.object.as_ref().is_some_and(|object| object.key == *key))
    }

    /// This view without what files that are not there last defined of `daemons`, as the view before the next [`read`];
    /// `None`: they define none of them. A file that defines nothing else that runs hides none of its name any more.
    pub fn without_vanished(&self, daemons: &BTreeSet<ObjectKey>) -> Option<Self> {
        let defines = |file: &FileView| file.vanished && file.daemon_sets.iter().any(|d| daemons.contains(&d.key));
        if !self.files.iter().any(|file| defines(file)) {
            return None;
        }
        let mut view = self.clone();
        view.files.retain_mut(|file| {
            if !defines(file) {
                return true;
            }
            let file = Arc::make_mut(file);
            file.daemon_sets.retain(|daemon_set| !daemons.contains(&daemon_set.key));
            !file.daemon_sets.is_empty()
        });
        Some(view)
    }

    /// Puts the files' objects in force in the order of their names: the last definition wins, the others are
    /// reported.
    fn take_into_force(&mut self) {
        let mut objects_from: BTreeMap<ObjectRef, usize> = BTreeMap::new();
        let twice = |files: &[Arc<FileView>], loser: usize, winner: usize, object: String| InputProblem {
            file: files[loser].path.clone(),
            line: 0,
            column: 0,
            object: None,
            field: None,
            reason: if loser == winner {
                format!("{object} is defined twice; the last definition is used")
            } else {
                format!("{object} is defined again in {}; that definition is used", files[winner].path.display())
            },
            hint: Some("rename one of them, or remove it".to_owned()),
            kind: ProblemKind::Invalid,
        };
        let mut problems = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            let may_take = |definer: Option<usize>| {
                definer.is_none_or(|definer| definer == index || file.takes_the_place_of(&self.files[definer]))
            };
            for daemon_set in &file.daemon_sets {
                if !may_take(self.daemon_sets.get(&daemon_set.key).map(|(_, definer)| *definer)) {
                    continue;
                }
                let entry = (Arc::clone(daemon_set), index);
                if let Some((_, loser)) = self.daemon_sets.insert(daemon_set.key.clone(), entry) {
                    problems.push(twice(&self.files, loser, index, format!("DaemonSet {}", daemon_set.key)));
                }
            }
            for (reference, value) in &file.objects {
                if !may_take(objects_from.get(reference).copied()) {
                    continue;
                }
                self.objects.insert(reference.clone(), Arc::clone(value));
                if let Some(loser) = objects_from.insert(reference.clone(), index) {
                    problems.push(twice(&self.files, loser, index, reference.to_string()));
                }
            }
        }
        self.problems.extend(bounded(problems));
    }
}

impl FileView {
    /// Whether it does not rest, so that it may define something else in a moment.
    pub fn is_restless(&self) -> bool {
        self.early || self.held
    }

    /// Whether nothing is at its path any more, which is no evidence that it was removed.
    pub fn has_vanished(&self) -> bool {
        self.vanished
    }

    /// Whether what it defines takes the place of what `other`, which stands before it, defines: not before it has rested,
    /// nor where it lies below the mount that `other` was read from.
    fn takes_the_place_of(&self, other: &FileView) -> bool {
        !(self.early || other.folder == self.folder && other.lacks_mount(self.mounted.as_ref()))
    }

    /// Whether the file system that it was read from is not mounted now: its folder has `now`, which lies below.
    fn lacks_mount(&self, now: Option<&FolderIdentity>) -> bool {
        self.mounted.as_ref().zip(now).is_some_and(|(then, now)| then.is_missing_on(now))
    }

    /// What it is to the others.
    pub fn role(&self) -> FileRole {
        if self.hides { FileRole::Hides } else { FileRole::Defines }
    }

    /// The file system of its folder when that last existed.
    pub fn mounted(&self) -> Option<&FolderIdentity> {
        self.mounted.as_ref()
    }
}

#[cfg(test)]
mod tests;
