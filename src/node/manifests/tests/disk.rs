//! Disks that are full or read only, and losses of power.

use crate::core::manifest::HEAD;
use crate::node::fsx;
use crate::node::fsx::Shared;

use super::*;

#[test]
fn what_a_loss_of_power_leaves_of_a_manifest_is_put_back_and_removed_like_one_that_is_gone() {
    let whole = bytes(&pod("a"));
    let begun = [HEAD.as_bytes(), b"kube-system/net, revi"].concat();
    // Cut within the UID: it reads well, with the annotation that makes it ours.
    let metadata = "kind: Pod\nmetadata:\n  annotations: {daemonlet.dev/daemonset: a/b}\n  uid: 7ef5b46d-832c";
    let cut = [HEAD.as_bytes(), b"a/b\n", metadata.as_bytes()].concat();
    for (left, is_ours) in [
        (b"".to_vec(), true),
        (vec![0; 512], true),
        (begun, true),
        (cut, true),
        (HEAD.as_bytes()[..9].to_vec(), true),
        (b"kind: Pod\n".to_vec(), false),
        (b"\n".to_vec(), false),
    ] {
        for is_known in [true, false] {
            let (_root, mut dir) = fresh();
            fs::write(dir.path().join(NAME), &left).unwrap();
            dir.remember(is_known.then(recorded).into_iter());
            assert!(dir.scan().unwrap().ours.is_empty(), "{left:?}");
            let written = dir.write(NAME, &whole, &pod("a"));
            assert_eq!(written.is_ok(), is_ours, "{left:?} {written:?}");
            if written.is_err() {
                continue;
            }
            assert_eq!(dir.scan().unwrap().ours[NAME].pod_name, "a");
            // The next process finds it so, and removes it.
            fs::remove_file(dir.path().join(NAME)).unwrap();
            fs::write(dir.path().join(NAME), &left).unwrap();
            let mut next = super::next(dir);
            next.remember([recorded()].into_iter());
            assert!(next.remove(NAME).unwrap());
        }
    }
}

/// A small file system of its own; `None`, with a note, where this process may not mount.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        match nix::mount::mount(Some("tmpfs"), at.path(), Some("tmpfs"), flags, Some("size=64k,mode=755")) {
            Ok(()) => Some(Self(at)),
            Err(e) => {
                eprintln!("skipped: a file system of its own cannot be mounted: {e}");
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        nix::mount::umount(self.0.path()).unwrap();
    }
}

#[test]
fn a_full_or_read_only_disk_is_named_with_what_to_do_and_nothing_is_lost() {
    let Some(disk) = Tmpfs::mount() else { return };
    let mut dir = ManifestDir::open(&Real::shared(), disk.0.path(), &mut None).unwrap();
    put(&mut dir, &pod("a"));
    let before = fs::read(dir.path().join(NAME)).unwrap();
    let mut large = pod("a");
    large["metadata"]["annotations"]["filler"] = "x".repeat(128 << 10).into();
    let error = dir.write(NAME, &bytes(&large), &large).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write manifest {}", dir.path().join(NAME).display()));
    assert!(error.hint().unwrap().contains("is full"), "{:?}", error.hint());
    assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), before);
    put(&mut dir, &pod("b"));

    let flags = nix::mount::MsFlags::MS_REMOUNT | nix::mount::MsFlags::MS_RDONLY;
    nix::mount::mount(None::<&str>, disk.0.path(), None::<&str>, flags, None::<&str>).unwrap();
    for error in [dir.write(NAME, &bytes(&pod("c")), &pod("c")).unwrap_err(), dir.remove(NAME).unwrap_err()] {
        assert!(error.hint().unwrap().contains("ReadWritePaths="), "{:?}", error.hint());
    }
    assert_eq!(dir.scan().unwrap().ours[NAME].pod_name, "b");
    drop(dir);
}

#[test]
fn a_loss_of_power_at_any_moment_leaves_one_manifest_or_the_other() {
    fsx::at_every_loss_of_power(|disk, changes, kept| {
        let (shared, path): (Shared, _) = (Arc::clone(disk) as Shared, Path::new("/manifests"));
        let mut dir = ManifestDir::open(&shared, path, &mut None).unwrap();
        put(&mut dir, &pod("a"));
        dir.sync().unwrap();
        disk.stop_after(changes);
        let written = dir.write(NAME, &bytes(&pod("b")), &pod("b")).and_then(|()| dir.sync());
        let has_stopped = disk.heal();
        // A kubelet that reads at this moment.
        let now = shared.load(&path.join(NAME), u64::MAX).unwrap();
        assert!([bytes(&pod("a")), bytes(&pod("b"))].contains(&now));
        disk.crash(kept);
        let mut dir = ManifestDir::open(&shared, path, &mut None).unwrap();
        let scan = dir.scan().unwrap();
        let found = &scan.ours[NAME];
        assert!(found.damage.is_none() && scan.unreadable.is_empty());
        assert!(found.pod_name == "b" || written.is_err() && found.pod_name == "a", "{found:?}");
        put(&mut dir, &pod("c"));
        has_stopped
    });
}

#[test]
fn a_removal_that_was_not_synced_is_synced_later() {
    let disk = fsx::Simulated::shared();
    let folder = Path::new("/m");
    disk.make_folder(folder);
    let shared: Shared = Arc::clone(&disk) as Shared;
    let mut dir = ManifestDir::open(&shared, folder, &mut None).unwrap();
    dir.write(NAME, &bytes(&pod("a")), &pod("a")).unwrap();
    dir.sync().unwrap();
    disk.fail(fsx::Doing::Sync, folder, nix::errno::Errno::EIO);
    assert!(dir.remove(NAME).is_err() && dir.sync().is_err());
    disk.mend(folder);
    dir.sync().unwrap();
    disk.crash(fsx::PowerLossKeeps::Nothing);
    assert!(ManifestDir::open(&shared, folder, &mut None).unwrap().scan().unwrap().ours.is_empty());
}
