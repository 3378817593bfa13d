//! The lock of a manifest folder: one agent writes manifests there, whatever state folder it has.
//!
//! Owns the lock, which is on the staging folder: the kubelet looks at no name with a leading dot.

use std::path::Path;

use super::ManifestError;
use crate::node::fsx::Dir;
use crate::node::fsx::Shared;

/// Held for as long as it lives: this process alone writes manifests there.
#[derive(Debug)]
pub struct ManifestLock(Dir);

impl ManifestLock {
    /// Locks `stage`, the staging folder of the manifest folder `dir`, unless `held` is that lock. Where the file system has no
    /// locks, nothing is locked.
    ///
    /// # Errors
    /// When another process has it.
    pub(super) fn take(dir: &Dir, stage: &Dir, held: &mut Option<Self>) -> Result<(), ManifestError> {
        let Ok(there) = stage.own_stat() else { return Ok(()) };
        let is_there = |lock: &Self| lock.0.own_stat().is_ok_and(|own| own.stamp.is_same_file(&there.stamp));
        if held.as_ref().is_some_and(is_there) {
            return Ok(());
        }
        let Ok(Some(lock)) = dir.child(super::folder::STAGE) else { return Ok(()) };
        match lock.lock() {
            Ok(true) => *held = Some(Self(lock)),
            Ok(false) => {
                let holder = holder(dir.disk(), there.stamp.inode());
                return Err(ManifestError::Locked { path: dir.path().to_owned(), holder });
            }
            Err(_) => {}
        }
        Ok(())
    }
}

/// The process that has the folder with this inode locked, if the kernel says so.
pub fn holder(disk: &Shared, inode: u64) -> Option<u32> {
    holder_in(&disk.text(Path::new("/proc/locks")).ok()?, inode)
}

/// The same by the text of `/proc/locks`, whose lines are like `1: FLOCK  ADVISORY  WRITE 77 00:2e:1234 0 EOF`.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_flock = words.next()? == "FLOCK";
        let (process, file) = (words.nth(2)?, words.next()?);
        let is_it = is_flock && file.rsplit(':').next()?.parse() == Ok(inode);
        process.parse().ok().filter(|process| is_it && *process > 0)
    };
    locks.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_process_that_the_kernel_names() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 00:2e:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 00:2e:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 7 00:2e:77 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 8 00:2e:79 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 00:2e:80 0 EOF\n";
        assert_eq!([77, 78, 79, 80].map(|inode| holder_in(locks, inode)), [Some(7), Some(6), None, None]);
    }
}
