//! The folders of DaemonSet files as a pass observed them, and what it asks of them.
//!
//! Owns what the absence of a file means. Must not read a folder.

use crate::core::sources::Unproven;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::core::annotations;
use crate::core::input;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::record::DaemonRecord;
use crate::core::sources;
use crate::core::sources::FolderState;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::folders::FileView;
use crate::node::folders::FolderOrigin;
use crate::node::folders::FolderView;
use crate::node::recording::marks;

use super::versioned_objects::Versioned;

/// How many notes on the folders are given.
const NOTES: usize = 20;

/// The folders of DaemonSet files.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct ObservedFolders {
    pub(super) view: Arc<FolderView>,
    /// The objects other than DaemonSets.
    #[serde(with = "marks::shared_objects")]
    pub(super) objects: Arc<Versioned>,
    /// When to read them again though nothing is seen to change: something in them does not rest yet.
    pub(super) again_at: Option<Timestamp>,
}

/// A problem of a file, as `status` shows it.
pub(super) fn as_problem(problem: &input::InputProblem) -> Problem {
    Problem { object: problem.place(), reason: problem.what(), hint: problem.hint.clone() }
}

impl ObservedFolders {
    /// The DaemonSets that files define.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.view.daemon_sets().map(|daemon_set| &daemon_set.key)
    }

    /// The definition in force.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.view.daemon_set(key)
    }

    /// The DaemonSets that override the API's, with the fingerprints of their files.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let overriding = self.view.daemon_sets().filter(|daemon_set| sources::is_override(daemon_set));
        overriding.filter_map(|daemon_set| Some((&daemon_set.key, self.fingerprint(&daemon_set.key)?)))
    }

    /// Whether the file of `key` is as it was when the API got a newer version of it, or is not known.
    pub(super) fn is_superseded(&self, key: &ObjectKey, superseded: &BTreeMap<ObjectKey, String>) -> bool {
        superseded.get(key).is_some_and(|file| self.fingerprint(key).is_none_or(|now| now == file))
    }

    /// Whether no file overrides the API's `key` any more as the file with that fingerprint did. A file that cannot be read
    /// now is no evidence.
    pub(super) fn is_another(&self, key: &ObjectKey, file: &str) -> bool {
        match self.view.state(key, None) {
            FolderState::Present { fingerprint, .. } => {
                fingerprint != file || !self.get(key).is_some_and(|daemon_set| sources::is_override(daemon_set))
            }
            FolderState::Absent => !self.may_define(key),
            FolderState::Unsure { .. } => false,
        }
    }

    /// The fingerprint of the file that defines `key`.
    pub(super) fn fingerprint(&self, key: &ObjectKey) -> Option<&str> {
        match self.view.state(key, None) {
            FolderState::Present { fingerprint, .. } => Some(fingerprint),
            FolderState::Absent | FolderState::Unsure { .. } => None,
        }
    }

    /// The fingerprint of the file that defines an object which is no DaemonSet.
    pub(super) fn object_fingerprint(&self, reference: &ObjectRef) -> Option<&str> {
        self.view.file_of_object(reference).map(|file| file.fingerprint.as_str())
    }

    /// Whether the folders may define objects that they do not show: they are not read whole. For a daemon that a file
    /// defines, as `source` says, also: a file is empty, or its own is not there, and the objects may be gone with it.
    pub(super) fn may_define_more(&self, source: Option<&Source>) -> bool {
        let is_gone = |path: &Path| !self.view.files.iter().any(|file| file.path == path);
        self.view.is_unread()
            || matches!(source, Some(Source::File { path }) if self.view.may_define_more() || is_gone(path))
    }

    /// The file that defines an object which is no DaemonSet.
    pub(super) fn file_of(&self, reference: &ObjectRef) -> Option<String> {
        self.view.file_of_object(reference).map(|file| file.path.display().to_string())
    }

    /// Whether the file that defines an object which is no DaemonSet does not rest: it may be another version than what
    /// runs was made with.
    pub(super) fn is_restless(&self, reference: &ObjectRef) -> bool {
        self.defining(reference).is_some_and(|file| file.is_restless())
    }

    /// Whether the file that defines an object which is no DaemonSet is known from an earlier process alone, and what it is
    /// now does not rest.
    pub(super) fn is_unread_change(&self, reference: &ObjectRef) -> bool {
        self.defining(reference).is_some_and(|file| file.is_restless() && !file.complete)
    }

    fn defining(&self, reference: &ObjectRef) -> Option<&Arc<FileView>> {
        self.view.files.iter().rev().find(|file| file.objects.iter().any(|(r, _)| r == reference))
    }

    /// What of the folders is not read: the first of that, and how much there is besides.
    pub(super) fn notes(&self) -> Vec<String> {
        let notes = &self.view.notes;
        let more = notes.len().saturating_sub(NOTES);
        let more = (more > 0).then(|| format!("{more} more names in the folders are ignored or passed over"));
        notes.iter().take(NOTES).cloned().chain(more).collect()
    }

    /// What is wrong with `key` in the files; where no file names it, what may hide it.
    pub(super) fn problems_of(&self, key: &ObjectKey) -> Vec<Problem> {
        let of_it: Vec<Problem> = self.view.problems_of(key).map(as_problem).collect();
        match of_it.is_empty() && self.get(key).is_none() {
            true => self.view.nameless_problems().map(as_problem).collect(),
            false => of_it,
        }
    }

    /// The fields that are not understood in the definition of `key` that is in force.
    pub(super) fn unknown_fields_of(&self, key: &ObjectKey) -> impl Iterator<Item = FieldError> {
        self.view.unknown_fields_of(key).map(|unknown| FieldError {
            field: format!("{}: {}", unknown.place(), unknown.field.as_deref().unwrap_or_default()),
            reason: unknown.reason.clone(),
            hint: unknown.hint.clone(),
        })
    }

    /// The annotations and labels of ours that are not understood on the files' objects of these names.
    pub(super) fn mistakes_on<'a>(
        &'a self,
        references: &'a BTreeSet<ObjectRef>,
    ) -> impl Iterator<Item = FieldError> + 'a {
        references.iter().flat_map(move |reference| {
            let object = self.view.object(reference);
            let mistakes = object.map(|object| annotations::mistakes_on(reference.kind, object)).unwrap_or_default();
            mistakes.into_iter().map(move |mistake| {
                let file = self.file_of(reference).unwrap_or_default();
                FieldError { field: format!("{file}: {reference}: {}", mistake.field), ..mistake }
            })
        })
    }

    /// Notes where daemons that are about to start come from; gives whether one of them was not known before.
    pub(super) fn note_origins<'a>(
        &self,
        origins: &mut BTreeMap<ObjectKey, FolderOrigin>,
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

    /// Where each daemon that runs or starts comes from: kept when it is defined, remembered when it is not. No file has to
    /// do with what runs by the API's word any more once it is gone, and that is in its mode without it (`has_mode`).
    pub(super) fn follow_origins<'a>(
        &self,
        origins: &mut BTreeMap<ObjectKey, FolderOrigin>,
        records: impl Iterator<Item = &'a DaemonRecord>,
        starting: impl Iterator<Item = &'a ObjectKey>,
        has_mode: impl Fn(&DaemonSet) -> bool,
    ) {
        let known = std::mem::take(origins);
        let empty = DaemonRecord::new(ObjectKey::new("", ""), 0);
        let running = records.filter(|r| r.runs_or_returns()).map(|r| (&r.key, r));
        for (key, record) in running.chain(starting.map(|key| (key, &empty))) {
            let is_the_apis = |runs: &Arc<DaemonSet>| runs.source == Source::Api && has_mode(runs);
            let origin = match self.state(key, &known, record) {
                FolderState::Present { .. } => self.view.origin_of(key),
                FolderState::Absent if record.definition().is_some_and(is_the_apis) => continue,
                FolderState::Absent | FolderState::Unsure { .. } => None,
            };
            origins.extend(origin.or_else(|| known.get(key).cloned()).map(|origin| (key.clone(), origin)));
        }
    }

    /// What the folders say of a daemon.
    pub(super) fn state<'a>(
        &'a self,
        key: &ObjectKey,
        origins: &BTreeMap<ObjectKey, FolderOrigin>,
        record: &DaemonRecord,
    ) -> FolderState<'a> {
        let origin = origins.get(key);
        let state = match made_from(record).filter(|_| origin.is_none()) {
            Some(path) => self.view.state_by_path(key, path),
            None => self.view.state(key, origin),
        };
        let unknown = origin.is_none() && record.api_uid.is_none() && record.runs_or_returns();
        match state {
            // Such as after a start with older inputs than what runs was made from: the definition is no newer than that.
            FolderState::Present { daemon_set, .. }
                if (self.view.is_remembered(key) || self.view.is_restless(key))
                    && sources::may_be_older(state, record) =>
            {
                FolderState::Unsure { reason: Unproven::FileUnread { overrides: sources::is_override(daemon_set) } }
            }
            FolderState::Present { daemon_set, .. } if self.view.is_restless(key) && replaces(record, daemon_set) => {
                FolderState::Unsure { reason: Unproven::FileChanging }
            }
            // Otherwise it would count again as soon as it can be read.
            FolderState::Absent if record.ignored_file.is_some() && self.may_define(key) => {
                FolderState::Unsure { reason: Unproven::AnyUnread }
            }
            FolderState::Absent if unknown && !made_from(record).is_some_and(|path| self.view.is_masked(path)) => {
                FolderState::Unsure { reason: Unproven::OriginUnknown }
            }
            state => state,
        }
    }

    /// Whether the folders do not show what they define of a daemon.
    pub(super) fn is_unsure(&self, record: &DaemonRecord, origins: &BTreeMap<ObjectKey, FolderOrigin>) -> bool {
        matches!(self.state(&record.key, origins, record), FolderState::Unsure { .. })
    }

    /// Whether a file may be meant to define `key`, though none does.
    fn may_define(&self, key: &ObjectKey) -> bool {
        self.view.may_define_more() || self.view.problems_of(key).next().is_some()
    }
}

/// Whether something else from a file runs than `daemon_set`.
fn replaces(record: &DaemonRecord, daemon_set: &DaemonSet) -> bool {
    let is_another = |runs: &Arc<DaemonSet>| runs.source != Source::Api && **runs != *daemon_set;
    record.live().any(|instance| instance.daemon_set.as_ref().is_none_or(is_another))
}

/// The file that the newest instance was made from.
fn made_from(record: &DaemonRecord) -> Option<&Path> {
    let newest = record.live().filter_map(|instance| instance.daemon_set.as_ref()).last()?;
    match &newest.source {
        Source::File { path } => Some(path),
        _ => None,
    }
}
