//! The kernel's file systems.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::fs::TryLockError;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::fcntl::AtFlags;
use nix::fcntl::OFlag;
use nix::fcntl::PosixFadviseAdvice;
use nix::sys::stat;
use nix::sys::stat::FileStat;
use nix::sys::stat::Mode;
use nix::sys::stat::SFlag;
use nix::sys::statfs;
use nix::sys::statfs::EXT4_SUPER_MAGIC;
use nix::sys::statfs::FsType;
use nix::unistd;
use nix::unistd::Gid;
use nix::unistd::Uid;
use nix::unistd::UnlinkatFlags;

use super::Disk;
use super::DiskHandle;
use super::FileKind;
use super::Links;
use super::Owner;
use super::Shared;
use super::Stamp;
use super::Stat;
use super::changes::FolderWatcher;
use super::changes::Tell;
use super::changes::Watched;

/// The file systems that this process sees.
#[derive(Debug, Default)]
pub struct Real {
    changes: FolderWatcher,
}

impl Real {
    /// A disk with a watcher of its own.
    pub fn shared() -> Shared {
        Arc::new(Self::default())
    }

    /// What the watcher does where the kernel has dropped reports.
    #[cfg(test)]
    pub(crate) fn lose(&self) {
        self.changes.lose();
    }
}

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl DiskHandle {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        match self {
            DiskHandle::Start => Ok(AT_FDCWD),
            DiskHandle::Open(file) => Ok(file.as_fd()),
            DiskHandle::Simulated(..) => Err(Errno::EBADF),
        }
    }

    fn file(&self) -> Result<&File> {
        match self {
            DiskHandle::Open(file) => Ok(file),
            DiskHandle::Start | DiskHandle::Simulated(..) => Err(Errno::EBADF),
        }
    }
}

impl Links {
    fn open_flag(self) -> OFlag {
        if self == Links::Follow { OFlag::empty() } else { OFlag::O_NOFOLLOW }
    }
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw))
}

fn open(at: &DiskHandle, path: &Path, flags: OFlag, mode: Mode) -> Result<DiskHandle> {
    nix::fcntl::openat(at.fd()?, path, flags, mode).map(|fd| DiskHandle::Open(File::from(fd)))
}

