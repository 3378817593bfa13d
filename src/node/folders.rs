//! The folders of DaemonSet files: what is in them, what counts, and what their absence proves.
//!
//! Owns reading and watching. Folders are merged as systemd merges drop-ins: by file name, a later folder's file in
//! place of an earlier one's, an empty file (or a link to `/dev/null`) in place of none. Files end in `.yaml`, `.yml`
//! or `.json`; hidden files are passed over, others are noted. A file that turns bad keeps what it last defined, and
//! what a file or folder loses counts only once it has been left alone for [`QUIET_PERIOD`], so that a file that is being
//! written is never taken for one that lost its objects.
//!
//! Must not decide what follows: it says which objects there are, from which file, and what is wrong.

mod file;
mod identity;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::input::Ignored;
use crate::core::input::InputProblem;
use crate::core::input::ObjectName;
use crate::core::input::ProblemKind;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::sources::FolderState;
use crate::node::fsx::Stamp;

pub use identity::FolderIdentity;
pub use scan::read;
pub use watch::FoldersWatch;

/// How long a file or folder must be unchanged before what it lost counts as lost.
pub const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// Everything that the folders say.
#[derive(Clone, Debug, Default)]
pub struct FolderView {
    /// The folders, in ascending precedence.
    pub folders: Vec<ScannedFolder>,
    /// The files that count, by name.
    pub files: Vec<Arc<FileView>>,
    /// The names that an empty file masks.
    pub masked: Vec<String>,
    /// The DaemonSets in force, each with the index of its file.
    daemon_sets: BTreeMap<ObjectKey, (Arc<DaemonSet>, usize)>,
    /// The other objects in force.
    objects: BTreeMap<ObjectRef, Arc<Value>>,
    /// Problems that are not those of one file: folders that cannot be read, objects that are defined twice.
    pub problems: Vec<InputProblem>,
    /// Files that do not count, for people: other extensions, folders in folders.
    pub notes: Vec<String>,
    /// When to read again although nothing changes: something has not settled yet.
    pub recheck: Option<Duration>,
}

/// One folder as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct ScannedFolder {
    pub path: PathBuf,
    /// Whether it is there and could be listed.
    pub readable: bool,
    /// On which file system it is, if it is there.
    pub identity: Option<FolderIdentity>,
    /// Whether it was left alone long enough for its absences to count.
    pub quiet: bool,
}

/// One file that counts.
#[derive(Clone, Debug)]
pub struct FileView {
    /// Its name, without the folder.
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
    /// Hash of its bytes.
    pub fingerprint: String,
    /// The DaemonSets that it defines, or that it defined when it was last good.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// Its other objects, likewise.
    pub objects: Vec<(ObjectRef, Arc<Value>)>,
    /// Its objects of kinds that nobody reads here.
    pub ignored: Vec<Ignored>,
    /// What is wrong in it.
    pub problems: Vec<InputProblem>,
    /// What nobody understands in it.
    pub unknown_fields: Vec<InputProblem>,
    /// Whether every object is known that it should define.
    pub complete: bool,
    stamp: Stamp,
    quiet: bool,
    /// On which file system its folder was when it was last there.
    mounted: Option<FolderIdentity>,
}

/// Where a DaemonSet came from, to be kept with what runs: it tells later whether an absence is evidence (rule R7).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// Where its folder was mounted.
    pub folder: FolderIdentity,
}

impl FolderView {
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

    /// The file that defines `key`.
    pub fn file_of(&self, key: &ObjectKey) -> Option<&FileView> {
        let (_, file) = self.daemon_sets.get(key)?;
        self.files.get(*file).map(Arc::as_ref)
    }

    /// Where `key` comes from, to be remembered while it runs.
    pub fn origin_of(&self, key: &ObjectKey) -> Option<Origin> {
        let file = self.file_of(key)?;
        // Not where its folder is now: a file that is kept may be missing because that is another one.
        Some(Origin { path: file.path.clone(), folder: file.mounted.clone()? })
    }

    /// Whether some file or folder could not be read completely, so that more may be defined than is known.
    pub fn is_incomplete(&self) -> bool {
        self.files.iter().any(|file| !file.complete)
            || self.folders.iter().any(|folder| folder.identity.is_some() && !folder.readable)
    }

    /// Every problem: of folders, between files, and in each file.
    pub fn all_problems(&self) -> impl Iterator<Item = &InputProblem> {
        self.problems.iter().chain(self.files.iter().flat_map(|file| &file.problems))
    }

