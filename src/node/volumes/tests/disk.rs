//! What the disk takes, loses and refuses.

use std::sync::Arc;

use crate::node::fsx;
use crate::node::fsx::Shared;

use super::*;

#[test]
fn a_first_version_that_was_not_waited_for_is_written_anew() {
    let disk = fsx::Simulated::shared();
    let root = Path::new("/kubelet");
    disk.make_folder(&root.join("pods"));
    let shared = Arc::clone(&disk) as Shared;
    let mut volumes = Volumes::new(Arc::clone(&shared), VolumesRoot::kubelet(root));
    let data = || [volume(&[("a", "1")])];
    disk.fail(fsx::Doing::Sync, root, nix::errno::Errno::EIO);
    volumes.write(UID, &data()).unwrap_err();
    let has = || shared.load(&place(root).join("a"), 9).is_ok();
    assert!(!has(), "it would be in force and may not be on the disk");
    disk.mend(root);
    assert_eq!(volumes.write(UID, &data()).unwrap().published.len(), 1);
    assert!(has());
}

#[test]
fn whether_the_disk_takes_data_is_tried_and_leaves_nothing() {
    let (root, volumes) = root();
    let pod = root.path().join("pods").join(UID);
    fs::create_dir_all(&pod).unwrap();
    fs::write(pod.join(super::super::TRIED), "of an agent that was killed").unwrap();
    volumes.try_disk(UID).unwrap();
    assert_eq!(fs::read_dir(&pod).unwrap().count(), 0);
    fs::remove_dir(&pod).unwrap();
    fs::write(&pod, "no folder").unwrap();
    assert!(volumes.try_disk(UID).is_err());
}

#[test]
fn what_many_pods_need_is_written_together_and_one_failure_is_its_own() {
    let (root, mut volumes) = root();
    let good = [volume(&[("a", "one")])];
    let other = "1f8fad5b-d9cb-569f-a165-70867728950e";
    fs::create_dir_all(root.path().join("pods")).unwrap();
    fs::write(root.path().join("pods").join(other), "in the way").unwrap();
    let pods = [(UID, good.as_slice()), (other, good.as_slice()), ("..", good.as_slice())];
    assert!(volumes.write_together(&pods, crate::node::fsx::Unsynced::default(), || {}));
    assert_eq!(fs::read_to_string(place(root.path()).join("a")).unwrap(), "one");
    assert!(volumes.write(UID, &good).unwrap().is_empty(), "it is there");
    assert!(volumes.write(other, &good).is_err(), "the failure is reported when the volume is written");

    // A wait that fails takes all of it back, and it is written anew.
    let (root, mut volumes) = self::root();
    let mut broken = crate::node::fsx::Unsynced::default();
    let devices = crate::node::fsx::Dir::open(&Real::shared(), Path::new("/dev")).unwrap();
    broken.add_file(devices.open_file("null").unwrap().unwrap());
    assert!(!volumes.write_together(&[(UID, good.as_slice())], broken, || {}), "the null device cannot be waited for");
    assert!(!place(root.path()).join("..data").exists());
    assert_eq!(volumes.write(UID, &good).unwrap().published.len(), 1);
}

#[test]
fn a_loss_of_power_at_any_moment_leaves_a_whole_version() {
    let versions = [volume(&[("a", "1"), ("sub/b", "1")]), volume(&[("a", "2"), ("sub/b", "2")])];
    fsx::at_every_loss_of_power(|disk, changes, kept| {
        let (shared, root): (Shared, _) = (Arc::clone(disk) as Shared, Path::new("/kubelet"));
        disk.make_folder(&root.join("pods"));
        let found = || ["a", "sub/b"].map(|file| shared.load(&place(root).join(file), 9).ok());
        let is = |version: &str| found().iter().all(|data| data.as_deref() == Some(version.as_bytes()));
        let mut volumes = Volumes::new(Arc::clone(&shared), VolumesRoot::kubelet(root));
        volumes.write(UID, &versions[..1]).unwrap();
        disk.stop_after(changes);
        let written = volumes.write(UID, &versions[1..]);
        let has_stopped = disk.heal();
        assert!(is("1") || is("2"), "what a reader sees: {:?}", found());
        disk.crash(kept);
        assert!(is("2") || written.is_err() && is("1"), "{changes} {kept:?}: {:?}", found());
        let mut volumes = Volumes::new(Arc::clone(&shared), VolumesRoot::kubelet(root));
        volumes.write(UID, &versions[1..]).unwrap();
        assert!(is("2"));
        has_stopped
    });
}

#[test]
fn a_volume_that_cannot_be_written_keeps_no_other_from_its_data() {
    let (root, mut volumes) = root();
    let token = |data: &str| VolumeData { name: "token".to_owned(), ..volume(&[("token", data)]) };
    volumes.write(UID, &[volume(&[("a", "1")]), token("1")]).unwrap();
    fs::remove_dir_all(place(root.path())).unwrap();
    fs::write(place(root.path()), "in the way").unwrap();
    let error = volumes.write(UID, &[volume(&[("a", "2")]), token("2")]).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write volume config of pod UID {UID}"));
    let read = place(root.path()).parent().unwrap().join("token/token");
    assert_eq!(fs::read_to_string(read).unwrap(), "2");
    fs::remove_file(place(root.path())).unwrap();
    let written = volumes.write(UID, &[volume(&[("a", "2")]), token("2")]).unwrap();
    assert_eq!(written.published.into_iter().collect::<Vec<_>>(), ["config"]);
}

#[test]
fn what_fails_again_is_the_same_failure() {
    let fails = |volumes: &mut Volumes, data: &VolumeData| {
        let error = volumes.write(UID, [data]).unwrap_err();
        let VolumeError::Write { source, .. } = &error else { panic!("{error}") };
        (source.to_string(), source.path.clone(), error.hint())
    };
    let (root, mut volumes) = root();
    let refused = volume(&[("k", "1"), ("k/below", "2")]);
    let first = fails(&mut volumes, &refused);
    assert_eq!(first.1, place(root.path()).join("k"), "it names volume and key");
    assert_eq!(fails(&mut volumes, &refused), first);
    volumes.write(UID, &[volume(&[("a", "1")])]).unwrap();
    assert_eq!(fails(&mut volumes, &refused), first, "also of one that is there");
}
