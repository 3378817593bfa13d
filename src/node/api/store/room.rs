//! Room for the DaemonSets of namespaces that are not trusted.
//!
//! Owns which of them are kept whole: what ran, then as they came, a list by name. Of what is given up it stays known that
//! it exists and that it is refused; once there is room for it again, it is to be read again. Of more than [`bounds::KNOWN_DAEMON_SETS`] in one
//! namespace no more is known than that they exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::QuotaUse;
use crate::core::model::ObjectKey;
use crate::core::policy::Policy;
use crate::node::api::selection::Selection;

use super::Definition;
use super::Snapshot;
use super::UnselectedDaemonSet;

impl Snapshot {
    /// Whether no more is kept of `key`, which a watch tells, than that it exists.
    pub(super) fn is_beyond(&self, key: &ObjectKey, selection: &Selection) -> bool {
        let is_bounded = selection.bounds(&key.namespace).is_some() && !selection.ran(key);
        is_bounded && !self.daemon_sets.contains_key(key) && self.known_of(&key.namespace) >= bounds::KNOWN_DAEMON_SETS
    }

    fn known_of(&self, namespace: &str) -> usize {
        let from = self.daemon_sets.range(ObjectKey::new(namespace, "")..);
        from.take_while(|(key, _)| key.namespace == namespace).take(bounds::KNOWN_DAEMON_SETS).count()
    }

    /// How many are beyond that, by namespace.
    pub fn beyond(&self) -> BTreeMap<&str, usize> {
        let mut beyond = BTreeMap::new();
        let keys = self.not_selected.iter().filter(|(_, outline)| outline.is_beyond).map(|(key, _)| key);
        keys.for_each(|key| *beyond.entry(key.namespace.as_str()).or_default() += 1);
        beyond
    }

    /// One of `namespace` that was beyond is to be read, if there is room for it now.
    fn read_beyond(&mut self, namespace: &str) {
        let from = self.not_selected.range(ObjectKey::new(namespace, "")..);
        let mut own = from.take_while(|(key, _)| key.namespace == namespace).filter(|(_, outline)| outline.is_beyond);
        let Some(key) =
            own.next().map(|(key, _)| key.clone()).filter(|_| self.known_of(namespace) < bounds::KNOWN_DAEMON_SETS)
        else {
            return;
        };
        if let Some(outline) = Arc::make_mut(&mut self.not_selected).get_mut(&key) {
            outline.is_beyond = false;
        }
        self.to_read.insert(key);
        self.changed();
    }

    /// What `value` defines, without what its namespace has no room for.
    pub(super) fn definition(&mut self, key: &ObjectKey, value: &Value, selection: &Selection) -> Definition {
        let bounds = selection.bounds(&key.namespace);
        let mut definition = Definition::within(bounds, value);
        if let Some(policy) = bounds
            && !self.has_room(key, definition.weight)
            && !(selection.ran(key) && self.make_room(key, definition.weight, selection, policy))
        {
            definition.give_up(key, policy);
        }
        definition
    }

    /// Gives up as many that did not run as `key`, which ran, takes the room of: those of the first names stay. Whether it
    /// has room then.
    fn make_room(&mut self, key: &ObjectKey, weight: usize, selection: &Selection, policy: &Policy) -> bool {
        let mut taken = self.taken(|other| other != key && selection.ran(other));
        if weight > taken.left(bounds::KEPT, &key.namespace) {
            return false;
        }
        taken.add(&key.namespace, weight);
        let others =
            self.daemon_sets.iter().filter(|(other, d)| *other != key && d.is_weighed() && !selection.ran(other));
        let mut given_up = Vec::new();
        for (other, definition) in others {
            match definition.weight <= taken.left(bounds::KEPT, &other.namespace) {
                true => taken.add(&other.namespace, definition.weight),
                false => given_up.push(other.clone()),
            }
        }
        given_up.iter().for_each(|other| self.give_up(other, policy));
        true
    }

    fn give_up(&mut self, key: &ObjectKey, policy: &Policy) {
        self.changed();
        let version = self.version;
        if let Some(definition) = self.daemon_sets.get_mut(key) {
            definition.give_up(key, policy);
            definition.version = version;
        }
    }

    /// What those take together that `count`.
    fn taken(&self, counts: impl Fn(&ObjectKey) -> bool) -> QuotaUse {
        let mut taken = QuotaUse::default();
        for (key, definition) in self.daemon_sets.iter().filter(|(key, d)| d.is_weighed() && counts(key)) {
            taken.add(&key.namespace, definition.weight);
        }
        taken
    }

    /// Whether `key` of such a `weight` has room beside the others. One that does not grow keeps the room that it has.
    fn has_room(&self, key: &ObjectKey, weight: usize) -> bool {
        let before = self.daemon_sets.get(key).filter(|before| before.is_weighed()).map_or(0, |before| before.weight);
        weight <= before || weight <= self.taken(|other| other != key).left(bounds::KEPT, &key.namespace)
    }

    /// What was given up and has room now, by name, is to be read again; so are as many of each namespace of `gone` as went.
    pub(super) fn use_room(&mut self, gone: &[ObjectKey]) {
        gone.iter().for_each(|key| self.read_beyond(&key.namespace));
        let mut taken = self.taken(|_| true);
        let mut readable = Vec::new();
        for (key, definition) in self.daemon_sets.iter().filter(|(_, definition)| definition.is_given_up()) {
            if definition.weight <= taken.left(bounds::KEPT, &key.namespace) {
                taken.add(&key.namespace, definition.weight);
                readable.push(key.clone());
            }
        }
        for key in readable {
            self.daemon_sets.remove(&key);
            Arc::make_mut(&mut self.not_selected).insert(key.clone(), UnselectedDaemonSet::default());
            self.to_read.insert(key);
            self.changed();
        }
    }

    /// DaemonSets that are to be read whole, though nothing else makes them matter here.
    pub fn to_read(&self) -> impl Iterator<Item = &ObjectKey> {
        self.to_read.iter()
    }
}

impl Definition {
    /// Whether it is kept, and takes some of the room.
    fn is_weighed(&self) -> bool {
        self.weight > 0 && self.converted.is_ok()
    }

    /// Whether it is kept whole.
    #[cfg(test)]
    pub(super) fn is_whole(&self) -> bool {
        self.converted.is_ok()
    }
}
