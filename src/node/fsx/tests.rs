//! The simulated disk, and what it shares with the real one.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use nix::errno::Errno;

use super::Dir;
use super::Disk;
use super::Doing;
use super::FileKind;
use super::Links;
use super::Owner;
use super::PowerLossKeeps;
use super::Real;
use super::Shared;
use super::Simulated;

/// What is done on both disks, and must come out alike: each line is one step.
fn transcript(disk: &Shared, root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say =
        |what: &str, result: String| lines.push(format!("{what}: {result}").replace(&*root.to_string_lossy(), "R"));
    let errno = |e: super::FsError| (e.doing, e.source.raw_os_error().map(Errno::from_raw));
    let (top, made) = Dir::open_or_create(disk, &root.join("a/b"), 0o750).unwrap();
    say("made", format!("{made} {:o} {:?}", top.own_stat().unwrap().mode, top.names().unwrap()));
    say("again", format!("{:?}", Dir::open_or_create(disk, &root.join("a/b"), 0o700).map(|(_, made)| made).unwrap()));
    let file = top.create_file("f", b"12345", 0o640, Owner::default()).unwrap();
    let stat = file.stat().unwrap();
    say("file", format!("{:?} {:o} {} {}", stat.kind, stat.mode, stat.size(), stat.links));
    say("taken", format!("{:?}", top.create_file("f", b"", 0o600, Owner::default()).map_err(errno).unwrap_err()));
    say("read", format!("{:?} {:?}", top.read_file("f", 3), top.read_file("f", 99).unwrap()));
    say("end", format!("{:?}", file.read_end(2).unwrap()));
    say("no file", format!("{:?} {:?}", top.read_file("g", 9).unwrap(), top.stat("f/x").unwrap().is_none()));
    say("not a folder", format!("{:?}", top.child("f").map_err(errno).unwrap_err()));
    top.symlink(Path::new("f"), "l").unwrap();
    say("link", format!("{:?} {:?}", top.read_link("l").unwrap(), top.read_link("f").unwrap()));
    say("through the link", format!("{:?}", top.open_file("l").map_err(errno).unwrap_err()));
    let kinds = (top.stat("l").unwrap().unwrap().kind, disk.look(&root.join("a/b/l")).unwrap().kind);
    say("kinds", format!("{kinds:?}"));
    say("loaded", format!("{:?}", disk.load(&root.join("a/../a/b/l"), 99).unwrap()));
    say("resolved", format!("{:?}", disk.resolve(&root.join("a/b/./l")).unwrap()));
    top.symlink(Path::new("loop"), "loop").unwrap();
    say("loop", format!("{:?}", disk.look(&root.join("a/b/loop/x")).unwrap_err().raw_os_error().map(Errno::from_raw)));
    let (sub, _) = top.child_or_create("sub", 0o700).unwrap();
    sub.create_file("x", b"x", 0o600, Owner::default()).unwrap();
    say("not empty", format!("{:?}", top.remove_dir("sub").map_err(errno).unwrap_err()));
    say("no folder", format!("{:?}", top.remove_dir("f").map_err(errno).unwrap_err()));
    say("over a folder", format!("{:?}", top.rename("f", &top, "sub").map_err(errno).unwrap_err()));
    say("folder over", format!("{:?}", top.rename("sub", &top, "f").map_err(errno).unwrap_err()));
    say("gone", format!("{:?}", top.rename("none", &top, "sub").map_err(errno).unwrap_err()));
    top.rename("f", &sub, "moved").unwrap();
    say("moved", format!("{:?} {:?}", top.names().unwrap(), sub.names().unwrap()));
    say("same file", format!("{}", sub.stat("moved").unwrap().unwrap().stamp.is_same_content(&stat.stamp)));
    top.remove_tree("sub").unwrap();
    let left = sub.own_stat().unwrap().links;
    say(
        "removed",
        format!("{:?} {left} {:?}", top.names().unwrap(), sub.create_child("y", 0o700).map_err(errno).err()),
    );
    say("unlinked", format!("{:?} {:?}", top.unlink("l").unwrap(), top.unlink("l").unwrap()));
    say("a folder is no file", format!("{:?}", disk.load(&root.join("a"), 9).unwrap_err().raw_os_error()));
    say("nothing", format!("{:?}", Dir::open(disk, &root.join("n/n")).map_err(errno).unwrap_err()));
    say("locked", format!("{:?}", top.lock().unwrap()));
    let other = Dir::open(disk, &root.join("a/b")).unwrap();
    say("locked by another", format!("{:?}", other.lock().unwrap()));
    lines
}

#[test]
fn the_simulated_disk_answers_as_the_kernel_does() {
    let root = tempfile::tempdir().unwrap();
    let real = transcript(&Real::shared(), root.path());
    let simulated = Simulated::shared();
    simulated.make_folder(Path::new("/x"));
    let disk: Shared = simulated;
    assert_eq!(transcript(&disk, Path::new("/x")), real);
}

