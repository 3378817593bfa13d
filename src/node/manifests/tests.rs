use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use super::Manifest;
use super::ManifestDir;
use super::ManifestError;
use crate::core::model::ObjectKey;
use crate::core::record::Instance;
use crate::core::time::Timestamp;
use crate::core::yaml;
use crate::node::fsx::Real;

mod disk;
mod others;
mod watch;

const NAME: &str = "kube-system_net-abcde.yaml";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "kube-system",
            "name": name,
            "uid": "0f8fad5b-d9cb-569f-a165-70867728950e",
            "labels": {"controller-revision-hash": "7d9f"},
            "annotations": {"daemonlet.dev/daemonset": "kube-system/net", "daemonlet.dev/incarnation": "3"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn bytes(pod: &Value) -> Vec<u8> {
    format!("# Written by a test\n{}", yaml::write(pod)).into_bytes()
}

/// What the record of `pod` says of its manifest.
fn recorded() -> Manifest {
    let instance = Instance::new("0f8fad5b-d9cb-569f-a165-70867728950e", "net-abcde", 3, "7d9f", Timestamp::default());
    Manifest::recorded(&ObjectKey::new("kube-system", "net"), &instance)
}

/// The folder as the next process opens it.
fn next(dir: ManifestDir) -> ManifestDir {
    let path = dir.path().to_owned();
    drop(dir);
    ManifestDir::open(&Real::shared(), &path, &mut None).unwrap()
}

fn put(dir: &mut ManifestDir, pod: &Value) {
    dir.write(NAME, &bytes(pod), pod).unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// A manifest folder that does not exist yet, opened.
fn fresh() -> (tempfile::TempDir, ManifestDir) {
    let root = tempfile::tempdir().unwrap();
    let dir = ManifestDir::open(&Real::shared(), &root.path().join("manifests"), &mut None).unwrap();
    (root, dir)
}

#[test]
fn a_written_manifest_is_found_again_with_all_it_says() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("net-abcde"));
    assert_eq!(mode(dir.path()), 0o700);
    assert_eq!(mode(&dir.path().join(NAME)), 0o600);
    assert_eq!(names(dir.path()), [".daemonlet", NAME]);
    assert_eq!(names(&dir.path().join(".daemonlet")), [""; 0]);
    dir = next(dir);
    let scan = dir.scan().unwrap();
    let found = &scan.ours[NAME];
    assert_eq!(found.owner, ObjectKey::new("kube-system", "net"));
    assert_eq!((found.namespace.as_str(), found.pod_name.as_str()), ("kube-system", "net-abcde"));
    assert_eq!(found.uid, "0f8fad5b-d9cb-569f-a165-70867728950e");
    assert_eq!((found.incarnation, found.revision.as_str()), (Some(3), "7d9f"));
    assert_eq!(found.sha256, super::sha256(&bytes(&pod("net-abcde"))));
    assert!(found.data_volumes.is_empty());
    assert!(dir.remove(NAME).unwrap());
    assert!(!dir.remove(NAME).unwrap());
    assert_eq!(names(dir.path()), [".daemonlet"]);
}

#[test]
fn a_volume_that_starts_empty_and_is_only_read_has_its_data_from_the_agent() {
    let (_root, mut dir) = fresh();
    let read_only = json!({"name": "v", "mountPath": "/v", "readOnly": true});
    let mut own = read_only.clone();
    own["readOnly"] = false.into();
    let empty = json!({"name": "v", "emptyDir": {}});
    for (volume, mounts, needs_data) in [
        (&empty, vec![&read_only, &read_only], true),
        (&empty, vec![&read_only, &own], false),
        (&empty, vec![], false),
        (&json!({"name": "v", "hostPath": {"path": "/v"}}), vec![&read_only], false),
    ] {
        let mut pod = pod("net-abcde");
        pod["spec"]["volumes"] = json!([volume]);
        pod["spec"]["containers"][0]["volumeMounts"] = mounts.iter().copied().cloned().collect();
        put(&mut dir, &pod);
        dir = next(dir);
        let scan = dir.scan().unwrap();
        assert_eq!(scan.ours[NAME].data_volumes == ["v"], needs_data, "{volume} {mounts:?}");
        assert!(!scan.ours[NAME].has_gate);
        dir.remove(NAME).unwrap();
    }
    let mut pod = pod("net-abcde");
    pod["spec"]["volumes"] = json!([{"name": "daemonlet-gate", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "daemonlet-gate", "mountPath": "/g", "readOnly": true}]);
    put(&mut dir, &pod);
    let scan = next(dir).scan().unwrap();
    assert_eq!((scan.ours[NAME].has_gate, scan.ours[NAME].data_volumes.len()), (true, 0));
}

