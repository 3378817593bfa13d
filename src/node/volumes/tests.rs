use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use super::Cleared;
use super::VolumeError;
use super::Volumes;
use super::VolumesRoot;
use crate::core::volume::VolumeData;
use crate::core::volume::VolumeFile;
use crate::node::fsx::Real;

mod disk;

const UID: &str = "0f8fad5b-d9cb-569f-a165-70867728950e";

fn file(data: &str, mode: u32) -> VolumeFile {
    VolumeFile { data: data.as_bytes().into(), mode, uid: None }
}

fn volume(files: &[(&str, &str)]) -> VolumeData {
    VolumeData {
        name: "config".to_owned(),
        files: files.iter().map(|(path, data)| ((*path).to_owned(), file(data, 0o644))).collect(),
        ..VolumeData::default()
    }
}

fn place(root: &Path) -> PathBuf {
    root.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/config")
}

fn root() -> (tempfile::TempDir, Volumes) {
    let root = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(Real::shared(), VolumesRoot::kubelet(root.path()));
    (root, volumes)
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn version(place: &Path) -> PathBuf {
    fs::read_link(place.join("..data")).unwrap()
}

/// Every path below `dir` with its kind, mode, and content or target; versions named `..VERSION`.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let version = version(dir).to_str().unwrap().to_owned();
    let mut tree = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().replace(&version, "..VERSION");
            let meta = path.symlink_metadata().unwrap();
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display()).replace(&version, "..VERSION")
            } else if meta.is_dir() {
                open.push(path.clone());
                format!("folder {:04o}", mode(&path))
            } else {
                format!("{:04o} {}", mode(&path), fs::read_to_string(&path).unwrap())
            };
            tree.insert(name, what);
        }
    }
    tree
}

fn assert_tree(dir: &Path, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(tree(dir), expected);
}

#[test]
fn layout_is_the_atomic_writers() {
    let (root, mut volumes) = root();
    let mut data = volume(&[("a.conf", "1"), ("sub/deep/b", "2"), ("sub/c", "3")]);
    data.files.insert("secret".to_owned(), file("4", 0o400));
    data.nested_mount_points.insert("mnt/inner".to_owned());
    let written = volumes.write(UID, &[data]).unwrap();
    assert!(written.published.contains("config"));
    let place = place(root.path());
    assert_tree(
        &place,
        &[
            ("..VERSION", "folder 0755"),
            ("..VERSION/a.conf", "0644 1"),
            ("..VERSION/secret", "0400 4"),
            ("..VERSION/sub", "folder 0755"),
            ("..VERSION/sub/c", "0644 3"),
            ("..VERSION/sub/deep", "folder 0755"),
            ("..VERSION/sub/deep/b", "0644 2"),
            ("..data", "-> ..VERSION"),
            ("a.conf", "-> ..data/a.conf"),
            ("mnt", "folder 0755"),
            ("mnt/inner", "folder 0755"),
            ("secret", "-> ..data/secret"),
            ("sub", "-> ..data/sub"),
        ],
    );
    let name = version(&place).to_str().unwrap().to_owned();
    let shape: String = name.chars().take(22).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "..0000_00_00_00_00_00.");
    assert!(name[22..].bytes().all(|b| b.is_ascii_digit()) && name.len() > 22);
    let pod = root.path().join("pods").join(UID);
    assert_eq!(mode(&place), 0o777);
    assert_eq!(mode(&pod), 0o750);
    assert_eq!(mode(&pod.join("volumes")), 0o750);
    assert_eq!(mode(&pod.join("volumes/kubernetes.io~empty-dir")), 0o755);
    assert_eq!(mode(&pod.join("plugins/kubernetes.io~empty-dir/config")), 0o750);
    assert!(pod.join("plugins/kubernetes.io~empty-dir/config/ready").is_file());
}

