use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use super::CheckpointError;
use super::CheckpointStore;
use super::Loaded;
use crate::node::fsx;
use crate::node::fsx::Doing;
use crate::node::fsx::Real;
use crate::node::fsx::Shared;
use crate::node::fsx::Simulated;

mod causes;
mod lacking;

type Record = BTreeMap<String, u64>;

fn record(n: u64) -> Record {
    Record::from([("nextIncarnation".to_owned(), n)])
}

fn fresh() -> (tempfile::TempDir, CheckpointStore) {
    let root = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(&Real::shared(), &root.path().join("state/daemons")).unwrap();
    (root, store)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_record_comes_back_as_it_was_saved() {
    let (_root, store) = fresh();
    assert_eq!(store.load::<Record>("a_b"), Loaded::Absent);
    store.save("a_b", &record(1)).unwrap();
    store.save("a_b", &record(2)).unwrap();
    store.save("c", &record(3)).unwrap();
    assert_eq!(mode(store.path()), 0o700);
    assert_eq!(mode(&store.path().join("a_b.json")), 0o600);
    assert_eq!(names(store.path()), ["a_b.json", "c.json"]);
    let again = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
    assert_eq!(again.load("a_b"), Loaded::Present(record(2)));
    assert_eq!(again.load_all(|_| None).unwrap(), [Loaded::Present(record(2)), Loaded::Present(record(3))]);
    assert!(again.remove("a_b").unwrap());
    assert!(!again.remove("a_b").unwrap());
    let text = fs::read_to_string(store.path().join("c.json")).unwrap();
    assert!(
        text.starts_with("daemonlet-checkpoint/1 sha256:") && text.ends_with("\n{\"nextIncarnation\":3}\n"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_trusted_is_set_aside_with_its_bytes() {
    let (_root, store) = fresh();
    let path = store.path().join("a.json");
    store.save("a", &record(1)).unwrap();
    let right = fs::read(&path).unwrap();
    let mut expected = Vec::new();
    let text = String::from_utf8(right.clone()).unwrap();
    // Cut anywhere, one bit turned anywhere: never half used.
    let mut spoiled: Vec<Vec<u8>> = vec![Vec::new(), right[..10].to_vec(), right[..right.len() - 1].to_vec()];
    spoiled.push([right.as_slice(), b"x"].concat());
    spoiled.push(text.replace("checkpoint/1", "checkpoint/2").into_bytes());
    spoiled.push(text.replace(":1}", ":9}").into_bytes());
    for bytes in spoiled {
        fs::write(&path, &bytes).unwrap();
        let Loaded::Damaged(damaged) = store.load::<Record>("a") else { panic!("{bytes:?} was used") };
        let kept = damaged.kept.clone().unwrap();
        assert_eq!(fs::read(&kept).unwrap(), bytes);
        assert!(damaged.to_string().ends_with(&format!("it is not used, its bytes are kept in {}", kept.display())));
        assert!(damaged.hint().unwrap().contains("remove what is kept"));
        expected.push(kept);
        assert_eq!(store.load::<Record>("a"), Loaded::Absent);
        store.save("a", &record(1)).unwrap();
    }
    expected.sort();
    expected.dedup();
    assert_eq!(expected.len(), 6, "each has a name of its own");
    assert_eq!(super::set_aside_in(&Real::shared(), store.path()), expected, "doctor names what is kept");
    assert_eq!(store.load_all(|_| None).unwrap(), [Loaded::Present(record(1))], "what was set aside is no record");
}

#[test]
fn no_cut_and_no_turned_bit_goes_unseen() {
    let (_root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    let right = fs::read(store.path().join("a.json")).unwrap();
    for cut in 0..right.len() {
        assert!(super::format::decode::<Record>(&right[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..right.len() * 8 {
        let mut turned = right.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        assert!(super::format::decode::<Record>(&turned).is_err(), "bit {bit}");
    }
    assert_eq!(super::format::decode::<Record>(&right), Ok(record(1)));
}

#[test]
fn files_that_others_may_have_written_are_not_trusted() {
    let (root, store) = fresh();
    let path = store.path().join("a.json");
    let why = |expected: &str| match store.load::<Record>("a") {
        Loaded::Damaged(damaged) => assert!(damaged.why.contains(expected), "{damaged}"),
        other => panic!("{expected}: {other:?}"),
    };
    store.save("a", &record(1)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(store.load("a"), Loaded::Present(record(1)), "who could read it made nothing untrue");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o602)).unwrap();
    why("can be written by other users (mode 0602)");
    store.save("a", &record(1)).unwrap();
    let elsewhere = root.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    why("is not a regular file");
    assert!(elsewhere.exists());
    if nix::unistd::geteuid().is_root() {
        store.save("a", &record(1)).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        why("is owned by user 1234");
    }
    fs::set_permissions(store.path(), PermissionsExt::from_mode(0o770)).unwrap();
    let error = CheckpointStore::open(&Real::shared(), store.path()).unwrap_err();
    assert!(matches!(error, CheckpointError::Unsafe { .. }), "{error}");
    assert!(error.hint().unwrap().starts_with("chmod 0700"));
}

#[test]
fn a_folder_in_the_place_of_a_record_gives_way_to_the_next_save() {
    let (_root, store) = fresh();
    fs::create_dir(store.path().join("a.json")).unwrap();
    store.save("a", &record(1)).unwrap();
    assert_eq!(store.load("a"), Loaded::Present(record(1)));
    assert_eq!(names(store.path()), ["a.json", "a.json.bad-1"]);
}

#[test]
fn a_record_of_another_shape_is_set_aside_not_fatal() {
    let (_root, store) = fresh();
    store.save("a", &["a list"]).unwrap();
    assert!(matches!(store.load::<Record>("a"), Loaded::Damaged(_)));
}

#[test]
fn a_crash_before_the_rename_leaves_the_old_record() {
    let (_root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    fs::write(store.path().join("a.json.tmp"), "half").unwrap();
    assert_eq!(store.load("a"), Loaded::Present(record(1)));
    store.save("a", &record(2)).unwrap();
    fs::write(store.path().join("b.json.tmp"), "half").unwrap();
    let again = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
    assert_eq!(names(store.path()), ["a.json"]);
    assert_eq!(again.load("a"), Loaded::Present(record(2)));
}

#[test]
fn what_was_put_outlives_the_agent_and_never_costs_the_record_before() {
    let (_root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    store.write_unsynced("a", &record(2)).unwrap();
    store.write_unsynced("b", &record(3)).unwrap();
    assert_eq!(store.load("a"), Loaded::Present(record(2)), "it is whole");
    let again = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
    assert_eq!(again.load("a"), Loaded::Present(record(2)));
    assert_eq!(again.load("b"), Loaded::Present(record(3)));
    assert_eq!(names(store.path()), ["a.json", "b.json"]);

    // What a loss of power leaves of one: any part of its bytes.
    again.write_unsynced("a", &record(4)).unwrap();
    let staged = store.path().join("a.json.tmp");
    let whole = fs::read(&staged).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&staged, &whole[..length]).unwrap();
        let again = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
        assert_eq!(again.load("a"), Loaded::Present(record(2)), "{length} bytes");
    }

    let write_unsynced = again.write_unsynced("a", &record(5)).unwrap();
    again.sync(&write_unsynced).unwrap();
    assert_eq!(again.load("a"), Loaded::Present(record(5)));
    assert_eq!(names(store.path()), ["a.json", "b.json"]);
}

#[test]
fn what_was_put_counts_until_the_next_is_whole() {
    let (_root, store) = fresh();
    store.write_unsynced("a", &record(1)).unwrap();
    // Nothing can be begun here.
    let begun = store.path().join("a.json.new");
    fs::create_dir(&begun).unwrap();
    store.write_unsynced("a", &record(2)).unwrap_err();
    fs::remove_dir(&begun).unwrap();
    assert_eq!(CheckpointStore::open(&Real::shared(), store.path()).unwrap().load("a"), Loaded::Present(record(1)));

    store.write_unsynced("a", &record(3)).unwrap();
    store.write_unsynced("a", &record(4)).unwrap();
    // What an agent that died had begun.
    fs::write(&begun, "half").unwrap();
    assert_eq!(CheckpointStore::open(&Real::shared(), store.path()).unwrap().load("a"), Loaded::Present(record(4)));
    assert_eq!(names(store.path()), ["a.json"]);
}

#[test]
fn long_and_odd_names_have_files_of_their_own() {
    let (_root, store) = fresh();
    let long = "n".repeat(63) + "_" + &"d".repeat(253);
    let odd = ["a".repeat(201), long.clone() + "x", long, "../x".to_owned(), ".x".to_owned(), String::new()];
    for (n, name) in (0..).zip(&odd) {
        store.save(name, &record(n)).unwrap();
    }
    for (n, name) in (0..).zip(&odd) {
        assert_eq!(store.load(name), Loaded::Present(record(n)), "{name}");
    }
    assert!(names(store.path()).iter().all(|name| name.len() <= 205 && !name.starts_with('.')));
    assert_eq!(names(store.path()).len(), odd.len());
}

#[test]
fn to_look_at_changes_nothing() {
    let (root, store) = fresh();
    assert!(CheckpointStore::open_read_only(&Real::shared(), &root.path().join("absent")).unwrap().is_none());
    fs::write(store.path().join("a.json"), "damaged").unwrap();
    fs::set_permissions(store.path().join("a.json"), PermissionsExt::from_mode(0o600)).unwrap();
    let looking =
        CheckpointStore::open_read_only(&Real::shared(), &root.path().join("state/daemons")).unwrap().unwrap();
    let Loaded::Damaged(damaged) = looking.load::<Record>("a") else { panic!("used") };
    assert_eq!(damaged.kept, None);
    assert_eq!(names(store.path()), ["a.json"]);
}

#[test]
fn a_disk_that_takes_nothing_more_still_tells_the_newest_record() {
    let disk = Arc::new(Simulated::default());
    let (shared, path): (Shared, _) = (Arc::clone(&disk) as Shared, Path::new("/state"));
    disk.make_folder(path);
    let store = CheckpointStore::open(&shared, path).unwrap();
    store.save("a", &record(1)).unwrap();
    store.write_unsynced("a", &record(2)).unwrap();
    store.write_unsynced("b", &record(3)).unwrap();
    for doing in [Doing::Rename, Doing::Remove, Doing::Sync] {
        for file in ["a.json.tmp", "b.json.tmp"] {
            disk.fail(doing, path.join(file), Errno::EROFS);
        }
    }
    for store in [
        CheckpointStore::open(&shared, path).unwrap(),
        CheckpointStore::open_read_only(&shared, path).unwrap().unwrap(),
    ] {
        assert_eq!(store.load("a"), Loaded::Present(record(2)));
        assert_eq!(store.load_all(|_| None).unwrap(), [Loaded::Present(record(2)), Loaded::Present(record(3))]);
    }
    disk.heal();
    let store = CheckpointStore::open(&shared, path).unwrap();
    assert_eq!(store.load_all(|_| None).unwrap(), [Loaded::Present(record(2)), Loaded::Present(record(3))]);
}

#[test]
fn a_record_that_could_not_be_read_is_kept_when_another_takes_its_place() {
    let disk = Arc::new(Simulated::default());
    let (shared, path): (Shared, _) = (Arc::clone(&disk) as Shared, Path::new("/state"));
    disk.make_folder(path);
    let store = CheckpointStore::open(&shared, path).unwrap();
    store.save("a", &record(1)).unwrap();
    disk.fail(Doing::Read, path.join("a.json"), Errno::EIO);
    let Loaded::Damaged(damaged) = store.load::<Record>("a") else { panic!("it is read") };
    assert_eq!((damaged.is_read(), damaged.kept), (false, None));
    disk.heal();
    assert_eq!(store.load("a"), Loaded::Present(record(1)), "it may be readable again");
    disk.fail(Doing::Read, path.join("a.json"), Errno::EIO);
    assert!(matches!(store.load::<Record>("a"), Loaded::Damaged(_)));
    disk.heal();
    store.save("a", &record(2)).unwrap();
    store.save("a", &record(3)).unwrap();
    assert_eq!(store.load("a"), Loaded::Present(record(3)));
    assert_eq!(store.load_file("a.json.bad-1"), Loaded::Present(record(1)));
    assert!(!store.has("a.json.bad-2"), "once");
}

#[test]
fn what_is_no_file_in_the_place_of_a_record_or_of_its_successor_stops_nothing() {
    let (_root, store) = fresh();
    store.save("a", &record(1)).unwrap();
    for name in ["b.json", "c.json.tmp", "d.json.new"] {
        fs::create_dir_all(store.path().join(name).join("x")).unwrap();
    }
    nix::unistd::mkfifo(&store.path().join("e.json"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let store = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
    let mut loaded = store.load_all(|_: &Record| None).unwrap();
    assert_eq!(loaded[0], Loaded::Present(record(1)));
    assert_eq!(loaded.len(), 3, "{loaded:?}");
    for found in &mut loaded[1..] {
        let Loaded::Damaged(damaged) = found else { panic!("{found:?}") };
        assert!(damaged.kept.is_none() && damaged.path.exists(), "it stays until what stands for it is saved");
        store.set_aside(damaged);
        assert!(damaged.kept.is_some() && !damaged.path.exists());
    }
    for name in ["b", "c", "d", "e"] {
        store.save(name, &record(2)).unwrap();
    }
}

#[test]
fn a_copy_of_a_record_under_another_name_is_none() {
    let (_root, store) = fresh();
    store.save("a", &record(2)).unwrap();
    fs::copy(store.path().join("a.json"), store.path().join("a.old.json")).unwrap();
    let loaded = store.load_all(|_: &Record| Some("a".to_owned())).unwrap();
    assert_eq!(loaded[0], Loaded::Present(record(2)));
    let Loaded::Damaged(copy) = &loaded[1] else { panic!("{loaded:?}") };
    assert!(copy.path.ends_with("a.old.json") && copy.why.contains("belongs into a.json"), "{copy}");
}

#[test]
fn a_loss_of_power_at_any_moment_leaves_one_record_or_the_other() {
    fsx::at_every_loss_of_power(|disk, changes, kept| {
        let (shared, path): (Shared, _) = (Arc::clone(disk) as Shared, Path::new("/state"));
        disk.make_folder(path);
        CheckpointStore::open(&shared, path).unwrap().save("a", &record(1)).unwrap();
        let store = CheckpointStore::open(&shared, path).unwrap();
        disk.stop_after(changes);
        let saved = store.save("a", &record(2));
        let has_stopped = disk.heal();
        disk.crash(kept);
        let loaded = CheckpointStore::open(&shared, path).unwrap().load("a");
        assert!(
            loaded == Loaded::Present(record(2)) || saved.is_err() && loaded == Loaded::Present(record(1)),
            "{loaded:?}"
        );
        has_stopped
    });
}

#[test]
fn what_is_not_synced_outlives_the_agent_and_takes_nothing_with_the_power() {
    fsx::at_every_loss_of_power(|disk, changes, kept| {
        let (shared, path): (Shared, _) = (Arc::clone(disk) as Shared, Path::new("/state"));
        disk.make_folder(path);
        let store = CheckpointStore::open(&shared, path).unwrap();
        store.save("a", &record(1)).unwrap();
        disk.stop_after(changes);
        let written = store.write_unsynced("a", &record(2)).and_then(|_| store.write_unsynced("a", &record(3)));
        let has_stopped = disk.heal();
        match changes % 2 {
            0 => disk.end_process(),
            _ => disk.crash(kept),
        }
        let loaded = CheckpointStore::open(&shared, path).unwrap().load::<Record>("a");
        let Loaded::Present(found) = &loaded else { panic!("{loaded:?}") };
        assert!(changes % 2 == 1 || written.is_err() || *found == record(3), "{found:?}");
        has_stopped
    });
}

#[test]
fn a_large_record_is_written_and_read_in_pieces() {
    let (_root, store) = fresh();
    let large: Vec<String> = (0..20).map(|n| format!("{n}\"{}", "x".repeat(1 << 20))).collect();
    store.save("a", &large).unwrap();
    assert_eq!(store.load("a"), Loaded::Present(large.clone()));
    let path = store.path().join("a.json");
    let right = fs::read(&path).unwrap();
    let text = format!("{}\n", serde_json::to_string(&large).unwrap());
    assert!(right.starts_with(b"daemonlet-checkpoint/1 sha256:") && right.ends_with(text.as_bytes()));
    assert_eq!(super::format::decode(&right), Ok(large.clone()));
    let spoilt = |at: usize| {
        let mut spoilt = right.clone();
        spoilt[at] ^= 1;
        spoilt
    };
    let cut = |length: usize| right[..length].to_vec();
    for bytes in [cut(17 << 20), cut(right.len() - 1), [&right, "x".as_bytes()].concat(), spoilt(3), spoilt(19 << 20)] {
        fs::write(&path, &bytes).unwrap();
        let Loaded::Damaged(damaged) = store.load::<Vec<String>>("a") else { panic!("{} bytes", bytes.len()) };
        let Err(why) = super::format::decode::<Vec<String>>(&bytes) else { panic!("{} bytes", bytes.len()) };
        assert_eq!((damaged.why, damaged.cause), why);
        store.save("a", &large).unwrap();
    }
    store.write_unsynced("a", &large[1..].to_vec()).unwrap();
    let again = CheckpointStore::open(&Real::shared(), store.path()).unwrap();
    assert_eq!(again.load("a"), Loaded::Present(large[1..].to_vec()), "it is whole");
    assert!(matches!(again.load::<Record>("a"), Loaded::Damaged(damaged) if damaged.why.contains("this version")));
}
