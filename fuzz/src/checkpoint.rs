//! Checkpoints: records of daemons and inputs, with a right checksum or as bytes that a disk gave back.
//!
//! The first byte says which; the rest is what is in the file.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use daemonlet::core::adopt;
use daemonlet::core::adopt::AdoptableManifest;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::policy::Policy;
use daemonlet::core::record::DaemonRecord;
use daemonlet::core::record::Phase;
use daemonlet::core::sources;
use daemonlet::core::sources::ApiState;
use daemonlet::core::sources::Confirmation;
use daemonlet::core::sources::FolderState;
use daemonlet::core::sources::KnownDefinition;
use daemonlet::core::time::Timestamp;
use daemonlet::node::agent::fuzzing;
use daemonlet::node::checkpoint::CheckpointStore;
use daemonlet::node::checkpoint::Loaded;
use daemonlet::node::fsx::Real;
use serde_json::Value;

use super::mutate;
use super::whole;

/// A state folder of this process, in memory where there is a file system for that.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let base = Some(PathBuf::from("/dev/shm")).filter(|shm| shm.is_dir()).unwrap_or_else(std::env::temp_dir);
    base.join(format!("daemonlet-fuzz-checkpoint-{}", std::process::id()))
});

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let _ = fs::remove_dir_all(&*FOLDER);
    let store = CheckpointStore::open(&Real::shared(), &FOLDER).expect("a state folder");
    match (kind % 2, serde_json::from_slice::<Value>(rest)) {
        (0, Ok(value)) => drop(store.save("fuzz", &value).expect("a saved value")),
        (0, Err(_)) => return,
        _ => {
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create(true).mode(0o600).open(FOLDER.join("fuzz.json"));
            std::io::Write::write_all(&mut file.expect("a file"), rest).expect("its bytes");
        }
    }
    match kind / 2 % 2 {
        0 => {
            if let Loaded::Present(record) = store.load::<DaemonRecord>("fuzz") {
                use_record(record, &store);
            }
        }
        _ => assert_ne!(
            fuzzing::inputs(&store, "fuzz").expect("a look"),
            Some(false),
            "saved and loaded is not the same"
        ),
    }
    let _ = fs::remove_dir_all(&*FOLDER);
}

/// What the agent does with a record first.
fn use_record(mut record: DaemonRecord, store: &CheckpointStore) {
    store.save("again", &record).expect("a saved record");
    assert_eq!(store.load::<DaemonRecord>("again"), Loaded::Present(record.clone()));
    record.not_after(Timestamp::from_secs(1_800_000_000));
    let used: Vec<(String, u64)> = record.instances.iter().map(|i| (i.uid.clone(), i.incarnation)).collect();
    let daemon_set = record.instances.iter().find_map(|i| i.daemon_set.clone());
    for (folder, api) in [
        (FolderState::Absent, ApiState::Unknown),
        (FolderState::Absent, ApiState::Absent { by_event: true }),
        (FolderState::Absent, ApiState::None),
        (FolderState::Absent, daemon_set.as_ref().map_or(ApiState::Orphaned, ApiState::Present)),
    ] {
        let known = KnownDefinition {
            folder,
            api,
            remembered: daemon_set.as_ref(),
            confirmation: Confirmation::Gone,
            has_file: false,
            is_superseded: false,
            is_changing: false,
        };
        let _ = sources::resolve(&known, &record, &Policy::default(), &ObjectMap::default());
    }
    let found = AdoptableManifest {
        uid: "u",
        pod_name: "p",
        incarnation: used.first().map_or(0, |(_, number)| *number),
        revision: "r",
    };
    adopt::adopt(&mut record, &found, Timestamp::from_millis(7), |_| true);
    for (uid, _) in &used {
        record.end(uid, &Phase::ending(Timestamp::from_millis(9), "because"));
    }
    for instance in record.ending().filter(|i| i.uid != "u") {
        assert!(instance.phase.since().is_some());
    }
    if let Some(daemon_set) = daemon_set {
        let node = NodeView { name: "node-1".to_owned(), ..NodeView::default() };
        whole::survive((*daemon_set).clone(), &mut ObjectMap::default(), &node);
    }
}

/// Other bytes of the same kind that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    let (kind, rest) = data.split_first().filter(|(_, rest)| !rest.is_empty() && !seed.is_multiple_of(4))?;
    Some([&[*kind], &*mutate::lines(rest, max - 1, seed)?].concat())
}
