//! Objects with the versions they were seen at, and as a checkpoint has them.
//!
//! Owns how the ones become the others, and how long their API versions are remembered. Must not choose between
//! sources: `super::objects` does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::node::api::Entry;
use crate::node::api::Snapshot;

/// Objects with the versions they were seen at.
pub(super) type Versioned = BTreeMap<ObjectRef, Entry>;

/// Objects as a checkpoint has them.
pub(super) type Values = Vec<(ObjectRef, Arc<Value>)>;

/// Objects with versions: a version changes whenever what `lookup` says does.
pub(super) trait VersionedObjects: ObjectSource {
    /// The version of what is known of `reference`.
    fn version(&self, reference: &ObjectRef) -> u64;
    /// Changes whenever [`VersionedObjects::version`] of an object for which [`VersionedObjects::follows_epoch`]
    /// does; 0: there is no such number for all of them.
    fn epoch(&self) -> u64 {
        0
    }
    /// Whether `version` is one that cannot change within an epoch.
    fn follows_epoch(&self, _version: u64) -> bool {
        false
    }
}

/// Remembers what the API says of the objects in use, and forgets those that are not. An object that
/// the API lacks stays as it last was: something may still run with it. Where one of `folders` counts in its place, what it
/// was is over. One that a folder's overrides stays as it was, or every version that the API shows would be the remembered
/// one.
pub(super) fn remember(
    remembered: &mut Versioned,
    api: &Snapshot,
    used: &BTreeSet<ObjectRef>,
    folders: &Versioned,
    is_overridden: impl Fn(&ObjectRef) -> bool,
) {
    let gave_way = |reference: &ObjectRef| folders.contains_key(reference) && api.lookup(reference) == Lookup::Absent;
    remembered.retain(|reference, _| used.contains(reference) && !gave_way(reference));
    for reference in used {
        let Some(entry) = api.objects.get(reference) else { continue };
        match remembered.get_mut(reference) {
            Some(old) if old.version == entry.version || is_overridden(reference) => {}
            Some(old) => *old = entry.clone(),
            None => drop(remembered.insert(reference.clone(), entry.clone())),
        }
    }
}

/// Objects from a checkpoint, under versions of their own.
pub(super) fn restore<V: Into<Arc<Value>>>(objects: Vec<(ObjectRef, V)>) -> Versioned {
    let entry =
        |(version, (reference, value)): (u64, (ObjectRef, V))| (reference, Entry { version, value: value.into() });
    (1..).zip(objects).map(entry).collect()
}

/// Objects for a checkpoint.
pub(super) fn values(objects: &Versioned) -> Values {
    objects.iter().map(|(reference, entry)| (reference.clone(), Arc::clone(&entry.value))).collect()
}

/// Lets `objects` share the values that they have in common with `others`: read from a checkpoint, each is one of its own.
pub(super) fn share(objects: &mut Versioned, others: &Versioned) {
    for (reference, entry) in objects {
        if let Some(other) = others.get(reference).filter(|other| other.value == entry.value) {
            entry.value = Arc::clone(&other.value);
        }
    }
}
