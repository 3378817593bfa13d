//! The calls by which the node's side reaches a file system, so that another can take its place.
//!
//! Owns what each call promises. Must not know what the files mean, nor which system is below.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use nix::Result;
use nix::errno::Errno;

use super::FileKind;
use super::Stat;
use super::changes::Tell;
use super::changes::Watched;

/// The longest text that is read whole, in bytes.
const MAX_TEXT: u64 = 64 << 20;

/// A disk that several parts of the agent use.
pub type Shared = Arc<dyn Disk>;

/// Something that is open on a [`Disk`]; it is closed when it is dropped.
#[derive(Debug)]
pub enum DiskHandle {
    /// Nothing is open: an absolute path, or one from the process's working folder, follows.
    Start,
    /// A file or folder of the kernel's.
    Open(File),
    /// A file or folder of a simulated disk: its number, and the run that it was opened in.
    Simulated(u64, u64),
}

/// What becomes of a symbolic link at the end of a path. Those on the way are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is followed.
    Follow,
    /// It is not: opening it fails, and looking at it tells of the link.
    Refuse,
}

/// Owner and group to give; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl Owner {
    /// Whether what `stat` describes has them already.
    pub(super) fn holds(self, stat: &Stat) -> bool {
        self.uid.is_none_or(|uid| stat.uid == uid) && self.gid.is_none_or(|gid| stat.gid == gid)
    }
}

/// A file system. A `path` is one below `at`, unless it is absolute. The errors are those of the system calls.
pub trait Disk: fmt::Debug + Send + Sync {
    fn open_folder(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle>;

    /// Opens what is at `path` for reading, without waiting for the other end of a fifo.
    fn open_file(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle>;

    /// Makes a file (0600) that was not there, for reading and writing.
    fn create_file(&self, at: &DiskHandle, path: &Path) -> Result<DiskHandle>;

    /// Makes a folder that was not there; the umask may take bits from `mode`.
    fn create_folder(&self, at: &DiskHandle, path: &Path, mode: u32) -> Result<()>;

    /// Makes a link to `target` that was not there.
    fn create_link(&self, target: &Path, at: &DiskHandle, path: &Path) -> Result<()>;

    /// Where a link points.
    fn read_link(&self, at: &DiskHandle, path: &Path) -> Result<OsString>;

    /// Gives a file, a folder or a link another name, in place of what has it.
    fn rename(&self, from_at: &DiskHandle, from: &Path, to_at: &DiskHandle, to: &Path) -> Result<()>;

    /// Removes a file or a link.
    fn unlink(&self, at: &DiskHandle, path: &Path) -> Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, at: &DiskHandle, path: &Path) -> Result<()>;

    /// The names in a folder, without `.` and `..`, in any order.
    fn names(&self, folder: &DiskHandle) -> Result<Vec<OsString>>;

    /// What is at `path`.
    fn stat(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<Stat>;

    fn stat_open(&self, open: &DiskHandle) -> Result<Stat>;

    /// Sets all permission bits.
    fn set_mode(&self, open: &DiskHandle, mode: u32) -> Result<()>;

    /// Sets user and group.
    fn set_owner(&self, open: &DiskHandle, owner: Owner) -> Result<()>;

    /// Sets user and group of what is at `path`, of the link itself if it is one.
    fn set_owner_at(&self, at: &DiskHandle, path: &Path, owner: Owner) -> Result<()>;

    /// Reads bytes of a file from `offset` on, as many as there are at once; 0 at its end.
    fn read(&self, file: &DiskHandle, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` to a file that was just made.
    fn write(&self, file: &DiskHandle, data: &[u8]) -> Result<()>;

    /// Has the disk begin to write a file, without waiting. Only a hint: its result does not matter.
    fn begin(&self, file: &DiskHandle);

    /// Waits until the bytes of a file, or the entries of a folder, are on stable storage.
    fn sync(&self, open: &DiskHandle) -> Result<()>;

    /// Takes the lock of a file or folder, for as long as it is open; `EWOULDBLOCK` if another process has it.
    fn lock(&self, open: &DiskHandle) -> Result<()>;

    /// The absolute path without links.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;

    /// The identity of the file system that holds a folder, by `statvfs`; 0 where it has none.
    fn file_system(&self, folder: &DiskHandle) -> Result<u64>;

    /// Whether the folder's file system keeps all changes of folders in one journal, in their order: then whoever
    /// waits for one of them has waited for all that came before.
    fn has_one_journal(&self, folder: &DiskHandle) -> bool;

    /// Calls `tell` for each change in the folder that is at `folder` now, until what is returned is dropped.
    /// `tell` must not watch or end a watch itself.
    ///
    /// # Errors
    /// Where there is no such folder, or the system grants no more watchers (`EMFILE`) or watches (`ENOSPC`).
    fn watch(&self, folder: &Path, tell: Tell) -> io::Result<Watched>;
}

/// What is done with a path from the beginning, links followed.
impl dyn Disk + '_ {
    /// What is at `path`.
    pub fn look(&self, path: &Path) -> io::Result<Stat> {
        Ok(self.stat(&DiskHandle::Start, path, Links::Follow)?)
    }

    /// What is at `path`, itself if it is a link.
    pub fn look_at_link(&self, path: &Path) -> io::Result<Stat> {
        Ok(self.stat(&DiskHandle::Start, path, Links::Refuse)?)
    }

    /// The names in the folder at `path`, in any order.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.names(&self.open_folder(&DiskHandle::Start, path, Links::Follow)?)?)
    }

    /// At most `limit` bytes of the regular file at `path`.
    pub fn load(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(&DiskHandle::Start, path, Links::Follow)?;
        if self.stat_open(&file)?.kind != FileKind::File {
            // A device may have no end.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
        }
        Ok(self.load_open(&file, 0, limit)?)
    }

    /// The whole text of the file at `path`: one that the kernel makes up, or our own. At most 64 MiB.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.load(path.as_ref(), MAX_TEXT + 1)?;
        if bytes.len() as u64 > MAX_TEXT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than 64 MiB"));
        }
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// At most `limit` bytes of an open file, from `offset` on.
    pub(super) fn load_open(&self, file: &DiskHandle, offset: u64, limit: u64) -> Result<Vec<u8>> {
        // A little more, for the read that finds the end; what the kernel makes up has no length.
        let size = match self.stat_open(file)?.size() {
            0 => 4_096,
            size => size.saturating_sub(offset) + 64,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut data = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(limit)];
        let mut length = 0;
        loop {
            if length == data.len() {
                if length == limit {
                    break;
                }
                data.resize((2 * length).min(limit), 0);
            }
            match self.read(file, offset + length as u64, &mut data[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        data.truncate(length);
        Ok(data)
    }

    /// The kernel's name of this boot.
    pub fn boot_id(&self) -> Option<String> {
        let id = self.text("/proc/sys/kernel/random/boot_id").ok();
        // The unit may forbid the service to read it. systemd's `%b` has no dashes.
        let id = id.or_else(|| std::env::var("DAEMONLET_BOOT_ID").ok());
        id.map(|id| id.trim().replace('-', "")).filter(|id| !id.is_empty())
    }
}
