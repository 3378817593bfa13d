//! Deletions of DaemonSets that were seen.
//!
//! Owns which are forgotten where there are too many: the oldest of the namespace that has the most. So no namespace
//! displaces the deletions of another one that has fewer.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;

use super::Snapshot;

/// The most that are remembered, so that a flood of them cannot fill memory.
const TOMBSTONES: usize = 1024;

/// What is remembered of a deleted DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Tombstone {
    pub(super) uid: String,
    /// The garbage collector removes the finalizer `orphan` and then the object within milliseconds. A pass may see
    /// neither, so the deletion records it.
    pub(super) orphan: bool,
    /// Those that were seen before it have lower ones.
    #[serde(default)]
    number: u64,
}

impl Snapshot {
    /// Remembers that the DaemonSet `key` was deleted.
    pub(super) fn bury(&mut self, key: ObjectKey, uid: &str, orphan: bool) {
        let number = self.deleted.values().map(|tombstone| tombstone.number).max().unwrap_or(0) + 1;
        self.deleted.insert(key, Tombstone { uid: uid.to_owned(), orphan, number });
        if self.deleted.len() > TOMBSTONES {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.deleted.keys().for_each(|key| *counts.entry(&key.namespace).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(namespace, _)| namespace);
        let of_it = self.deleted.iter().filter(|(key, _)| Some(key.namespace.as_str()) == most);
        let oldest = of_it.min_by_key(|(_, tombstone)| tombstone.number).map(|(key, _)| key.clone());
        oldest.iter().for_each(|key| drop(self.deleted.remove(key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_the_deletions_of_another_namespace_forgotten_and_the_oldest_go_first() {
        let mut snapshot = Snapshot::default();
        let key = |namespace: &str, number: usize| ObjectKey::new(namespace, format!("d{:04}", 9_999 - number));
        (0..24).for_each(|number| snapshot.bury(key("a", number), "u", true));
        (0..2_000).for_each(|number| snapshot.bury(key("tenant", number), "u", false));
        assert_eq!(snapshot.deleted.len(), TOMBSTONES);
        assert!((0..24).all(|number| snapshot.deleted.contains_key(&key("a", number))));
        let is_known = |number: usize| snapshot.deleted.contains_key(&key("tenant", number));
        assert_eq!([0, 999, 1_000, 1_999].map(is_known), [false, false, true, true]);
    }
}
