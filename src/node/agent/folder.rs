//! The folders as the loop uses them: read when they may have changed, with what was last good.
//!
//! Owns the view between passes and the origins of what came from files. Must not decide.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tokio::sync::Notify;

use crate::core::input;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::sources::FolderState;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Entry;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::FoldersWatch;
use crate::node::folders::Origin;
use crate::node::fsx::Shared;

use super::now;
use super::objects::Versioned;

/// The folders are read at least this often: a link's target can change unseen.
const PERIOD: Span = Span::from_secs(60);

/// The folders and what was last read of them.
pub(super) struct Folders {
    disk: Shared,
    paths: Vec<PathBuf>,
    view: FolderView,
    objects: Versioned,
    /// Grows with every object that changes.
    version: u64,
    changed: Arc<AtomicBool>,
    read_at: Timestamp,
    /// Why the folders are polled, if they are.
    trouble: Arc<Mutex<Option<String>>>,
}

/// A problem of a file, as `status` tells it.
fn as_problem(problem: &input::InputProblem) -> Problem {
    Problem { object: problem.place(), reason: problem.what(), hint: problem.hint.clone() }
}

impl Folders {
    /// Folders in ascending precedence; nothing is read yet.
    pub(super) fn new(disk: Shared, paths: Vec<PathBuf>) -> Self {
        Self {
            disk,
            paths,
            view: FolderView::default(),
            objects: Versioned::new(),
            version: 0,
            changed: Arc::new(AtomicBool::new(true)),
            read_at: Timestamp::MIN,
            trouble: Arc::default(),
        }
    }

    /// Wakes the loop whenever a folder may have changed.
    pub(super) fn watch(&mut self, wake: Arc<Notify>) {
        let mut watch = FoldersWatch::new(Arc::clone(&self.disk), &self.paths);
        let (changed, trouble) = (Arc::clone(&self.changed), Arc::clone(&self.trouble));
        let tell = move |watch: &FoldersWatch| {
            let mut as_problem = trouble.lock().unwrap_or_else(PoisonError::into_inner);
            *as_problem = watch.trouble().map(str::to_owned);
        };
        tell(&watch);
        tokio::spawn(async move {
            loop {
                watch.changed().await;
                tell(&watch);
                changed.store(true, Ordering::Relaxed);
                wake.notify_one();
            }
        });
    }

    /// The next pass reads them again.
    pub(super) fn reread(&mut self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Reads what may have changed, and says what is wrong.
    pub(super) fn refresh(&mut self, problems: &mut Vec<Problem>) {
        let at = now();
        let due = self.recheck_at().is_some_and(|recheck| at >= recheck) || at - self.read_at >= PERIOD;
        if self.changed.swap(false, Ordering::Relaxed) || due {
            self.view = folders::read(&self.disk, &self.paths, &self.view, SystemTime::now());
            self.read_at = at;
            self.follow_objects();
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend(trouble.map(|why| Problem { object: "folders".to_owned(), reason: why, hint: None }));
        problems.extend(self.view.all_problems().map(as_problem));
    }

    fn follow_objects(&mut self) {
        let mut objects = Versioned::new();
        for (reference, value) in self.view.objects() {
            let entry = match self.objects.remove(reference) {
                Some(entry) if entry.value == *value => entry,
                _ => {
                    self.version += 1;
                    Entry { version: self.version, value: Arc::clone(value) }
                }
            };
            objects.insert(reference.clone(), entry);
        }
        self.objects = objects;
    }

    /// When something that has not settled yet is to be read again.
    pub(super) fn recheck_at(&self) -> Option<Timestamp> {
        Some(self.read_at + self.view.recheck?.into())
    }

    /// The DaemonSets that files define.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.view.daemon_sets().map(|daemon_set| &daemon_set.key)
    }

    /// The definition in force.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.view.daemon_sets().find(|daemon_set| daemon_set.key == *key)
    }

    /// What is wrong with `key` in the files; where no file names it, what may hide it.
    pub(super) fn problems_of(&self, key: &ObjectKey) -> Vec<Problem> {
        let of_it: Vec<Problem> = self.view.problems_of(key).map(as_problem).collect();
        match of_it.is_empty() && self.get(key).is_none() {
            true => self.view.nameless_problems().map(as_problem).collect(),
            false => of_it,
        }
    }

    /// What nobody understands in the definition of `key` that is in force.
    pub(super) fn doubts_of(&self, key: &ObjectKey) -> impl Iterator<Item = FieldError> {
        self.view.unknown_fields_of(key).map(|doubt| FieldError {
            field: format!("{}: {}", doubt.place(), doubt.field.as_deref().unwrap_or_default()),
            reason: doubt.reason.clone(),
            hint: doubt.hint.clone(),
        })
    }

    /// The other objects.
    pub(super) fn objects(&self) -> &Versioned {
        &self.objects
    }

    /// Notes where daemons that are about to start come from; gives whether one of them was not known before.
    pub(super) fn note_origins<'a>(
        &self,
        origins: &mut BTreeMap<ObjectKey, Origin>,
        daemons: impl Iterator<Item = &'a ObjectKey>,
    ) -> bool {
        let known = origins.len();
        for key in daemons {
            if let Some(origin) = self.view.origin_of(key) {
                origins.entry(key.clone()).or_insert(origin);
            }
        }
        origins.len() > known
    }

    /// Where each daemon that runs or starts comes from: kept when it is defined, remembered when it is not.
    pub(super) fn follow_origins<'a>(
        &self,
        origins: &mut BTreeMap<ObjectKey, Origin>,
        records: impl Iterator<Item = &'a DaemonRecord>,
        starting: impl Iterator<Item = &'a ObjectKey>,
    ) {
        let known = std::mem::take(origins);
        for key in records.filter(|r| !r.instances.is_empty()).map(|r| &r.key).chain(starting) {
            let origin = self.view.origin_of(key).or_else(|| known.get(key).cloned());
            origins.extend(origin.map(|origin| (key.clone(), origin)));
        }
    }

    /// What the folders say of a daemon.
    pub(super) fn state<'a>(
        &'a self,
        key: &ObjectKey,
        origins: &BTreeMap<ObjectKey, Origin>,
        record: &DaemonRecord,
    ) -> FolderState<'a> {
        let origin = origins.get(key);
        let word = self.view.state(key, origin);
        let unknown = origin.is_none() && record.api_uid.is_none() && !record.instances.is_empty();
        match word {
            FolderState::Absent if unknown => {
                FolderState::Unsure { reason: "no file defines it, and nobody remembers where it came from" }
            }
            word => word,
        }
    }
}
