//! What was written and is not on stable storage yet: begun at once, waited for together.
//!
//! Owns the order that makes it cheap. A journalling file system that is asked file by file commits
//! once a file; told of all of them first, it has them in one commit, and the later waits find nothing
//! left to do.

use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::thread;

use nix::fcntl::PosixFadviseAdvice;
use nix::fcntl::posix_fadvise;

use super::Dir;
use super::Doing;
use super::FsError;

/// So many files are held open; then they are waited for.
const MOST: usize = 64;
/// So many are waited for at the same time: each asks the disk to flush, and those who ask together share it.
const WAITERS: usize = 8;

/// Files and folders to wait for.
#[derive(Debug, Default)]
pub struct Unsynced {
    files: Vec<(PathBuf, File)>,
    dirs: Vec<Dir>,
    /// Whether the folders are on a file system with one journal; `None` before the first of them.
    one_journal: Option<bool>,
}

impl Unsynced {
    /// Takes `file`, the new entry `name` of `dir`, and has the disk begin with it.
    pub fn add_file(&mut self, dir: &Dir, name: impl AsRef<Path>, file: File) -> Result<(), FsError> {
        begin(&file);
        self.files.push((dir.path().join(name), file));
        if self.files.len() >= MOST { self.sync_files() } else { Ok(()) }
    }

    /// Takes a folder with new entries, in the order in which they were changed.
    pub fn add_dir(&mut self, dir: Dir) {
        // Each wait is a flush of the disk, and the folder that was changed last covers all the others.
        if *self.one_journal.get_or_insert_with(|| dir.has_one_journal()) {
            self.dirs.clear();
        }
        self.dirs.push(dir);
    }

    /// Waits until all of it is on stable storage, and the entries of what `above` gives too: the folders that hold
    /// these, from the inside out. It is not asked where one journal has them all.
    pub fn sync(mut self, above: impl FnOnce() -> Result<Vec<Dir>, FsError>) -> Result<(), FsError> {
        self.sync_files()?;
        self.dirs.iter().try_for_each(Dir::sync)?;
        match self.one_journal {
            Some(true) => Ok(()),
            Some(false) | None => above()?.iter().try_for_each(Dir::sync),
        }
    }

    fn sync_files(&mut self) -> Result<(), FsError> {
        let files = std::mem::take(&mut self.files);
        if files.len() <= WAITERS {
            return sync_each(&files);
        }
        let part = files.len().div_ceil(WAITERS);
        thread::scope(|scope| {
            let waits = |files| thread::Builder::new().spawn_scoped(scope, move || sync_each(files)).map_err(|_| files);
            let waiters: Vec<_> = files.chunks(part).map(waits).collect();
            // Where no thread is to be had this one waits.
            waiters.into_iter().try_for_each(|waiter| match waiter {
                Ok(waiter) => waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(files) => sync_each(files),
            })
        })
    }
}

fn sync_each(files: &[(PathBuf, File)]) -> Result<(), FsError> {
    let wait = |(path, file): &(PathBuf, File)| file.sync_all().map_err(|e| FsError::new(Doing::Sync, path, e));
    files.iter().try_for_each(wait)
}

/// Has the disk begin to write `file`, without waiting: the kernel does so for pages that it is told
/// are not needed. No more than a hint, whatever comes of it.
pub fn begin(file: &File) {
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}
