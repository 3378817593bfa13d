//! Room for the ConfigMaps, Secrets and ControllerRevisions of namespaces that are not trusted.
//!
//! Owns which of them are kept: those that are, then others as they come. What has no room is not readable: it is never
//! taken for absent, and is read again once there is room for it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::OBJECTS_KEPT;
use crate::core::bounds::QuotaUse;
use crate::core::model::ObjectRef;

use super::Scope;
use super::Snapshot;
use super::Store;

impl Store {
    /// Waits until what is watched as `scope`, and has no room, is to be read again.
    pub(in crate::node::api) async fn room(&self, scope: &Scope) {
        let mut changed = self.changed();
        let Scope::Object(reference) = scope else { return std::future::pending().await };
        while !self.snapshot().has_room_again(reference) {
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Whether what is watched as `scope` was given up for want of room.
    pub(in crate::node::api) fn lacks_room(&self, scope: &Scope) -> bool {
        matches!(scope, Scope::Object(reference) if self.snapshot().lacks_room(reference).is_some())
    }
}

impl Snapshot {
    /// How much memory an object takes that is not kept, because the others of its namespace leave it no room, in bytes.
    pub fn lacks_room(&self, reference: &ObjectRef) -> Option<usize> {
        self.no_room.get(reference).copied()
    }

    /// There is one, and no room for it.
    #[cfg(test)]
    pub(crate) fn no_room(&mut self, reference: &ObjectRef) {
        self.no_room.insert(reference.clone(), 1);
    }

    /// Takes or gives up `reference`, of a namespace of which what is kept is bounded. Whether it is kept.
    pub(super) fn take(&mut self, reference: &ObjectRef, value: &Value) -> bool {
        let weight = bounds::object_weight(value);
        // What it was before leaves its room.
        self.weights.remove(reference, &reference.key.namespace);
        let is_kept = weight <= self.weights.taken.left(OBJECTS_KEPT, &reference.key.namespace);
        match is_kept {
            true => {
                self.no_room.remove(reference);
                self.weights.insert(reference, &reference.key.namespace, weight);
            }
            false => {
                self.objects.remove(reference);
                if self.no_room.insert(reference.clone(), weight) != Some(weight) {
                    self.changed();
                }
            }
        }
        is_kept
    }

    /// Nothing is known of `reference` any more, or that it does not exist. Whether that may leave room to others: one that
    /// waited comes before those behind it.
    pub(super) fn leave(&mut self, reference: &ObjectRef) -> bool {
        let has_waited = self.no_room.remove(reference).is_some();
        (self.weights.remove(reference, &reference.key.namespace).is_some() || has_waited) && !self.no_room.is_empty()
    }

    /// Whether `reference`, which had no room, has room now. Of several that wait the first ones by name come first.
    fn has_room_again(&self, reference: &ObjectRef) -> bool {
        let namespace = &reference.key.namespace;
        let has_room = |taken: &QuotaUse, weight: usize| weight <= taken.left(OBJECTS_KEPT, namespace);
        // Most changes leave no room to a waiting object.
        let Some(weight) = self.lacks_room(reference).filter(|weight| has_room(&self.weights.taken, *weight)) else {
            return false;
        };
        let mut taken = self.weights.taken.clone();
        for (_, weight) in self.no_room.range(..reference).filter(|(other, _)| other.key.namespace == *namespace) {
            if has_room(&taken, *weight) {
                taken.add(namespace, *weight);
            }
        }
        has_room(&taken, weight)
    }
}

/// What those objects take that are kept, where that is bounded, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Weights<K> {
    of: BTreeMap<K, usize>,
    pub(super) taken: QuotaUse,
}

impl<K> Default for Weights<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), taken: QuotaUse::default() }
    }
}

impl<K: Ord + Clone> Weights<K> {
    /// An object of `namespace` takes so much.
    pub(super) fn insert(&mut self, object: &K, namespace: &str, weight: usize) {
        self.remove(object, namespace);
        self.of.insert(object.clone(), weight);
        self.taken.add(namespace, weight);
    }

    /// It takes nothing any more.
    pub(super) fn remove(&mut self, object: &K, namespace: &str) -> Option<usize> {
        let weight = self.of.remove(object)?;
        self.taken.give_back(namespace, weight);
        Some(weight)
    }

    /// Those of which nothing is kept any more take nothing.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool, namespace: impl Fn(&K) -> &str) {
        let gone: Vec<K> = self.of.keys().filter(|object| !is_kept(object)).cloned().collect();
        for object in &gone {
            self.remove(object, namespace(object));
        }
    }
}

#[cfg(test)]
mod tests;
