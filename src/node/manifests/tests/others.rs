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
            dir.remember([recorded()].into_iter());
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

#[test]
fn a_manifest_that_another_program_wrote_anew_stays_ours_as_long_as_it_has_our_pod() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut other = pod("net-abcde");
        other["metadata"]["annotations"] = json!({});
        change(&mut other);
        other.to_string()
    };
    let uid = |uid: &'static str| move |pod: &mut Value| pod["metadata"]["uid"] = json!(uid);
    let of_others = |pod: &mut Value| {
        uid("other")(pod);
        pod["metadata"]["name"] = json!("other");
    };
    enum Found {
        Ours,
        Unreadable,
        Foreign,
    }
    for (text, found) in [
        (with(&|_| {}), Found::Ours),
        (with(&|pod| pod["metadata"]["name"] = json!("other")), Found::Ours),
        (with(&|pod| pod["metadata"]["annotations"] = json!({"daemonlet.dev/daemonset": "nonsense"})), Found::Ours),
        (with(&uid("other")), Found::Unreadable),
        (with(&uid("")), Found::Unreadable),
        ("kind: [\n".to_owned(), Found::Unreadable),
        (with(&of_others), Found::Foreign),
    ] {
        for known_by in ["scan", "write", "record"] {
            let (_root, mut dir) = fresh();
            put(&mut dir, &pod("net-abcde"));
            match known_by {
                "scan" => drop(dir.scan().unwrap()),
                "record" => {
                    dir = next(dir);
                    dir.remember([recorded()].into_iter());
                }
                _ => {}
            }
            let (path, new) = (dir.path().join(NAME), dir.path().parent().unwrap().join("new"));
            fs::write(&new, &text).unwrap();
            fs::rename(&new, &path).unwrap();
            let scan = dir.scan().unwrap();
            let rewritten = dir.rewrite(NAME, &bytes(&pod("net-abcde")), &pod("net-abcde"));
            match found {
                Found::Ours => {
                    let manifest = &scan.ours[NAME];
                    assert!(manifest.damage.is_some() && manifest.uid == recorded().uid, "{known_by}: {text}");
                    assert_eq!((&manifest.owner, manifest.incarnation), (&recorded().owner, Some(3)));
                    rewritten.unwrap();
                    assert!(dir.scan().unwrap().ours[NAME].damage.is_none(), "{known_by}: {text}");
                    continue;
                }
                Found::Unreadable => {
                    assert!(scan.unreadable[NAME].source.to_string().contains("another program overwrote"), "{scan:?}");
                    assert!(scan.is_unreadable("kube-system", "net-abcde") && scan.ours.is_empty());
                }
                Found::Foreign => assert_eq!(scan.foreign["other"], NAME, "{known_by}"),
            }
            rewritten.unwrap_err();
            dir.remove(NAME).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "what is not our pod is not touched");
        }
    }
}

#[test]
fn a_foreign_file_with_our_pod_is_told() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("net-abcde"));
    let (mut copy, other) = (pod("other"), dir.path().join("other.yaml"));
    copy["metadata"]["annotations"] = json!({});
    fs::write(&other, copy.to_string()).unwrap();
    let scan = dir.scan().unwrap();
    assert_eq!((scan.ours.len(), scan.foreign[&recorded().uid].as_str()), (1, "other.yaml"));
    fs::remove_file(dir.path().join(NAME)).unwrap();
    assert!(dir.scan().unwrap().has(&recorded().uid));
    assert!(
        matches!(dir.refuse_foreign_pod(&recorded().uid), Err(ManifestError::Foreign { path, .. }) if path == other)
    );
    fs::remove_file(&other).unwrap();
    assert!(!dir.scan().unwrap().has(&recorded().uid) && dir.refuse_foreign_pod(&recorded().uid).is_ok());
}