#[test]
fn what_does_not_read_back_as_meant_never_gets_the_name() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("old"));
    let error = dir.write(NAME, &bytes(&pod("new")), &pod("other")).unwrap_err();
    assert!(error.to_string().contains("(.metadata.name differs): the previous one stays"), "{error}");
    let error = dir.write(NAME, b"{\"kind\": [", &pod("new")).unwrap_err();
    assert!(matches!(error, ManifestError::Check { .. }), "{error}");
    let error = dir.write(NAME, &vec![b' '; 10 << 20], &pod("new")).unwrap_err();
    assert!(matches!(error, ManifestError::Check { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), bytes(&pod("old")));
    assert_eq!(names(&dir.path().join(".daemonlet")), [""; 0]);
}

#[test]
fn a_manifest_that_somebody_removes_meanwhile_is_not_put_back() {
    let (_root, mut dir) = fresh();
    let pod = pod("net-abcde");
    put(&mut dir, &pod);
    dir.rewrite(NAME, &bytes(&pod), &pod).unwrap();
    fs::remove_file(dir.path().join(NAME)).unwrap();
    assert!(matches!(dir.rewrite(NAME, &bytes(&pod), &pod).unwrap_err(), ManifestError::Gone { .. }));
    assert_eq!(names(dir.path()), [".daemonlet"]);
    assert!(names(&dir.path().join(".daemonlet")).is_empty());
}

#[test]
fn a_foreign_file_is_never_touched_or_counted() {
    let (_root, mut dir) = fresh();
    let foreign = dir.path().join(NAME);
    let unlike = [
        "kind: Pod\n".to_owned(),
        String::from_utf8(bytes(&json!({"metadata": {"name": "about daemonlet.dev/daemonset"}}))).unwrap(),
        r#"{"metadata": {"annotations": {"daemonlet.dev/daemonset": "no slash"}}}"#.to_owned(),
    ];
    for text in unlike {
        fs::write(&foreign, &text).unwrap();
        for error in [dir.write(NAME, &bytes(&pod("a")), &pod("a")).unwrap_err(), dir.remove(NAME).unwrap_err()] {
            assert!(matches!(&error, ManifestError::Foreign { path, .. } if *path == foreign), "{error}");
            assert!(error.hint().unwrap().contains(NAME));
        }
        assert!(dir.scan().unwrap().ours.is_empty());
        assert_eq!(fs::read_to_string(&foreign).unwrap(), text);
    }
    fs::remove_file(&foreign).unwrap();
    // A link to a file that says it is ours, under another name than ours, is not ours.
    let (elsewhere, other) = (dir.path().parent().unwrap().join("elsewhere"), "other.yaml");
    fs::write(&elsewhere, bytes(&pod("a"))).unwrap();
    symlink(&elsewhere, dir.path().join(other)).unwrap();
    let scan = dir.scan().unwrap();
    assert!(scan.ours.is_empty() && scan.unreadable.is_empty(), "{scan:?}");
    assert!(matches!(dir.remove(other).unwrap_err(), ManifestError::Foreign { .. }));
    assert!(elsewhere.exists());
}

#[test]
fn drift_is_seen_and_a_spoiled_manifest_stays_ours() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("a"));
    let path = dir.path().join(NAME);
    let before = dir.scan().unwrap().ours[NAME].clone();
    // Edited, with the annotation kept.
    fs::write(&path, bytes(&pod("b"))).unwrap();
    let after = dir.scan().unwrap().ours[NAME].clone();
    assert_eq!(after.pod_name, "b");
    assert_ne!(after.sha256, before.sha256);
    // Emptied in place.
    fs::write(&path, "").unwrap();
    let spoiled = dir.scan().unwrap().ours[NAME].clone();
    assert!(spoiled.damage.is_some());
    assert_eq!(spoiled.uid, before.uid);
    put(&mut dir, &pod("a"));
    assert_eq!(dir.scan().unwrap().ours[NAME].sha256, before.sha256);
    fs::remove_file(&path).unwrap();
    assert!(dir.scan().unwrap().ours.is_empty());
}

