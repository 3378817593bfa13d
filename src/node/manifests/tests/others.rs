//! What others do with the folder: another agent, and who puts a link there.

use super::super::ManifestLock;
use super::*;

#[test]
fn a_link_in_the_place_of_a_manifest_is_not_its_removal_as_the_kubelet_follows_it() {
    for known_by in ["scan", "record", "content"] {
        let (_root, mut dir) = fresh();
        put(&mut dir, &pod("net-abcde"));
        dir.scan().unwrap();
        if known_by != "scan" {
            dir = next(dir);
        }
        if known_by == "record" {
            dir.remember([NAME.to_owned()].into_iter());
        }
        let (path, moved) = (dir.path().join(NAME), dir.path().parent().unwrap().join("moved"));
        fs::rename(&path, &moved).unwrap();
        symlink(&moved, &path).unwrap();
        let scan = dir.scan().unwrap();
        assert!(scan.ours.is_empty());
        assert!(scan.unreadable[NAME].source.to_string().contains("the kubelet follows"), "{scan:?}");
        assert!(dir.remove(NAME).is_err());
        assert!(dir.write(NAME, &bytes(&pod("net-abcde")), &pod("net-abcde")).is_err());
        assert!(path.is_symlink(), "it is not ours");
        // The kubelet ends the pod of a link that leads nowhere.
        fs::remove_file(&moved).unwrap();
        assert!(dir.scan().unwrap().unreadable.is_empty());
        symlink(dir.path(), &moved).unwrap();
        assert!(dir.scan().unwrap().unreadable.is_empty(), "or to a folder");
    }
}

#[test]
fn one_process_writes_manifests_there_and_the_others_are_told_which() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("a"));
    let stage = dir.path().join(".daemonlet");
    fs::write(stage.join("staged"), "half").unwrap();
    let path = dir.path().to_owned();
    let open = |lock: &mut Option<ManifestLock>| ManifestDir::open(&Real::shared(), &path, lock);
    let error = open(&mut None).unwrap_err();
    assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
    assert_eq!(names(&stage), ["staged"], "what the other one stages is left alone");
    assert_eq!(ManifestDir::open_read_only(&Real::shared(), &path).unwrap().unwrap().scan().unwrap().ours.len(), 1);
    // The same process opens it anew: one that was unsafe for a moment, and one that was replaced.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    dir.scan().unwrap_err();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    dir.scan().unwrap();
    let mut lock = dir.into_lock();
    dir = open(&mut lock).unwrap();
    assert!(lock.is_none() && open(&mut None).is_err());
    fs::rename(&path, path.with_file_name("former")).unwrap();
    assert!(dir.scan().unwrap().ours.is_empty());
    assert!(open(&mut None).is_err(), "the new folder is locked, too");
    drop(dir);
    open(&mut None).unwrap();
}
