//! Room for the DaemonSets of namespaces that are not trusted.
//!
//! Owns which of them are kept whole: what ran, then as they came, a list by name. Of what is given up it stays known that
//! it exists and that it is refused; once there is room for it again, it is to be read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::model::ObjectKey;
use crate::core::policy::Policy;
use crate::node::api::selection::Selection;

use super::Definition;
use super::Snapshot;
use super::UnselectedDaemonSet;

impl Snapshot {
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

    /// Gives up as many of its namespace that did not run as `key`, which ran, takes the room of: those of the first names
    /// stay. Whether it has room then.
    fn make_room(&mut self, key: &ObjectKey, weight: usize, selection: &Selection, policy: &Policy) -> bool {
        let others = self.in_namespace(&key.namespace).filter(|(other, d)| *other != key && d.converted.is_ok());
        let (ran, new): (Vec<_>, Vec<_>) =
            others.map(|(other, d)| (other.clone(), d.weight)).partition(|(other, _)| selection.ran(other));
        let of_ran: usize = ran.iter().map(|(_, weight)| weight).sum();
        let Some(mut left) = bounds::KEPT.checked_sub(of_ran + weight) else { return false };
        for (other, weight) in new {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => self.give_up(&other, policy),
            }
        }
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

    fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Definition)> {
        let of_namespace = self.daemon_sets.range(ObjectKey::new(namespace, "")..);
        of_namespace.take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Whether `key` of such a `weight` has room beside the others of its namespace.
    fn has_room(&self, key: &ObjectKey, weight: usize) -> bool {
        let mut others = self.in_namespace(&key.namespace).filter(|(other, d)| *other != key && d.converted.is_ok());
        // There may be thousands: nobody counts on once it is clear.
        let left = others.try_fold(bounds::KEPT, |left, (_, d)| left.checked_sub(d.weight));
        left.is_some_and(|left| weight <= left)
    }

    /// What was given up and has room now, by name, is to be read again.
    pub(super) fn use_room(&mut self) {
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, definition) in self.daemon_sets.iter().filter(|(_, definition)| definition.converted.is_ok()) {
            *taken.entry(&key.namespace).or_default() += definition.weight;
        }
        let mut readable = Vec::new();
        for (key, definition) in self.daemon_sets.iter().filter(|(_, definition)| definition.is_given_up()) {
            let taken = taken.entry(&key.namespace).or_default();
            if *taken + definition.weight <= bounds::KEPT {
                *taken += definition.weight;
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
    /// Whether it is kept whole.
    #[cfg(test)]
    pub(super) fn is_whole(&self) -> bool {
        self.converted.is_ok()
    }
}