#[test]
fn a_change_of_the_same_length_right_after_a_look_is_seen() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("a"));
    for name in ["b", "c", "d", "e", "f", "g"] {
        fs::write(dir.path().join(NAME), bytes(&pod(name))).unwrap();
        assert_eq!(dir.scan().unwrap().ours[NAME].pod_name, name);
    }
}

#[test]
fn folders_that_are_not_safe_are_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("manifests");
    fs::create_dir(&path).unwrap();
    for unsafe_mode in [0o775, 0o707, 0o777, 0o1777] {
        fs::set_permissions(&path, PermissionsExt::from_mode(unsafe_mode)).unwrap();
        let error = ManifestDir::open(&Real::shared(), &path, &mut None).unwrap_err();
        assert!(error.to_string().contains("can be written to by others"), "{error}");
        assert_eq!(error.hint().unwrap(), format!("chmod go-w {}", path.display()));
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    ManifestDir::open(&Real::shared(), &path, &mut None).unwrap();
    assert_eq!(mode(&path), 0o755, "the mode of an existing folder is left to its owner");
    let link = root.path().join("link");
    symlink(&path, &link).unwrap();
    for link in [link.clone(), link.join("")] {
        let error = ManifestDir::open(&Real::shared(), &link, &mut None).unwrap_err();
        assert!(error.to_string().contains("is a symbolic link"), "{error}");
    }
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let error = ManifestDir::open(&Real::shared(), &path, &mut None).unwrap_err();
        assert!(error.to_string().contains("is owned by user 1234"), "{error}");
    }
    fs::write(root.path().join("file"), "").unwrap();
    let error = ManifestDir::open(&Real::shared(), &root.path().join("file"), &mut None).unwrap_err();
    assert!(error.hint().unwrap().contains("needs a folder"), "{error}");
}

#[test]
fn what_a_crash_left_in_the_stage_is_swept_and_never_read() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("a"));
    let stage = dir.path().join(".daemonlet");
    fs::write(stage.join(NAME), "half").unwrap();
    fs::create_dir(stage.join("folder")).unwrap();
    put(&mut dir, &pod("b"));
    let mut again = next(dir);
    assert_eq!(names(&stage), [""; 0]);
    assert_eq!(again.scan().unwrap().ours.len(), 1);
}

#[test]
fn to_look_at_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    assert!(ManifestDir::open_read_only(&Real::shared(), &root.path().join("absent")).unwrap().is_none());
    fs::write(root.path().join(NAME), bytes(&pod("a"))).unwrap();
    let mut dir = ManifestDir::open_read_only(&Real::shared(), root.path()).unwrap().unwrap();
    assert_eq!(dir.scan().unwrap().ours.len(), 1);
    assert!(matches!(dir.write(NAME, b"", &pod("a")).unwrap_err(), ManifestError::ReadOnly { .. }));
    assert!(matches!(dir.remove(NAME).unwrap_err(), ManifestError::ReadOnly { .. }));
    assert_eq!(names(root.path()), [NAME]);
}

#[test]
fn a_folder_that_is_removed_is_made_again() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("a"));
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(dir.scan().unwrap().ours.is_empty());
    put(&mut dir, &pod("a"));
    assert_eq!(names(dir.path()), [".daemonlet", NAME]);
    fs::remove_dir_all(dir.path().join(".daemonlet")).unwrap();
    put(&mut dir, &pod("b"));
    assert_eq!(dir.scan().unwrap().ours[NAME].pod_name, "b");
}

#[test]
fn names_that_the_kubelet_would_skip_are_refused() {
    let (_root, mut dir) = fresh();
    for name in ["", ".x", "a/b", "..", "../x"] {
        assert!(matches!(dir.write(name, b"", &pod("a")).unwrap_err(), ManifestError::Name { .. }), "{name}");
        assert!(matches!(dir.remove(name).unwrap_err(), ManifestError::Name { .. }), "{name}");
    }
}