#[test]
fn an_update_switches_one_link_and_leaves_nothing_old() {
    let (root, mut volumes) = root();
    volumes.write(UID, &[volume(&[("a", "1"), ("gone/x", "2")])]).unwrap();
    let place = place(root.path());
    let (old, link) = (version(&place), place.join("a").symlink_metadata().unwrap().ino());
    let written = volumes.write(UID, &[volume(&[("a", "9"), ("new", "3")])]).unwrap();
    assert!(written.published.contains("config"));
    assert_ne!(version(&place), old);
    assert_eq!(place.join("a").symlink_metadata().unwrap().ino(), link, "a link that stays right is not made anew");
    assert_tree(
        &place,
        &[
            ("..VERSION", "folder 0755"),
            ("..VERSION/a", "0644 9"),
            ("..VERSION/new", "0644 3"),
            ("..data", "-> ..VERSION"),
            ("a", "-> ..data/a"),
            ("new", "-> ..data/new"),
        ],
    );
}

#[test]
fn equal_data_writes_nothing_even_after_a_restart() {
    let (root, mut volumes) = root();
    let data = [volume(&[("a", "1"), ("sub/b", "2")])];
    volumes.write(UID, &data).unwrap();
    let before = (version(&place(root.path())), place(root.path()).metadata().unwrap().mtime_nsec());
    assert!(volumes.intact(UID));
    assert!(volumes.write(UID, &data).unwrap().is_empty());
    let mut again = Volumes::new(Real::shared(), VolumesRoot::kubelet(root.path()));
    assert!(!again.intact(UID), "nothing is known before it was compared");
    assert!(again.write(UID, &data).unwrap().is_empty());
    assert!(again.intact(UID));
    assert_eq!(before, (version(&place(root.path())), place(root.path()).metadata().unwrap().mtime_nsec()));
}

#[test]
fn whatever_was_spoiled_is_repaired() {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 12] = [
        ("changed bytes", |p| fs::write(p.join("..data/a"), "x").unwrap()),
        ("changed bytes of the same length", |p| fs::write(p.join("..data/sub/b"), "7").unwrap()),
        ("mode of a file", |p| fs::set_permissions(p.join("..data/a"), PermissionsExt::from_mode(0o666)).unwrap()),
        ("mode of a folder", |p| fs::set_permissions(p.join("..data/sub"), PermissionsExt::from_mode(0o700)).unwrap()),
        ("mode of the volume", |p| fs::set_permissions(p, PermissionsExt::from_mode(0o700)).unwrap()),
        ("file removed", |p| fs::remove_file(p.join("..data/a")).unwrap()),
        ("file added", |p| fs::write(p.join("..data/extra"), "x").unwrap()),
        ("file became a link", |p| {
            fs::remove_file(p.join("..data/a")).unwrap();
            symlink("/etc/passwd", p.join("..data/a")).unwrap();
        }),
        ("link removed", |p| fs::remove_file(p.join("a")).unwrap()),
        ("link led elsewhere", |p| {
            fs::remove_file(p.join("..data")).unwrap();
            symlink("/etc", p.join("..data")).unwrap();
        }),
        ("version removed", |p| fs::remove_dir_all(p.join(version(p))).unwrap()),
        ("all removed", |p| fs::remove_dir_all(p).unwrap()),
    ];
    for (what, spoil) in spoils {
        let (root, mut volumes) = root();
        let data = [volume(&[("a", "1"), ("sub/b", "2")])];
        volumes.write(UID, &data).unwrap();
        let place = place(root.path());
        let right = tree(&place);
        spoil(&place);
        assert!(!volumes.intact(UID), "{what}");
        assert!(!volumes.write(UID, &data).unwrap().is_empty(), "{what}");
        assert_eq!(tree(&place), right, "{what}");
        assert_eq!(mode(&place), 0o777, "{what}");
    }
    assert!(fs::read_to_string("/etc/passwd").unwrap().contains("root"), "nothing is written through a link");
}

#[test]
fn what_a_crash_left_is_swept() {
    let (root, mut volumes) = root();
    let data = [volume(&[("a", "1")])];
    volumes.write(UID, &data).unwrap();
    let place = place(root.path());
    let right = tree(&place);
    // Died after filling a version and making the temporary link, before the rename.
    let half = place.join("..2026_01_01_00_00_00.1");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("a"), "half").unwrap();
    symlink("..2026_01_01_00_00_00.1", place.join("..data_tmp")).unwrap();
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "1", "a reader still sees the old version");
    let mut again = Volumes::new(Real::shared(), VolumesRoot::kubelet(root.path()));
    again.write(UID, &data).unwrap();
    assert_eq!(tree(&place), right);
    // Died after the rename, before the links and the removal of the old version.
    fs::create_dir(place.join("..2026_01_01_00_00_00.2")).unwrap();
    symlink("..data/old", place.join("old")).unwrap();
    symlink("..2026_01_01_00_00_00.2", place.join("..data_tmp")).unwrap();
    let mut again = Volumes::new(Real::shared(), VolumesRoot::kubelet(root.path()));
    again.write(UID, &[volume(&[("a", "2")])]).unwrap();
    assert_eq!(tree(&place).len(), right.len());
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "2");
}

