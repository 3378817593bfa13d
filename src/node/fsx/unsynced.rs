//! What was written and is not on stable storage yet: begun at once, waited for together.
//!
//! Owns the order that makes it cheap. A journalling file system that is asked file by file commits
//! once a file. If it gets all of them first, it writes them in one commit, and the later waits find nothing
//! left to do.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;

use super::Dir;
use super::File;
use super::FsError;

/// So many files, and as many folders, are held open; then they are waited for.
const MOST: usize = 64;
/// How many are waited for at the same time: each asks the disk to flush, and simultaneous requests share one flush.
const WAITERS: usize = 8;
/// To start a thread and to wait for its end takes a processor as long as a few of these waits.
const A_THREAD_FOR: usize = 3;

/// Files and folders to wait for.
#[derive(Debug, Default)]
pub struct Unsynced {
    files: Vec<Arc<File>>,
    dirs: Vec<Dir>,
    /// Whether the folders are on a file system with one journal; `None` before the first of them.
    one_journal: Option<bool>,
    /// The first failure of a wait: then none of the writes can be relied on.
    failed: Option<FsError>,
}

impl Unsynced {
    /// Takes a new file, and has the disk begin with it.
    pub fn add_file(&mut self, file: impl Into<Arc<File>>) {
        let file = file.into();
        file.begin();
        self.files.push(file);
        if self.files.len() >= MOST {
            let files = std::mem::take(&mut self.files);
            // Whose turn it is need not be whose file it is: `sync` tells it.
            self.failed = wait_for(&files, &[], || {}).err().or(self.failed.take());
        }
    }

    /// Takes a folder with new entries, in the order in which they were changed; `is_changed`: it has some for certain.
    pub fn add_dir(&mut self, dir: Dir, is_changed: bool) {
        // Each wait is a flush of the disk, and the folder that was changed last covers all the others; one that was
        // not changed covers nothing.
        if *self.one_journal.get_or_insert_with(|| dir.has_one_journal()) && is_changed {
            self.dirs.clear();
        }
        self.dirs.push(dir);
        if self.dirs.len() >= MOST {
            let dirs = std::mem::take(&mut self.dirs);
            self.failed = wait_for(&[], &dirs, || {}).err().or(self.failed.take());
        }
    }

    /// Takes the writes that another thread has gathered meanwhile.
    pub fn absorb(&mut self, other: Unsynced) {
        self.files.extend(other.files);
        // The last folder of each covers what came before it.
        self.dirs.extend(other.dirs);
        self.one_journal = self.one_journal.or(other.one_journal);
        self.failed = self.failed.take().or(other.failed);
    }

    /// Waits until all of it is on stable storage, and the entries of what `above` gives too: the folders that hold
    /// these. It is not asked where one journal has them all. Where many are waited for, others wait while
    /// `meanwhile` is done.
    pub fn sync(
        mut self,
        above: impl FnOnce() -> Result<Vec<Dir>, FsError>,
        meanwhile: impl FnOnce(),
    ) -> Result<(), FsError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if self.one_journal != Some(true) {
            self.dirs.extend(above()?);
        }
        wait_for(&self.files, &self.dirs, meanwhile)
    }
}

/// Waits for all of them, in any order: no caller relies on one before all are there.
fn wait_for(files: &[Arc<File>], dirs: &[Dir], meanwhile: impl FnOnce()) -> Result<(), FsError> {
    let next = AtomicUsize::new(0);
    let wait = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            match (files.get(at), dirs.get(at.wrapping_sub(files.len()))) {
                (Some(file), _) => file.sync()?,
                (None, Some(dir)) => dir.sync()?,
                (None, None) => return Ok(()),
            }
        }
    };
    let waiters = ((files.len() + dirs.len()) / A_THREAD_FOR).clamp(1, WAITERS);
    let waiters = super::threads(waiters);
    thread::scope(|scope| {
        let others: Vec<_> = (1..waiters).map(|_| thread::Builder::new().spawn_scoped(scope, wait)).collect();
        meanwhile();
        // Where no thread is to be had this one waits for all.
        let own = wait();
        let theirs = others.into_iter().flatten();
        let ended = theirs.map(|waiter| waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // All of them end before a failure is returned.
        ended.collect::<Vec<_>>().into_iter().chain([own]).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::errno::Errno;

    use super::super::Doing;
    use super::super::Owner;
    use super::super::Shared;
    use super::super::Simulated;
    use super::*;

    #[test]
    fn one_that_fails_is_reported_wherever_it_stands() {
        let disk = Simulated::shared();
        let shared: Shared = disk.clone();
        let (dir, _) = Dir::open_or_create(&shared, Path::new("/folder"), 0o700).unwrap();
        disk.fail(Doing::Sync, "/folder/bad", Errno::EIO);
        // Few are waited for by this thread, more by several, and so many before the rest is known.
        for (count, bad) in [(2, None), (2, Some(1)), (40, None), (40, Some(0)), (40, Some(39)), (MOST + 3, Some(5))] {
            let (mut unsynced, mut done) = (Unsynced::default(), false);
            for at in 0..count {
                let name = if bad == Some(at) { "bad".to_owned() } else { at.to_string() };
                dir.unlink(&name).unwrap();
                unsynced.add_file(dir.create_file(&name, b"", 0o600, Owner::default()).unwrap());
            }
            let mut all = Unsynced::default();
            all.absorb(unsynced);
            let synced = all.sync(|| Ok(vec![dir.child(".").unwrap().unwrap()]), || done = true);
            assert_eq!(synced.is_ok(), bad.is_none(), "{count} {bad:?}");
            assert!(done || bad.is_some(), "what is done meanwhile");
        }
    }
}
