//! A file held open: what is read, filled and synced of it goes through that.

use std::io;
use std::path::Path;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::node::fsx::DiskHandle;
use crate::node::fsx::Doing;
use crate::node::fsx::FsError;
use crate::node::fsx::Shared;
use crate::node::fsx::Stat;

/// An open file, with its path for messages.
#[derive(Debug)]
pub struct File {
    pub(super) disk: Shared,
    pub(super) handle: DiskHandle,
    pub(super) path: PathBuf,
}

impl File {
    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fail(&self, doing: Doing) -> impl FnOnce(Errno) -> FsError {
        move |errno| FsError::new(doing, &self.path, errno)
    }

    pub fn stat(&self) -> Result<Stat, FsError> {
        self.disk.stat_open(&self.handle).map_err(self.fail(Doing::Read))
    }

    /// At most `limit` bytes of it.
    pub fn read(&self, limit: u64) -> Result<Vec<u8>, FsError> {
        self.disk.load_open(&self.handle, 0, limit).map_err(self.fail(Doing::Read))
    }

    /// Reads it from `offset` on, piece by piece.
    pub fn reader(&self, offset: u64) -> impl io::Read + '_ {
        FileReader { file: self, offset }
    }

    /// Its last bytes, at most `limit`.
    pub fn read_end(&self, limit: u64) -> Result<Vec<u8>, FsError> {
        let from = self.stat()?.size().saturating_sub(limit);
        self.disk.load_open(&self.handle, from, limit).map_err(self.fail(Doing::Read))
    }

    /// Has the disk begin to write it, without waiting.
    pub fn begin(&self) {
        self.disk.begin(&self.handle);
    }

    /// Waits until its bytes are on stable storage.
    pub fn sync(&self) -> Result<(), FsError> {
        self.disk.sync(&self.handle).map_err(self.fail(Doing::Sync))
    }
}

/// A file that is being filled. Each write is one call of the disk: callers with small writes put a buffer before it.
pub struct NewFile<'a> {
    pub(super) disk: &'a Shared,
    pub(super) handle: &'a DiskHandle,
}

impl NewFile<'_> {
    /// Appends all of `data`, in one call.
    pub fn put(&mut self, data: &[u8]) -> io::Result<()> {
        Ok(self.disk.write(self.handle, data)?)
    }
}

impl io::Write for NewFile<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.put(data).map(|()| data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl io::Read for FileReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.disk.read(&self.file.handle, self.offset, into)?;
        self.offset += read as u64;
        Ok(read)
    }
}
