//! Which records of removed daemons may be forgotten, so that they do not accumulate for ever.
//!
//! Owns the rule that makes forgetting safe. A record that contains only its number may go if that number is not above
//! the floor, at which names without a record start: every UID ever made for that name used a lower number.

use crate::core::model::ObjectKey;

use super::DaemonRecord;

/// How many records that contain only a number are kept.
pub const MAX_BARE: usize = 64;

/// The result of [`forget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Forgotten {
    /// The new floor. It must be on disk before the first of `keys` is removed.
    pub floor: u64,
    /// The records that are no longer needed.
    pub keys: Vec<ObjectKey>,
}

/// The records that are not needed if names without a record start at `floor`. If more than `most` records contain
/// only a number, those with the lowest numbers go, so the floor rises as little as possible.
pub fn forget<'a>(records: impl Iterator<Item = &'a DaemonRecord>, floor: u64, most: usize) -> Forgotten {
    let mut bare: Vec<&DaemonRecord> = records.filter(|r| r.is_bare()).collect();
    bare.sort_by_key(|r| r.next_incarnation);
    let excess = bare.len().saturating_sub(most);
    let floor = bare[..excess].last().map_or(floor, |r| r.next_incarnation.max(floor));
    bare.retain(|r| r.next_incarnation <= floor);
    Forgotten { floor, keys: bare.into_iter().map(|r| r.key.clone()).collect() }
}

impl DaemonRecord {
    /// Whether it contains nothing but its number, and perhaps what was released.
    pub fn is_bare(&self) -> bool {
        let known_release = self.known_release.clone();
        let bare = || Self { known_release, ..Self::new(self.key.clone(), self.next_incarnation) };
        self.instances.is_empty() && *self == bare()
    }

    /// Removes everything except what outlives the daemon: its number, folders still to be cleared, the file that must
    /// not bring it back, and what was released: the DaemonSet may be put back.
    pub fn retire(&mut self) {
        let (ended, ignored_file) = (std::mem::take(&mut self.ended), self.ignored_file.take());
        let known_release = self.known_release.take();
        *self = Self { ended, ignored_file, known_release, ..Self::new(self.key.clone(), self.next_incarnation) };
    }

