//! The folders as the loop uses them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::sources::FolderWord;
use crate::core::status::Problem;
use crate::node::folders::FolderState;

use super::objects::Versioned;

pub(super) struct Folders {
    daemon_sets: BTreeMap<ObjectKey, (Arc<DaemonSet>, String)>,
    objects: Versioned,
}

impl Folders {
    pub(super) fn new(_folders: Vec<PathBuf>) -> Self {
        Self { daemon_sets: BTreeMap::new(), objects: Versioned::new() }
    }
    pub(super) fn recall(&mut self, _states: &[FolderState]) {}
    pub(super) fn watch(&mut self, _wake: Arc<Notify>) {}
    pub(super) fn reread(&mut self) {}
    pub(super) fn refresh(&mut self, _problems: &mut Vec<Problem>) {}
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.daemon_sets.keys()
    }
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.daemon_sets.get(key).map(|(d, _)| d)
    }
    pub(super) fn objects(&self) -> &Versioned {
        &self.objects
    }
    pub(super) fn states(&self) -> Vec<FolderState> {
        Vec::new()
    }
    pub(super) fn word<'a>(&'a self, key: &ObjectKey, _record: &'a DaemonRecord) -> FolderWord<'a> {
        match self.daemon_sets.get(key) {
            Some((daemon_set, fingerprint)) => FolderWord::Present { daemon_set, fingerprint },
            None => FolderWord::Unsure { reason: "x" },
        }
    }
}