#[test]
fn fs_group_and_owner_are_on_every_entry_also_after_an_update() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: giving files to other users needs root");
        return;
    }
    let (root, mut volumes) = root();
    let mut data = volume(&[("a", "1"), ("sub/b", "2")]);
    data.fs_group = Some(4321);
    data.nested_mount_points.insert("mnt".to_owned());
    data.files.insert("token".to_owned(), VolumeFile { data: (*b"t").into(), mode: 0o640, uid: Some(1234) });
    for round in 0..2 {
        data.files.get_mut("a").unwrap().data = [b'0' + round].into();
        assert!(volumes.write(UID, std::slice::from_ref(&data)).unwrap().published.contains("config"));
        let place = place(root.path());
        let at = version(&place);
        assert_eq!(mode(&place), 0o2777);
        assert_eq!(mode(&place.join(&at)), 0o2755);
        assert_eq!(mode(&place.join("..data/sub")), 0o2755);
        assert_eq!(mode(&place.join("mnt")), 0o2755);
        for name in ["", "..data", "a", "sub", "token", "mnt", "..data/a", "..data/sub", "..data/sub/b", "..data/token"]
        {
            let meta = place.join(name).symlink_metadata().unwrap();
            assert_eq!(meta.gid(), 4321, "{name}");
            assert_eq!(meta.uid(), if name.ends_with("token") { 1234 } else { 0 }, "{name}");
        }
    }
    assert!(volumes.write(UID, &[data]).unwrap().is_empty());
}

#[test]
fn an_empty_volume_is_a_version_without_files() {
    let (root, mut volumes) = root();
    volumes.write(UID, &[volume(&[])]).unwrap();
    assert_tree(&place(root.path()), &[("..VERSION", "folder 0755"), ("..data", "-> ..VERSION")]);
    assert!(volumes.write(UID, &[volume(&[])]).unwrap().is_empty());
}

#[test]
fn a_mount_point_hides_files_as_with_the_kubelet() {
    let (root, mut volumes) = root();
    let mut data = volume(&[("sub/a", "1")]);
    data.nested_mount_points.insert("sub/inner".to_owned());
    volumes.write(UID, std::slice::from_ref(&data)).unwrap();
    assert!(place(root.path()).join("sub/inner").is_dir());
    assert_eq!(mode(&place(root.path()).join("sub")), 0o755);
    assert!(volumes.write(UID, &[data]).unwrap().is_empty());
}

#[test]
fn names_that_would_leave_the_volume_are_refused() {
    let (_root, mut volumes) = root();
    for path in ["../x", "/x", "a/../x", "a//b", "", "..x", "a/", "."] {
        let error = volumes.write(UID, &[volume(&[(path, "")])]).unwrap_err();
        assert!(matches!(&error, VolumeError::Path { path: found, .. } if found == path), "{path}: {error}");
    }
    assert!(matches!(volumes.write("../x", &[]).unwrap_err(), VolumeError::Uid { .. }));
    assert!(matches!(volumes.clear("..").unwrap_err(), VolumeError::Uid { .. }));
}

#[test]
fn plain_target_is_for_looking_at() {
    let root = tempfile::tempdir().unwrap();
    let mut volumes = Volumes::new(Real::shared(), VolumesRoot::plain(root.path()));
    volumes.write(UID, &[volume(&[("a", "1")])]).unwrap();
    assert_eq!(fs::read_to_string(root.path().join("volumes").join(UID).join("config/a")).unwrap(), "1");
    assert_eq!(fs::read_dir(root.path().join("volumes").join(UID)).unwrap().count(), 1);
    assert!(volumes.intact(UID));
    assert_eq!(volumes.clear(UID).unwrap(), Cleared::Gone);
}

