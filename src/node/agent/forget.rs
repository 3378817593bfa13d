//! Forgets daemons that are gone, on disk: the floor first, then the records that it covers.
//!
//! Owns the file of the floor. What may go is `core::record::forget`'s.

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::ObjectKey;
use crate::core::record;
use crate::core::record::DaemonRecord;
use crate::core::record::MAX_BARE;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Damaged;
use crate::node::checkpoint::Loaded;
use crate::node::checkpoint::Store;

use super::apply;
use super::apply::Disk;
use super::apply::Failure;

/// The record's name in the state folder.
const FLOOR: &str = "floor";

/// The number that a name without a record begins at.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Floor {
    next_incarnation: u64,
}

impl Disk {
    /// A record for a daemon that has none.
    pub(super) fn new_record(&self, key: &ObjectKey) -> DaemonRecord {
        DaemonRecord::new(key.clone(), self.floor)
    }

    /// Reads the floor; the records have been read. One that cannot be trusted is where the highest record is: it
    /// was never above that, because the lowest went first and not all of them.
    pub(super) fn recall_floor(&mut self, store: &Store) -> Result<Option<Damaged>, CheckpointError> {
        match store.load::<Floor>(FLOOR)? {
            Loaded::Present(floor) => self.floor = floor.next_incarnation,
            Loaded::Absent => {}
            Loaded::Damaged(why) => {
                self.floor = self.records.values().map(|r| r.next_incarnation).max().unwrap_or(0);
                self.floor_saved = false;
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Forgets what is needed no more.
    pub(super) fn forget_gone(&mut self) -> Result<(), Failure> {
        let forgotten = record::forget(self.records.values(), self.floor, MAX_BARE);
        let is_new = forgotten.floor > self.floor || !self.floor_saved;
        if !is_new && forgotten.keys.is_empty() {
            return Ok(());
        }
        let (Some(inputs), Some(records)) = (&self.inputs_store, &self.records_store) else { return Ok(()) };
        if is_new {
            let floor = Floor { next_incarnation: forgotten.floor };
            inputs.save(FLOOR, &floor).map_err(|e| apply::failure(&e, e.hint()))?;
            (self.floor, self.floor_saved) = (forgotten.floor, true);
        }
        for key in forgotten.keys {
            records.remove(&apply::name(&key)).map_err(|e| apply::failure(&e, e.hint()))?;
            self.unsaved.remove(&key);
            self.records.remove(&key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::node::fsx::Real;

    fn disk(state: &Path) -> Disk {
        let files = Real::shared();
        let inputs = Store::open(&files, state).unwrap();
        let records = inputs.folder("daemons").unwrap();
        let mut disk = Disk::new(Arc::clone(&files), state, Some(inputs), Some(records));
        for loaded in disk.records_store.as_ref().unwrap().load_all::<DaemonRecord>().unwrap() {
            let Loaded::Present(record) = loaded else { panic!("{loaded:?}") };
            disk.records.insert(record.key.clone(), record);
        }
        let store = Store::open(&files, state).unwrap();
        disk.recall_floor(&store).unwrap();
        disk
    }

    fn bare(number: u64) -> DaemonRecord {
        DaemonRecord::new(ObjectKey::new("a", format!("d{number}")), number)
    }

    fn remembered(disk: &Disk, state: &Path) -> (usize, usize) {
        (disk.records.len(), std::fs::read_dir(state.join("daemons")).unwrap().count())
    }

    #[test]
    fn a_thousand_daemons_that_came_and_went_leave_a_bounded_folder_and_a_floor() {
        let state = tempfile::tempdir().unwrap();
        let mut disk = disk(state.path());
        for number in 1..=1_000 {
            disk.save(&bare(number)).unwrap();
            disk.forget_gone().unwrap();
        }
        let most = MAX_BARE;
        assert_eq!(remembered(&disk, state.path()), (most, most));
        assert_eq!(disk.floor, 1_000 - most as u64);
        let again = self::disk(state.path());
        assert_eq!((again.floor, remembered(&again, state.path())), (disk.floor, (most, most)));
        assert_eq!(again.new_record(&ObjectKey::new("a", "d1")).next_incarnation, disk.floor);
    }

    #[test]
    fn a_floor_that_cannot_be_trusted_is_where_the_highest_record_is() {
        let state = tempfile::tempdir().unwrap();
        let mut disk = disk(state.path());
        (1..=MAX_BARE as u64 + 5).for_each(|number| disk.save(&bare(number)).unwrap());
        disk.forget_gone().unwrap();
        assert_eq!(disk.floor, 5);
        std::fs::write(state.path().join("floor.json"), "not a checkpoint").unwrap();
        let mut again = self::disk(state.path());
        assert_eq!(again.floor, MAX_BARE as u64 + 5);
        again.forget_gone().unwrap();
        assert_eq!(remembered(&again, state.path()), (0, 0), "no number is above it");
        assert_eq!(self::disk(state.path()).floor, again.floor);
    }

    #[test]
    fn where_the_floor_cannot_be_saved_nothing_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let mut disk = disk(state.path());
        (1..=MAX_BARE as u64 + 5).for_each(|number| disk.save(&bare(number)).unwrap());
        // A folder in the place of what is staged.
        std::fs::create_dir_all(state.path().join("floor.json.tmp/x")).unwrap();
        disk.forget_gone().unwrap_err();
        assert_eq!((disk.floor, remembered(&disk, state.path())), (0, (MAX_BARE + 5, MAX_BARE + 5)));
    }
}