#[test]
fn a_pass_over_unchanged_files_reads_none_of_them() {
    let (_root, mut dir) = fresh();
    let many = 100;
    for i in 0..many {
        dir.write(&format!("{i}.yaml"), &bytes(&pod("a")), &pod("a")).unwrap();
    }
    // Until the time stamps are old enough to be trusted.
    std::thread::sleep(Duration::from_millis(30));
    dir.scan().unwrap();
    let first = dir.scan().unwrap();
    let started = std::time::Instant::now();
    let second = dir.scan().unwrap();
    eprintln!("{many} unchanged manifests: {:?}", started.elapsed());
    assert_eq!(second.ours.len(), many);
    for (name, manifest) in &first.ours {
        assert!(std::sync::Arc::ptr_eq(manifest, &second.ours[name]), "{name} was read again");
    }
}

#[test]
fn a_prepared_manifest_is_put_in_place_and_none_is_left_staged() {
    let (root, mut dir) = fresh();
    let pod = pod("net-abcde");
    dir.prepare("kube-system-other-abcde.yaml", b"never written", None);
    dir.prepare(NAME, &bytes(&pod), None);
    put(&mut dir, &pod);
    assert_eq!(names(&root.path().join("manifests/.daemonlet")), ["kube-system-other-abcde.yaml"]);
    dir.sync().unwrap();
    assert_eq!(fs::read(root.path().join("manifests").join(NAME)).unwrap(), bytes(&pod));
    assert_eq!(names(&root.path().join("manifests/.daemonlet")), [""; 0]);

    // Nor one that could not be synced.
    dir.prepare(NAME, &bytes(&pod), None);
    dir.are_synced(false);
    assert_eq!(names(&root.path().join("manifests/.daemonlet")), [""; 0]);

    // The folder is another one by the time it is written.
    dir.prepare(NAME, &bytes(&pod), None);
    fs::remove_dir_all(root.path().join("manifests")).unwrap();
    put(&mut dir, &pod);
    assert_eq!(names(&root.path().join("manifests")), [".daemonlet", NAME]);
}

#[test]
fn what_was_decoded_before_is_put_only_with_the_same_bytes() {
    let (root, mut dir) = fresh();
    let (pod, other) = (pod("net-abcde"), pod("net-fghij"));
    dir.prepare(NAME, &bytes(&pod), None);
    dir.decode([(NAME, bytes(&pod).as_slice(), &other)].into_iter());
    let error = dir.write(NAME, &bytes(&pod), &other).unwrap_err();
    assert!(matches!(error, ManifestError::Check { .. }), "it decodes to something else: {error}");

    dir.prepare(NAME, &bytes(&pod), None);
    dir.decode([(NAME, bytes(&pod).as_slice(), &pod)].into_iter());
    fs::write(root.path().join("manifests/.daemonlet").join(NAME), bytes(&other)).unwrap();
    let error = dir.write(NAME, &bytes(&pod), &pod).unwrap_err();
    assert!(matches!(error, ManifestError::Check { .. }), "other bytes came back: {error}");
    assert_eq!(names(&root.path().join("manifests")), [".daemonlet"]);

    dir.prepare(NAME, &bytes(&pod), None);
    dir.decode([(NAME, bytes(&pod).as_slice(), &pod)].into_iter());
    put(&mut dir, &pod);
}

#[test]
fn a_manifest_whose_mode_somebody_changed_gets_it_back_without_being_written() {
    let (_root, mut dir) = fresh();
    put(&mut dir, &pod("net-abcde"));
    let (ours, theirs) = (dir.path().join(NAME), dir.path().join("theirs.yaml"));
    fs::write(&theirs, "kind: Pod").unwrap();
    let is_same = |before: &fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        let now = ours.metadata().unwrap();
        (now.ino(), now.mtime_nsec()) == (before.ino(), before.mtime_nsec())
    };
    dir.scan().unwrap();
    assert!(dir.restore_attributes().is_empty());
    let before = ours.metadata().unwrap();
    for file in [&ours, &theirs] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    }
    dir.scan().unwrap();
    let restored: Vec<_> = dir.restore_attributes().into_iter().map(|(file, had)| (file, had.unwrap())).collect();
    let lines: Vec<_> = restored.iter().map(|(file, had)| (file.as_str(), had.to_string())).collect();
    let me = nix::unistd::geteuid();
    assert_eq!(lines, [(NAME, format!("mode 0666 and owner {me}"))]);
    assert_eq!((mode(&ours), mode(&theirs)), (0o600, 0o666), "others' files stay as they are");
    assert!(is_same(&before), "the kubelet compares the content, which is the same");
    dir.scan().unwrap();
    assert!(dir.restore_attributes().is_empty(), "it is reported once");
}
