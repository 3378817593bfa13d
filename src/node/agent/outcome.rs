//! What became of a decision's effects, as a value.
//!
//! Owns its form. Must not say what follows: `super::state` and `super::report` do.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::record::Forgotten;
use crate::core::status::Problem;

use super::failure::EffectFailure;
use super::inputs_on_disk::SavedInputsMark;

/// What became of a decision's effects.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct EffectOutcome {
    /// Pods whose gates could not be closed.
    pub(super) left_open: BTreeSet<String>,
    /// Pods whose gates could not be opened.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) left_closed: BTreeSet<String>,
    /// Daemons of which an effect failed; what came before it was done.
    pub(super) failures: BTreeMap<ObjectKey, EffectFailure>,
    /// Those of them of which nothing ends or is replaced: there is no state folder, or the disk does not take the record
    /// or the new instance.
    #[serde(rename = "without_state", skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) held_up: BTreeSet<ObjectKey>,
    /// What became of the planned records; of a daemon that is not here the record before stays in force.
    pub(super) records: BTreeMap<ObjectKey, RecordFate>,
    /// Digests of the volume data that was written, by pod UID.
    pub(super) written: BTreeMap<String, String>,
    /// Pods whose volume data could not be written whole: what they have is not known, and is tried again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unwritten: BTreeSet<String>,
    /// Pods whose data or manifest was written in place.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) refreshed: BTreeSet<String>,
    /// Instances of which nothing runs any more.
    pub(super) finished: BTreeSet<String>,
    /// Manifests that were touched: digests of the file with the annotation and without, by pod UID.
    pub(super) touched: BTreeMap<String, (String, String)>,
    /// Folders of ended pods: what became of each.
    pub(super) cleared: BTreeMap<String, ClearResult>,
    pub(super) forgotten: Option<Forgotten>,
    /// The state folder was made anew: nothing that is remembered is on disk.
    pub(super) state_folder_is_new: bool,
    /// The remembered inputs that were saved.
    pub(super) inputs_saved: Option<SavedInputsMark>,
    /// What went wrong beside single daemons.
    pub(super) problems: Vec<Problem>,
    /// Effects that were executed.
    pub(super) counts: EffectCounts,
}

/// What became of a planned record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum RecordFate {
    OnDisk,
    /// It could not be written; its numbers are used up nevertheless.
    InMemory,
}

/// What became of the folder of an ended pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum ClearResult {
    Gone,
    /// Something is mounted in it.
    Mounted,
    Failed,
}

/// Effects that were executed, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct EffectCounts {
    pub(super) starts: u64,
    pub(super) ends: u64,
    pub(super) refreshes: u64,
}