    /// What is wrong with `key` in the files, whether or not one of them defines it well.
    pub fn problems_of(&self, key: &ObjectKey) -> impl Iterator<Item = &InputProblem> {
        let of_it = |object: &ObjectName| object.kind == "DaemonSet" && object.key == *key;
        self.all_problems().filter(move |problem| problem.object.as_ref().is_some_and(of_it))
    }

    /// What is wrong with files and documents that tell no name: any object may be in them.
    pub fn nameless_problems(&self) -> impl Iterator<Item = &InputProblem> {
        let hides = |problem: &&InputProblem| problem.kind == ProblemKind::Syntax || problem.line > 0;
        self.all_problems().filter(|problem| problem.object.is_none()).filter(hides)
    }

    /// What nobody understands in the definition of `key` that is in force.
    pub fn unknown_fields_of(&self, key: &ObjectKey) -> impl Iterator<Item = &InputProblem> {
        let unknown_fields = self.file_of(key).into_iter().flat_map(|file| &file.unknown_fields);
        unknown_fields
            .filter(move |unknown_field| unknown_field.object.as_ref().is_some_and(|object| object.key == *key))
    }

    /// What the folders say of `key`, which came from `origin` when it was last seen (`None`: from no folder).
    ///
    /// Its absence is evidence only where its file is gone or masked, or has good content without it, while
    /// the folder is on the same mounted file system as then.
    pub fn state(&self, key: &ObjectKey, origin: Option<&Origin>) -> FolderState<'_> {
        if let Some((daemon_set, file)) = self.daemon_sets.get(key) {
            let fingerprint = self.files.get(*file).map_or("", |file| file.fingerprint.as_str());
            return FolderState::Present { daemon_set, fingerprint };
        }
        let Some(origin) = origin else { return FolderState::Absent };
        let unsure = |reason| FolderState::Unsure { reason };
        let name = origin.path.file_name().map(|name| name.to_string_lossy());
        // A file of the same name in another folder hides it, and what that defines may not be known either.
        let is_it = |file: &&Arc<FileView>| file.path == origin.path || name.as_deref() == Some(file.name.as_str());
        if self.files.iter().filter(is_it).any(|file| !self.defines_well(file, key)) {
            return unsure("its file is not good");
        }
        if self.masked.iter().any(|masked| name.as_deref() == Some(masked)) {
            return FolderState::Absent;
        }
        let folder = origin.path.parent().and_then(|folder| self.folder(folder));
        match folder {
            None => unsure("its folder is not among the configured ones"),
            Some(ScannedFolder { identity: None, .. }) => unsure("its folder is missing"),
            Some(ScannedFolder { readable: false, .. }) => unsure("its folder cannot be read"),
            Some(state) if state.identity.as_ref() != Some(&origin.folder) => {
                unsure("its folder is not on the file system that it was on")
            }
            Some(state) if !state.quiet => unsure("its folder is being changed"),
            Some(_) => FolderState::Absent,
        }
    }

    /// Whether `file`, which does not define `key`, is to be believed.
    fn defines_well(&self, file: &FileView, key: &ObjectKey) -> bool {
        let refused = |problem: &InputProblem| problem.object.as_ref().is_some_and(|object| object.key == *key);
        file.complete && file.quiet && !file.problems.iter().any(refused)
    }

    fn folder(&self, path: &Path) -> Option<&ScannedFolder> {
        self.folders.iter().find(|folder| folder.path == path)
    }

    /// Takes the files' objects into force in the order of their names: the last definition wins, and the others are
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
                format!("{object} is defined twice, the last definition counts")
            } else {
                format!("{object} is defined again in {}, which counts", files[winner].path.display())
            },
            hint: Some("give one of them another name, or remove it".to_owned()),
            kind: ProblemKind::Invalid,
        };
        for (index, file) in self.files.iter().enumerate() {
            for daemon_set in &file.daemon_sets {
                let entry = (Arc::clone(daemon_set), index);
                if let Some((_, loser)) = self.daemon_sets.insert(daemon_set.key.clone(), entry) {
                    self.problems.push(twice(&self.files, loser, index, format!("DaemonSet {}", daemon_set.key)));
                }
            }
            for (reference, value) in &file.objects {
                self.objects.insert(reference.clone(), Arc::clone(value));
                if let Some(loser) = objects_from.insert(reference.clone(), index) {
                    self.problems.push(twice(&self.files, loser, index, reference.to_string()));
                }
            }
        }
    }
}

impl FileView {
    /// Whether `source` is this file.
    pub fn is_source(&self, source: &Source) -> bool {
        matches!(source, Source::File { path } if *path == self.path)
    }
}

#[cfg(test)]
mod tests;