#[test]
fn both_tell_the_same_changes() {
    let tell = |disk: &Shared, root: &Path| {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let write = Arc::clone(&seen);
        let watched = disk.watch(root, Box::new(move |change| write.lock().unwrap().push(format!("{change:?}"))));
        let watched = watched.unwrap();
        let dir = Dir::open(disk, root).unwrap();
        let done = |what: &str| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while !seen.lock().unwrap().iter().any(|change| change == what) {
                assert!(std::time::Instant::now() < until, "{what}: {seen:?}");
                std::thread::yield_now();
            }
        };
        dir.create_file("f", b"x", 0o600, Owner::default()).unwrap();
        done("Appeared(\"f\")");
        done("Altered(\"f\")");
        dir.rename("f", &dir, "g").unwrap();
        done("Gone(\"f\")");
        done("Appeared(\"g\")");
        dir.unlink("g").unwrap();
        done("Gone(\"g\")");
        let (aside, here) = (root.with_extension("aside"), super::DiskHandle::Start);
        disk.rename(&here, root, &here, &aside).unwrap();
        done("Folder");
        assert!(!watched.is_alive());
    };
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("w")).unwrap();
    tell(&Real::shared(), &root.path().join("w"));
    let simulated = Simulated::shared();
    simulated.make_folder(Path::new("/w"));
    tell(&(simulated as Shared), Path::new("/w"));
}

#[test]
fn a_loss_of_power_takes_what_was_not_waited_for() {
    for has_one_journal in [true, false] {
        let disk = Simulated::shared();
        disk.set_one_journal(has_one_journal);
        disk.put("/d/old", "old");
        let shared: Shared = disk.clone();
        let dir = Dir::open(&shared, Path::new("/d")).unwrap();
        dir.create_file("synced", b"synced", 0o600, Owner::default()).unwrap().sync().unwrap();
        dir.create_file("half", b"half", 0o600, Owner::default()).unwrap();
        dir.sync().unwrap();
        dir.unlink("old").unwrap();
        dir.create_file("late", b"late", 0o600, Owner::default()).unwrap();
        let boot = disk.as_ref() as &dyn Disk;
        let before = boot.boot_id();
        disk.crash(PowerLossKeeps::Nothing);
        assert_ne!(boot.boot_id(), before);
        assert_eq!(dir.names().unwrap_err().source.raw_os_error(), Some(Errno::EBADF as i32), "it is closed");
        let dir = Dir::open(&shared, Path::new("/d")).unwrap();
        assert_eq!(dir.names().unwrap(), ["half", "old", "synced"]);
        assert_eq!(dir.read_file("synced", 99).unwrap().unwrap(), b"synced");
        assert_eq!(dir.read_file("half", 99).unwrap().unwrap(), b"", "its name was waited for, its bytes were not");
        assert_eq!(dir.read_file("old", 99).unwrap().unwrap(), b"old");
        // One wait covers the other folders only where they share a journal.
        let (other, _) = Dir::open_or_create(&shared, Path::new("/e"), 0o700).unwrap();
        other.create_file("f", b"", 0o600, Owner::default()).unwrap();
        dir.sync().unwrap();
        disk.crash(PowerLossKeeps::Nothing);
        assert_eq!(shared.look(Path::new("/e/f")).is_ok(), has_one_journal);
    }
}

#[test]
fn it_fails_where_a_test_orders_it() {
    let disk = Simulated::shared();
    disk.put("/d/f", "x");
    disk.set_volatile("/run");
    disk.put("/run/f", "x");
    let shared: Shared = disk.clone();
    let dir = Dir::open(&shared, Path::new("/d")).unwrap();
    for (doing, errno) in [(Doing::Rename, Errno::EIO), (Doing::Remove, Errno::EROFS), (Doing::Read, Errno::EIO)] {
        disk.fail(doing, "/d", errno);
        let failed = match doing {
            Doing::Rename => dir.rename("f", &dir, "g").map(drop),
            Doing::Remove => dir.unlink("f").map(drop),
            _ => dir.read_file("f", 9).map(drop),
        };
        let failed = failed.unwrap_err();
        assert_eq!((failed.doing, failed.source.raw_os_error()), (doing, Some(errno as i32)));
    }
    assert!(shared.load(Path::new("/run/f"), 9).is_ok(), "elsewhere it works");
    disk.heal();
    assert!(dir.unlink("f").unwrap());
    disk.crash(PowerLossKeeps::Nothing);
    assert_eq!(shared.look(Path::new("/d/f")).unwrap().kind, FileKind::File, "it was not synced");
    assert!(shared.look(Path::new("/run/f")).is_err());
    assert!(shared.stat(&super::DiskHandle::Start, Path::new("/run"), Links::Refuse).is_ok());
}

/// Calls `tried` once for each number of changes that come before a loss of power, with and without a journal that all
/// folders share, until nothing more can be lost.
pub(crate) fn at_every_loss_of_power(tried: impl Fn(&Arc<Simulated>, u64, PowerLossKeeps) -> bool) {
    for (has_one_journal, kept) in [
        (true, PowerLossKeeps::Nothing),
        (true, PowerLossKeeps::Names),
        (false, PowerLossKeeps::Nothing),
        (false, PowerLossKeeps::Names),
    ] {
        let count = (0..1_000).take_while(|changes| {
            let disk = Simulated::shared();
            disk.set_one_journal(has_one_journal);
            tried(&disk, *changes, kept)
        });
        let count = count.count();
        assert!(count > 3 && count < 1_000, "{count} changes");
    }
}

#[test]
fn there_is_room_for_descriptors_from_the_start() {
    super::widen_descriptors();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
    assert!(size.trim().parse::<i32>().unwrap() >= super::DESCRIPTORS, "{size}");
}

#[test]
fn what_is_in_the_way_is_to_be_looked_at_before_it_is_moved() {
    for error in [Errno::ELOOP, Errno::ENOTDIR] {
        let hint = super::FsError::reading("/a/b", std::io::Error::from_raw_os_error(error as i32)).hint().unwrap();
        assert!(hint.contains("with `namei -l /a/b`, then move it away") && !hint.contains("remove"), "{hint}");
    }
}
