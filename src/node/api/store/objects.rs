//! Room for the ConfigMaps and Secrets of namespaces that are not trusted.
//!
//! Owns which of them are kept: those that are, then others as they come. What has no room is not readable: it is never
//! taken for absent, and is read again once there is room for it.

use serde_json::Value;

use crate::core::bounds;
use crate::core::model::Kind;
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

    /// Takes or gives up `reference`, of a namespace of which what is kept is bounded. Whether it is kept.
    pub(super) fn take(&mut self, reference: &ObjectRef, value: &Value) -> bool {
        let weight = bounds::object_weight(value);
        let is_kept = self.kept_beside(reference) + weight <= bounds::OBJECTS_KEPT;
        match is_kept {
            true => {
                self.no_room.remove(reference);
                self.weights.insert(reference.clone(), weight);
            }
            false => {
                self.objects.remove(reference);
                self.weights.remove(reference);
                if self.no_room.insert(reference.clone(), weight) != Some(weight) {
                    self.changed();
                }
            }
        }
        is_kept
    }

    /// Nothing is known of `reference` any more, or that it does not exist. Whether that leaves room to others.
    pub(super) fn leave(&mut self, reference: &ObjectRef) -> bool {
        self.no_room.remove(reference);
        let had_weight = self.weights.remove(reference).is_some();
        had_weight && self.no_room.keys().any(|other| other.key.namespace == reference.key.namespace)
    }

    /// Whether `reference`, which had no room, has room now. Of several that wait the first ones by name come first.
    fn has_room_again(&self, reference: &ObjectRef) -> bool {
        let Some(weight) = self.lacks_room(reference) else { return false };
        let mut taken = self.kept_beside(reference);
        for (_, weight) in self.no_room.range(..reference).filter(|(other, _)| is_beside(other, reference)) {
            if taken + weight <= bounds::OBJECTS_KEPT {
                taken += weight;
            }
        }
        taken + weight <= bounds::OBJECTS_KEPT
    }

    /// How much is kept of the namespace of `reference` without it.
    fn kept_beside(&self, reference: &ObjectRef) -> usize {
        let others = self.weights.iter().filter(|(other, _)| *other != reference && is_beside(other, reference));
        others.map(|(_, weight)| weight).sum()
    }
}

fn is_beside(one: &ObjectRef, other: &ObjectRef) -> bool {
    one.key.namespace == other.key.namespace
}

/// Whether what is kept of such an object may be bounded.
pub(super) fn is_data(reference: &ObjectRef) -> bool {
    matches!(reference.kind, Kind::ConfigMap | Kind::Secret)
}

#[cfg(test)]
mod tests;