#[test]
fn clear_removes_what_is_ours_and_only_that() {
    let (root, mut volumes) = root();
    let mut data = volume(&[("a", "1"), ("sub/b", "2")]);
    data.nested_mount_points.insert("mnt/inner".to_owned());
    volumes.write(UID, std::slice::from_ref(&data)).unwrap();
    assert_eq!(volumes.clear(UID).unwrap(), Cleared::Gone);
    assert!(!root.path().join("pods").join(UID).exists());
    assert_eq!(volumes.clear(UID).unwrap(), Cleared::Gone, "clearing twice is no error");

    volumes.write(UID, &[data]).unwrap();
    let pod = root.path().join("pods").join(UID);
    fs::write(pod.join("etc-hosts"), "").unwrap();
    fs::create_dir(pod.join("volumes/kubernetes.io~empty-dir/cache")).unwrap();
    fs::write(pod.join("volumes/kubernetes.io~empty-dir/cache/data"), "its own").unwrap();
    assert!(matches!(volumes.clear(UID).unwrap(), Cleared::Foreign { .. }));
    assert!(!place(root.path()).exists());
    assert!(!pod.join("plugins").exists());
    assert_eq!(fs::read_to_string(pod.join("volumes/kubernetes.io~empty-dir/cache/data")).unwrap(), "its own");
}

#[test]
fn clear_goes_on_where_it_was_cut_short() {
    let (root, mut volumes) = root();
    volumes.write(UID, &[volume(&[("a", "1")])]).unwrap();
    fs::remove_dir_all(place(root.path())).unwrap();
    assert_eq!(volumes.clear(UID).unwrap(), Cleared::Gone, "the volume is gone, its marker is not");
    assert!(!root.path().join("pods").join(UID).exists());
}

#[test]
fn errors_name_volume_and_path() {
    let (root, mut volumes) = root();
    fs::create_dir_all(place(root.path()).parent().unwrap()).unwrap();
    fs::write(place(root.path()), "in the way").unwrap();
    let error = volumes.write(UID, &[volume(&[("a", "1")])]).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write volume config of pod UID {UID}"));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, format!("cannot open {}", place(root.path()).display()));
    assert!(error.hint().unwrap().contains("needs a folder"));
}

#[test]
fn a_volume_that_is_not_written_keeps_what_it_has_and_is_not_looked_at() {
    let (root, mut volumes) = root();
    let other = |data: &str| VolumeData { name: "other".to_owned(), ..volume(&[("f", data)]) };
    volumes.write(UID, &[volume(&[("a", "1")]), other("1")]).unwrap();
    let written = volumes.write(UID, &[other("2")]).unwrap();
    assert_eq!(written.published.into_iter().collect::<Vec<_>>(), ["other"]);
    assert_eq!(fs::read_to_string(place(root.path()).join("a")).unwrap(), "1");
    fs::remove_dir_all(place(root.path())).unwrap();
    assert!(volumes.intact(UID), "nothing could be done about it");
    volumes.write(UID, &[volume(&[("a", "1")]), other("2")]).unwrap();
    assert_eq!(fs::read_to_string(place(root.path()).join("a")).unwrap(), "1");
}

#[test]
fn a_token_is_written_although_its_volume_keeps_the_rest() {
    let (root, mut volumes) = root();
    let whole = VolumeData { tokens: BTreeSet::from(["token".to_owned()]), ..volume(&[("token", "1"), ("d/ca", "C")]) };
    let lacking = VolumeData { files: BTreeMap::from([("token".to_owned(), file("2", 0o600))]), ..whole.clone() };
    let tokens = lacking.tokens_alone().unwrap();
    assert!(volumes.write(UID, [&tokens]).unwrap().is_empty(), "nothing to keep: the pod has not begun");
    assert!(!place(root.path()).exists());
    volumes.write(UID, [&whole]).unwrap();
    let written = volumes.write(UID, [&tokens]).unwrap();
    assert_eq!(written.published.len(), 1);
    let read = |path: &str| fs::read_to_string(place(root.path()).join(path)).unwrap();
    assert_eq!((read("token"), read("d/ca")), ("2".to_owned(), "C".to_owned()));
    assert!(volumes.write(UID, [&tokens]).unwrap().is_empty() && volumes.intact(UID));
    assert_eq!(mode(&place(root.path()).join("..data/token")), 0o600);
}