    /// Removes what is remembered of revisions: which ran, were good, failed, or were to run next.
    pub fn forget_revisions(&mut self) {
        (self.last, self.previous, self.returns) = (None, None, false);
        (self.good, self.accepted, self.failed, self.progress) = (None, None, None, None);
        (self.pending_update, self.by_hand, self.staged, self.retry) = (None, None, None, None);
        (self.backoff, self.rejected, self.unconfirmed_since) = (None, None, None);
        self.staged_images.clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use std::collections::BTreeMap;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::core::adopt;
    use crate::core::adopt::AdoptableManifest;
    use crate::core::record::Instance;
    use crate::core::record::Phase;

    use super::*;

    fn bare(name: &str, number: u64) -> DaemonRecord {
        DaemonRecord::new(ObjectKey::new("a", name), number)
    }

    fn names(forgotten: &Forgotten) -> Vec<&str> {
        forgotten.keys.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn the_lowest_numbers_go_first_and_whatever_the_floor_covers() {
        let records = [bare("x", 7), bare("y", 2), bare("z", 2), bare("w", 3)];
        let kept = forget(records.iter(), 0, 4);
        assert_eq!((kept.floor, names(&kept)), (0, vec![]));
        let one = forget(records.iter(), 0, 3);
        assert_eq!((one.floor, names(&one)), (2, vec!["y", "z"]), "both are at the floor");
        let covered = forget(records.iter(), 3, 4);
        assert_eq!((covered.floor, names(&covered)), (3, vec!["y", "z", "w"]));
        let all = forget(records.iter(), 0, 0);
        assert_eq!((all.floor, all.keys.len()), (7, 4));
    }

    #[test]
    fn what_still_means_something_stays() {
        let mut records: Vec<DaemonRecord> = (0..5).map(|i| bare(&i.to_string(), 1)).collect();
        records[0].instances.push(Instance::new("u", "p", 0, "r", at(0)));
        records[1].ended.insert("u".to_owned(), at(0));
        records[2].ignored_file = Some("f".to_owned());
        records[3].api_uid = Some("u".to_owned());
        assert_eq!(names(&forget(records.iter(), 9, 0)), ["4"]);
    }

    #[test]
    fn what_is_retired_is_bare_when_its_folders_are_cleared() {
        let mut record = bare("x", 4);
        record.api_uid = Some("u".to_owned());
        record.by_hand = Some("r".to_owned());
        record.ended.insert("u".to_owned(), at(0));
        record.retire();
        assert!(!record.is_bare());
        record.ended.clear();
        assert_eq!((record.is_bare(), record.next_incarnation), (true, 4));
    }

    /// What can happen to a node's daemons, by the number of a name.
    #[derive(Clone, Debug)]
    enum RecordOperation {
        Start(u8),
        End(u8),
        /// An agent that lost this record finds the manifest.
        Adopt(u8),
        Forget,
        /// The agent dies between the floor and the records.
        ForgetHalf,
    }

    fn step() -> impl Strategy<Value = RecordOperation> {
        prop_oneof![
            6 => (0..12_u8).prop_map(RecordOperation::Start),
            6 => (0..12_u8).prop_map(RecordOperation::End),
            1 => (0..12_u8).prop_map(RecordOperation::Adopt),
            3 => Just(RecordOperation::Forget),
            1 => Just(RecordOperation::ForgetHalf),
        ]
    }

    proptest! {
        /// No name ever gets a number twice, and no more than `most` bare records stay.
        #[test]
        fn no_number_of_a_name_is_ever_used_again(steps in prop::collection::vec(step(), 1..200), most in 0..4_usize) {
            let mut records: BTreeMap<ObjectKey, DaemonRecord> = BTreeMap::new();
            let mut used: BTreeSet<(ObjectKey, u64)> = BTreeSet::new();
            let mut floor = 0;
            let key = |n: u8| ObjectKey::new("a", n.to_string());
            for step in steps {
                match step {
                    RecordOperation::Start(n) => {
                        let record = records.entry(key(n)).or_insert_with(|| DaemonRecord::new(key(n), floor));
                        if record.instances.is_empty() {
                            let number = record.next_incarnation;
                            prop_assert!(used.insert((key(n), number)), "{number} of {n} is used again");
                            record.next_incarnation += 1;
                            record.instances.push(Instance::new(&format!("{n}-{number}"), "p", number, "r", at(0)));
                        }
                    }
                    RecordOperation::End(n) => {
                        if let Some(record) = records.get_mut(&key(n)) {
                            let uids: Vec<String> = record.instances.iter().map(|i| i.uid.clone()).collect();
                            uids.iter().for_each(|uid| record.end(uid, &Phase::ending(at(0), "it goes")));
                            record.instances.clear();
                            record.retire();
                        }
                    }
                    RecordOperation::Adopt(n) => {
                        let Some(lost) = records.remove(&key(n)) else { continue };
                        let Some(instance) = lost.instances.first() else {
                            records.insert(key(n), lost);
                            continue;
                        };
                        let record = records.entry(key(n)).or_insert_with(|| DaemonRecord::new(key(n), floor));
                        let found = AdoptableManifest {
                            uid: &instance.uid,
                            pod_name: &instance.pod_name,
                            incarnation: instance.incarnation,
                            revision: "r",
                        };
                        adopt::adopt(record, &found, at(0), |_| true);
                    }
                    RecordOperation::Forget | RecordOperation::ForgetHalf => {
                        let forgotten = forget(records.values(), floor, most);
                        prop_assert!(forgotten.floor >= floor);
                        floor = forgotten.floor;
                        let half = matches!(step, RecordOperation::ForgetHalf);
                        let gone = forgotten.keys.len() / if half { 2 } else { 1 };
                        forgotten.keys[..gone].iter().for_each(|key| drop(records.remove(key)));
                        if !half {
                            prop_assert!(records.values().filter(|r| r.is_bare()).count() <= most);
                        }
                    }
                }
            }
        }
    }
}
