//! What is forgotten of daemons that are gone, and what outlives it.

use std::path::Path;
use std::sync::Arc;

use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::executor::state_folder::StateFolder;
use crate::node::agent::floor::FLOOR;
use crate::node::agent::floor::Floor;
use crate::node::agent::sealing::Sealing;
use crate::node::checkpoint::CheckpointStore;
use crate::node::checkpoint::Loaded;
use crate::node::fsx::Real;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

use super::*;

fn executor(folder: &Path) -> Executor {
    let files = Real::shared();
    let inputs = CheckpointStore::open(&files, folder).unwrap();
    let records = inputs.folder("daemons").unwrap();
    let volumes = Volumes::new(files.clone(), VolumesRoot::kubelet(folder));
    Executor::new(files, volumes, Some(StateFolder { inputs, records }), Sealing::new(None))
}

/// A decision of a node of which `count` daemons are gone, and what came of it: all records are on disk.
fn of_gone(executor: &mut Executor, count: u64) -> (Decision, EffectOutcome) {
    let config = config();
    let mut state = state(&config);
    state.records.clear();
    let mut outcome = EffectOutcome::default();
    for number in 1..=count {
        let record = DaemonRecord::new(ObjectKey::new("a", format!("d{number}")), number);
        executor.save_record(&record).unwrap();
        outcome.records.insert(record.key.clone(), RecordFate::OnDisk);
        state.records.insert(record.key.clone(), record);
    }
    (decided(&observation(None), &state, &config), outcome)
}

fn remembered(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("daemons")).unwrap().count()
}

#[test]
fn daemons_that_came_and_went_leave_a_bounded_folder_and_a_floor() {
    let folder = tempfile::tempdir().unwrap();
    let mut executor = executor(folder.path());
    let (decision, mut outcome) = of_gone(&mut executor, MAX_BARE as u64 + 5);
    executor.forget(&decision, &mut outcome);
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    let forgotten = outcome.forgotten.unwrap();
    assert_eq!((forgotten.floor, forgotten.keys.len(), remembered(folder.path())), (5, 5, MAX_BARE));
    let floor = executor.state.as_ref().unwrap().inputs.load::<Floor>(FLOOR);
    assert!(matches!(floor, Loaded::Present(Floor { next_incarnation: 5, .. })), "{floor:?}");
}

#[test]
fn where_the_floor_cannot_be_saved_nothing_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let mut executor = executor(folder.path());
    let (decision, mut outcome) = of_gone(&mut executor, MAX_BARE as u64 + 5);
    // A folder in the place of what is staged.
    std::fs::create_dir_all(folder.path().join("floor.json.tmp/x")).unwrap();
    executor.forget(&decision, &mut outcome);
    assert_eq!((outcome.forgotten.is_none(), outcome.problems.len()), (true, 1));
    assert_eq!(remembered(folder.path()), MAX_BARE + 5);
}

#[test]
fn a_bound_above_every_number_is_on_disk_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut executor = executor(folder.path());
    let (mut decision, mut outcome) = of_gone(&mut executor, 3);
    decision.state.floor = 2;
    for top in [3, 1_003, 1_004] {
        Arc::make_mut(&mut decision.plan).daemons[0].record.next_incarnation = top;
        executor.raise_floor(&decision, &mut outcome);
        let floor = executor.state.as_ref().unwrap().inputs.load::<Floor>(FLOOR);
        let bound = if top == 1_004 { 2_004 } else { 1_003 };
        assert_eq!(floor, Loaded::Present(Floor { next_incarnation: 2, bound, cluster_uid: None }), "{top}");
    }
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
}
