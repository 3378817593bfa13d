//! One view of the objects that daemons refer to: the API's, else the folders', else what was last known.
//!
//! Owns that order. An object that is only unknown is never absent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::node::api::Entry;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::render_cache::VersionedObjects;
use super::rollback_data;

/// Objects with the versions they were seen at.
pub(super) type Versioned = BTreeMap<ObjectRef, Entry>;

/// The view of one pass.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    /// The API's word; `None` without an API.
    pub(super) api: Option<&'a Snapshot>,
    /// Objects from the folders.
    pub(super) folders: &'a Versioned,
    /// What the API last said of objects in use, from the checkpoint and from earlier passes.
    pub(super) remembered: &'a Versioned,
    /// What was kept for a roll-back, for an instance that runs with it.
    pub(super) rollback_data: Option<&'a Versioned>,
    /// For an instance that runs: a deleted object is told as deleted, with its last value.
    pub(super) live: bool,
}

/// Where an answer came from; part of its version.
#[derive(Clone, Copy)]
enum Origin {
    Api = 1,
    Folder = 2,
    Remembered = 3,
    Deleted = 4,
    Absent = 5,
    Unknown = 6,
    Rollback = 7,
}

impl<'a> Objects<'a> {
    /// The object as it is used, if it is known.
    pub(super) fn entry(&self, reference: &ObjectRef) -> Option<&'a Entry> {
        self.find(reference).1
    }

    fn find(&self, reference: &ObjectRef) -> (Origin, Option<&'a Entry>) {
        let rollback_data = self.rollback_data.and_then(|rollback_data| rollback_data.get(reference));
        if self.rollback_data.is_some() && rollback_data::is_pinned(reference) {
            // What was not there then (it was optional) is not there now.
            return rollback_data.map_or((Origin::Absent, None), |entry| (Origin::Rollback, Some(entry)));
        }
        match (self.today(reference), rollback_data) {
            ((Origin::Absent | Origin::Unknown, None), Some(entry)) => (Origin::Rollback, Some(entry)),
            (found, _) => found,
        }
    }

    fn today(&self, reference: &ObjectRef) -> (Origin, Option<&'a Entry>) {
        if let Some(entry) = self.api.and_then(|api| api.objects.get(reference)) {
            return (Origin::Api, Some(entry));
        }
        if let Some(entry) = self.folders.get(reference) {
            return (Origin::Folder, Some(entry));
        }
        let Some(api) = self.api else { return (Origin::Absent, None) };
        let remembered = self.remembered.get(reference);
        let listed = api.lists(&Scope::Object(reference.clone())) > 0;
        match (listed, remembered) {
            (true, Some(entry)) if self.live => (Origin::Deleted, Some(entry)),
            (true, _) => (Origin::Absent, None),
            (false, Some(entry)) => (Origin::Remembered, Some(entry)),
            (false, None) => (Origin::Unknown, None),
        }
    }
}

impl ObjectSource for Objects<'_> {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        match self.find(reference) {
            (Origin::Deleted, Some(entry)) => Lookup::Deleted(&entry.value),
            (_, Some(entry)) => Lookup::Present(&entry.value),
            (Origin::Unknown, None) => Lookup::Unknown,
            (_, None) => Lookup::Absent,
        }
    }
}

impl VersionedObjects for Objects<'_> {
    fn version(&self, reference: &ObjectRef) -> u64 {
        let (origin, entry) = self.find(reference);
        entry.map_or(0, |e| e.version) * 8 + origin as u64
    }

    /// The store's version: it grows with every change of what the API says, and the API's word comes first.
    fn epoch(&self) -> u64 {
        // Data that was kept with a revision comes before it.
        if self.rollback_data.is_some() { 0 } else { self.api.map_or(0, |api| api.version) }
    }

    fn follows_epoch(&self, version: u64) -> bool {
        version % 8 == Origin::Api as u64
    }
}

/// Remembers what the API says of the objects in use, and forgets those that are not. An object that
/// the API lacks stays as it last was: something may still run with it.
pub(super) fn remember(remembered: &mut Versioned, api: &Snapshot, used: &BTreeSet<ObjectRef>) {
    if remembered.keys().eq(used) {
        for (reference, old) in remembered {
            if let Some(entry) = api.objects.get(reference)
                && old.version != entry.version
            {
                *old = entry.clone();
            }
        }
        return;
    }
    remembered.retain(|reference, _| used.contains(reference));
    for reference in used {
        if let Some(entry) = api.objects.get(reference)
            && remembered.get(reference).is_none_or(|old| old.version != entry.version)
        {
            remembered.insert(reference.clone(), entry.clone());
        }
    }
}

/// Objects from a checkpoint, under versions of their own.
pub(super) fn restore(objects: Vec<(ObjectRef, Value)>) -> Versioned {
    let entry = |(version, (reference, value)): (u64, (ObjectRef, Value))| {
        (reference, Entry { version, value: Arc::new(value) })
    };
    (1..).zip(objects).map(entry).collect()
}

/// Objects for a checkpoint.
pub(super) fn values(objects: &Versioned) -> Vec<(ObjectRef, Value)> {
    objects.iter().map(|(reference, entry)| (reference.clone(), Value::clone(&entry.value))).collect()
}
