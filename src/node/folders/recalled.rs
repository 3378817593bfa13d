//! Files as an earlier process last read them: the state with which a new reader begins.
//!
//! They never count as the present content of a file, only as its last definitions.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use super::FileView;
use super::FolderIdentity;
use super::FolderView;
use super::Mask;
use super::file;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectRef;

/// What a file is to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileRole {
    /// It defines something.
    #[default]
    Defines,
    /// It stands before a file of the same name in an earlier folder, too.
    Hides,
    /// It is a link to /dev/null.
    Masks,
}

impl FileRole {
    /// Whether it does not affect the others.
    pub fn is_plain(&self) -> bool {
        *self == Self::Defines
    }
}

/// What is remembered of one file.
#[derive(Clone, Debug)]
pub struct RecalledFile {
    pub role: FileRole,
    pub path: PathBuf,
    /// Hash of its bytes.
    pub fingerprint: String,
    /// The file system of its folder.
    pub mounted: Option<FolderIdentity>,
    /// What it last defined, as far as that was in use.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    pub objects: Vec<(ObjectRef, Arc<Value>)>,
}

impl FolderView {
    /// This view with what is remembered of more files, as the view before the next [`super::read`].
    pub fn with_recalled(&self, files: impl Iterator<Item = RecalledFile>) -> Self {
        let mut view = self.clone();
        for recalled in files {
            if recalled.role == FileRole::Masks {
                let mask = Mask { path: recalled.path, mounted: recalled.mounted };
                if !view.masks.iter().any(|known| known.path == mask.path) {
                    view.masks.push(mask);
                }
                continue;
            }
            match view.files.iter_mut().find(|file| file.path == recalled.path) {
                Some(file) => *file = Arc::new(file.with(recalled)),
                None => view.files.push(Arc::new(FileView::recalled(recalled))),
            }
        }
        view
    }
}

impl FileView {
    fn recalled(recalled: RecalledFile) -> Self {
        let folder = recalled.path.parent().unwrap_or(&recalled.path);
        let RecalledFile { role, ref path, fingerprint, mounted, daemon_sets, objects } = recalled;
        let hides = role == FileRole::Hides;
        Self { fingerprint, mounted, daemon_sets, objects, hides, ..file::unread(path, folder) }
    }

    /// The same file with more that it last defined; it is read again.
    fn with(&self, more: RecalledFile) -> Self {
        let mut file = Self { quiet: false, ..self.clone() };
        let new = |(reference, _): &(ObjectRef, _)| !file.objects.iter().any(|(known, _)| known == reference);
        let objects: Vec<_> = more.objects.into_iter().filter(new).collect();
        file.objects.extend(objects);
        file
    }
}