impl Disk for Real {
    fn open_folder(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle> {
        open(at, path, FOLDER | links.open_flag(), Mode::empty())
    }

    fn open_file(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<DiskHandle> {
        // O_NONBLOCK: a fifo of that name must not stop the pass.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        open(at, path, flags | links.open_flag(), Mode::empty())
    }

    fn create_file(&self, at: &DiskHandle, path: &Path) -> Result<DiskHandle> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        open(at, path, flags, Mode::from_bits_truncate(0o600))
    }

    fn create_folder(&self, at: &DiskHandle, path: &Path, mode: u32) -> Result<()> {
        stat::mkdirat(at.fd()?, path, Mode::from_bits_truncate(mode & 0o777))
    }

    fn create_link(&self, target: &Path, at: &DiskHandle, path: &Path) -> Result<()> {
        unistd::symlinkat(target, at.fd()?, path)
    }

    fn read_link(&self, at: &DiskHandle, path: &Path) -> Result<OsString> {
        nix::fcntl::readlinkat(at.fd()?, path)
    }

    fn rename(&self, from_at: &DiskHandle, from: &Path, to_at: &DiskHandle, to: &Path) -> Result<()> {
        nix::fcntl::renameat(from_at.fd()?, from, to_at.fd()?, to)
    }

    fn unlink(&self, at: &DiskHandle, path: &Path) -> Result<()> {
        unistd::unlinkat(at.fd()?, path, UnlinkatFlags::NoRemoveDir)
    }

    fn remove_folder(&self, at: &DiskHandle, path: &Path) -> Result<()> {
        unistd::unlinkat(at.fd()?, path, UnlinkatFlags::RemoveDir)
    }

    fn names(&self, folder: &DiskHandle) -> Result<Vec<OsString>> {
        let mut listing = nix::dir::Dir::openat(folder.fd()?, ".", FOLDER, Mode::empty())?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    fn stat(&self, at: &DiskHandle, path: &Path, links: Links) -> Result<Stat> {
        let flags = if links == Links::Follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        stat::fstatat(at.fd()?, path, flags).map(Stat::from)
    }

    fn stat_open(&self, open: &DiskHandle) -> Result<Stat> {
        stat::fstat(open.fd()?).map(Stat::from)
    }

    fn set_mode(&self, open: &DiskHandle, mode: u32) -> Result<()> {
        stat::fchmod(open.fd()?, Mode::from_bits_truncate(mode))
    }

    fn set_owner(&self, open: &DiskHandle, owner: Owner) -> Result<()> {
        let (uid, gid) = ids(owner);
        unistd::fchown(open.fd()?, uid, gid)
    }

    fn set_owner_at(&self, at: &DiskHandle, path: &Path, owner: Owner) -> Result<()> {
        let (uid, gid) = ids(owner);
        unistd::fchownat(at.fd()?, path, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn read(&self, file: &DiskHandle, offset: u64, into: &mut [u8]) -> Result<usize> {
        file.file()?.read_at(into, offset).map_err(errno)
    }

    fn write(&self, file: &DiskHandle, data: &[u8]) -> Result<()> {
        let mut file = file.file()?;
        file.write_all(data).map_err(errno)
    }

    fn begin(&self, file: &DiskHandle) {
        // The kernel begins to write pages that are marked as not needed.
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let _ = file.file().and_then(|file| nix::fcntl::posix_fadvise(file, 0, 0, advice));
    }

    fn sync(&self, open: &DiskHandle) -> Result<()> {
        open.file()?.sync_all().map_err(errno)
    }

    fn lock(&self, open: &DiskHandle) -> Result<()> {
        open.file()?.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Errno::EWOULDBLOCK,
            TryLockError::Error(error) => errno(error),
        })
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        fs::canonicalize(path).map_err(errno)
    }

    fn file_system(&self, folder: &DiskHandle) -> Result<u64> {
        nix::sys::statvfs::fstatvfs(folder.fd()?).map(|stat| stat.filesystem_id())
    }

    fn has_one_journal(&self, folder: &DiskHandle) -> bool {
        let kind = folder.fd().and_then(statfs::fstatfs).map(|stat| stat.filesystem_type());
        match kind {
            Ok(XFS_SUPER_MAGIC) => true,
            // It can be made without one.
            Ok(EXT4_SUPER_MAGIC) => self.stat_open(folder).is_ok_and(|stat| has_journal(stat.stamp.file_id().0)),
            _ => false,
        }
    }

    fn watch(&self, folder: &Path, tell: Tell) -> io::Result<Watched> {
        self.changes.watch(folder, tell)
    }
}

impl From<FileStat> for Stat {
    fn from(stat: FileStat) -> Self {
        let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => FileKind::File,
            SFlag::S_IFDIR => FileKind::Folder,
            SFlag::S_IFLNK => FileKind::Link,
            SFlag::S_IFCHR if stat.st_rdev == nix::sys::stat::makedev(1, 3) => FileKind::NullDevice,
            _ => FileKind::Other,
        };
        let stamp = Stamp {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
        };
        // The type of the number of names is another one on each processor.
        #[allow(clippy::unnecessary_cast)]
        let links = stat.st_nlink as u64;
        Self { kind, mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, links, stamp }
    }
}

/// XFS as statfs(2) names it; nix has no name for it where the C library is musl.
const XFS_SUPER_MAGIC: FsType = FsType(0x5846_5342);

/// Whether the kernel keeps a journal of the ext4 on this device.
fn has_journal(device: u64) -> bool {
    let (major, minor) = (stat::major(device), stat::minor(device));
    let Ok(link) = fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    let Some(name) = link.file_name().and_then(OsStr::to_str) else { return false };
    let of_device = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|e| e.file_name().to_str().and_then(|n| n.strip_prefix(name)?.strip_prefix('-')).is_some())
    };
    // The one is hidden from a service that sees processes only, the other from a container.
    // Without a journal, `journal_task` exists and holds no number.
    if let Ok(task) = fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task")) {
        return is_task(&task);
    }
    fs::read_dir("/proc/fs/jbd2").is_ok_and(|mut journals| journals.any(of_device))
}

/// Whether ext4's `journal_task` names one: the number of its thread, which is 0 in a container.
fn is_task(value: &str) -> bool {
    value.trim().parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_system_with_a_journal_is_recognised() {
        for (value, expected) in [("214\n", true), ("0\n", true), ("<none>\n", false), ("", false)] {
            assert_eq!(super::is_task(value), expected, "{value:?}");
        }
    }
}
