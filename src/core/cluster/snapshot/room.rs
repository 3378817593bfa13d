//! Room for the DaemonSets of namespaces that are not trusted.
//!
//! Owns which of them are known whole: those that already are, then others as they come. A definition without room is
//! refused: the DaemonSet keeps its former one, and is read again once there is room.

use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::COORDINATED;
use crate::core::cluster::history::Template;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;

use super::ClusterSnapshot;
use super::WatchedDaemon;
use super::WatchedKind;
use super::objects;

/// Bytes that the counters and conditions of a coordinator and of the DaemonSet controller take at most.
const STATUS: usize = 32 << 10;

impl ClusterSnapshot {
    /// What it takes to keep `daemon_set` with its whole `template`, in bytes; 0 where that is not bounded.
    pub(super) fn weight(&self, daemon_set: &DaemonSet, template: &Template) -> usize {
        match self.trusts(&daemon_set.key.namespace) {
            true => 0,
            false => template.weight() + bounds::weight(daemon_set),
        }
    }

    /// The bytes that this `status` of `key` takes beside that: none if it has no more than a coordinator writes.
    pub(super) fn weight_of_status(&self, key: &ObjectKey, status: &Value) -> usize {
        match self.trusts(&key.namespace) {
            true => 0,
            false => bounds::object_weight(status).saturating_sub(STATUS),
        }
    }

    /// Whether `key` of such a `weight` has room in place of what is known of it.
    pub(super) fn has_room(&mut self, key: &ObjectKey, weight: usize) -> bool {
        let before = self.weight_of(key);
        self.taken.give_back(&key.namespace, before);
        let left = self.taken.left(COORDINATED, &key.namespace);
        self.taken.add(&key.namespace, before);
        weight <= before.max(left)
    }

    /// What is known of `key` takes so many bytes where that is bounded.
    pub(super) fn weight_of(&self, key: &ObjectKey) -> usize {
        self.daemons.get(key).map_or(0, |daemon| daemon.weight)
    }

    /// Takes `key` from the DaemonSets that are known.
    pub(super) fn take_out(&mut self, key: &ObjectKey) -> Option<WatchedDaemon> {
        if self.no_room.remove(key).is_some() {
            self.unread.remove(&(WatchedKind::DaemonSets, key.clone()));
        }
        let known = self.daemons.remove(key)?;
        self.taken.give_back(&key.namespace, known.weight);
        Some(known)
    }

    /// Reads the DaemonSets again that had no room and for which there is room now: the first by name.
    pub(super) fn use_room(&mut self) {
        if self.no_room.is_empty() {
            return;
        }
        let mut taken = self.taken.clone();
        for (key, weight) in &self.no_room {
            let before = self.weight_of(key);
            taken.give_back(&key.namespace, before);
            let has_room = *weight <= taken.left(COORDINATED, &key.namespace);
            taken.add(&key.namespace, if has_room { *weight } else { before });
            if has_room {
                self.unread.insert((WatchedKind::DaemonSets, key.clone()));
            }
        }
    }

    /// The version of the state of `key` that had no room, if it had none.
    pub(super) fn version_without_room(&self, key: &ObjectKey) -> Option<u64> {
        let known = self.daemons.get(key).filter(|_| self.no_room.contains_key(key))?;
        Some(objects::number(&known.resource_version))
    }
}
