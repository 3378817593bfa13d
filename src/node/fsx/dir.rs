//! A folder held by its descriptor: every step below it goes through that, never through a link.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::fcntl::OFlag;
use nix::sys::stat::FileStat;
use nix::sys::stat::Mode;
use nix::sys::statfs::EXT4_SUPER_MAGIC;
use nix::sys::statfs::FsType;
use nix::unistd::Gid;
use nix::unistd::Uid;
use nix::unistd::UnlinkatFlags;

use super::Doing;
use super::FileKind;
use super::FsError;
use super::kind;

/// Owner and group to give; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl Owner {
    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw))
    }

    /// Whether what `stat` describes has them already.
    fn holds(self, stat: &FileStat) -> bool {
        self.uid.is_none_or(|uid| stat.st_uid == uid) && self.gid.is_none_or(|gid| stat.st_gid == gid)
    }
}

/// An open folder, with its path for messages.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// Every bit of a mode that can be set.
const ALL_MODES: u32 = 0o7777;

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl Dir {
    /// Opens a folder that the node's owner named; symbolic links on the way are his word.
    pub fn open(path: &Path) -> Result<Self, FsError> {
        let fd = nix::fcntl::open(path, FOLDER, Mode::empty()).map_err(|e| FsError::new(Doing::Open, path, e))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens `path`, making it and what is missing above it with `mode`; `true`: it was made.
    pub fn open_or_create(path: &Path, mode: u32) -> Result<(Self, bool), FsError> {
        match Self::open(path) {
            Ok(dir) => Ok((dir, false)),
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(mode)
                    .create(path)
                    .map_err(|e| FsError::new(Doing::Create, path, e))?;
                let dir = Self::open(path)?;
                dir.set_mode(mode)?;
                Ok((dir, true))
            }
            Err(e) => Err(e),
        }
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        // Joining an empty name would leave a slash at the end.
        if name.as_os_str().is_empty() { self.path.clone() } else { self.path.join(name) }
    }

    fn fail(&self, doing: Doing, name: impl AsRef<Path>) -> impl FnOnce(Errno) -> FsError {
        let path = self.join(name);
        move |errno| FsError::new(doing, path, errno)
    }

    /// The error that `name` is not there.
    pub fn missing(&self, name: &str) -> FsError {
        self.fail(Doing::Open, name)(Errno::ENOENT)
    }

    /// The folder `name` in it, never through a link; `None` if there is nothing of that name.
    pub fn child(&self, name: impl AsRef<Path>) -> Result<Option<Dir>, FsError> {
        let name = name.as_ref();
        match nix::fcntl::openat(&self.fd, name, FOLDER | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Dir { fd, path: self.join(name) })),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(self.fail(Doing::Open, name)(e)),
        }
    }

    /// The folder `name` in it, made with exactly `mode` if it is not there; `true`: it was made.
    pub fn child_or_create(&self, name: impl AsRef<Path>, mode: u32) -> Result<(Dir, bool), FsError> {
        let name = name.as_ref();
        if let Some(dir) = self.child(name)? {
            return Ok((dir, false));
        }
        let made = match nix::sys::stat::mkdirat(&self.fd, name, Mode::from_bits_truncate(mode & 0o777)) {
            Ok(()) => true,
            // Somebody else has made it meanwhile.
            Err(Errno::EEXIST) => false,
            Err(e) => return Err(self.fail(Doing::Create, name)(e)),
        };
        let dir = self.child(name)?.ok_or(Errno::ENOENT).map_err(self.fail(Doing::Create, name))?;
        dir.set_mode(mode)?;
        Ok((dir, made))
    }

    /// Makes a new folder `name` with exactly `mode`; `None` if the name is taken.
    pub fn create_child(&self, name: &str, mode: u32) -> Result<Option<Dir>, FsError> {
        match nix::sys::stat::mkdirat(&self.fd, name, Mode::from_bits_truncate(mode & 0o777)) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(None),
            Err(e) => return Err(self.fail(Doing::Create, name)(e)),
        }
        let dir = self.child(name)?.ok_or(Errno::ENOENT).map_err(self.fail(Doing::Create, name))?;
        dir.set_mode(mode)?;
        Ok(Some(dir))
    }

    /// Writes a new file whole, with exactly `mode` and `owner`; the name must not be taken.
    /// The bytes are not on stable storage until [`File::sync_all`].
    pub fn create_file(&self, name: impl AsRef<Path>, data: &[u8], mode: u32, owner: Owner) -> Result<File, FsError> {
        let name = name.as_ref();
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Nobody may read it before its owner and mode are what they shall be.
        let fd = nix::fcntl::openat(&self.fd, name, flags, Mode::from_bits_truncate(0o600))
            .map_err(self.fail(Doing::Create, name))?;
        let mut file = File::from(fd);
        file.write_all(data).map_err(|e| FsError::new(Doing::Write, self.join(name), e))?;
        let stat = nix::sys::stat::fstat(&file).map_err(self.fail(Doing::Read, name))?;
        let (uid, gid) = owner.ids();
        let change_mode = || match stat.st_mode & ALL_MODES == mode {
            true => Ok(()),
            false => nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mode)),
        };
        let change_owner = || match owner.holds(&stat) {
            true => Ok(()),
            false => nix::unistd::fchown(&file, uid, gid),
        };
        // Who gives a file away may not change its mode any more (without CAP_FOWNER); but a change of owner
        // takes set-uid and set-gid bits away.
        let changed = if mode & 0o6000 == 0 {
            change_mode().and_then(|()| change_owner())
        } else {
            change_owner().and_then(|()| change_mode())
        };
        changed.map_err(self.fail(Doing::SetAttributes, name))?;
        Ok(file)
    }

    /// Opens the regular file `name` for reading, never through a link; `None` if there is none.
    pub fn open_file(&self, name: impl AsRef<Path>) -> Result<Option<File>, FsError> {
        let name = name.as_ref();
        // O_NONBLOCK: a fifo of that name must not stop the pass.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        match nix::fcntl::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(self.fail(Doing::Open, name)(e)),
        }
    }

    /// At most `limit` bytes of the file `name`; `None` if there is none.
    pub fn read_file(&self, name: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        let name = name.as_ref();
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let failed = |e| FsError::new(Doing::Read, self.join(name), e);
        let size = file.metadata().map_err(failed)?.len();
        read_sized(file, size, limit).map(Some).map_err(failed)
    }

    /// What `name` is, itself if it is a link; `None` if there is nothing.
    pub fn stat(&self, name: impl AsRef<Path>) -> Result<Option<FileStat>, FsError> {
        self.stat_with(name.as_ref(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// What `name` is, or what it points to if it is a link; `None` if there is nothing.
    pub fn stat_following(&self, name: impl AsRef<Path>) -> Result<Option<FileStat>, FsError> {
        self.stat_with(name.as_ref(), AtFlags::empty())
    }

    fn stat_with(&self, name: &Path, flags: AtFlags) -> Result<Option<FileStat>, FsError> {
        match nix::sys::stat::fstatat(&self.fd, name, flags) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(e) => Err(self.fail(Doing::Read, name)(e)),
        }
    }

    /// What this folder itself is.
    pub fn own_stat(&self) -> Result<FileStat, FsError> {
        nix::sys::stat::fstat(&self.fd).map_err(self.fail(Doing::Read, ""))
    }

    /// Where the link `name` points; `None` if there is no link of that name.
    pub fn read_link(&self, name: impl AsRef<Path>) -> Result<Option<OsString>, FsError> {
        let name = name.as_ref();
        match nix::fcntl::readlinkat(&self.fd, name) {
            Ok(target) => Ok(Some(target)),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(None),
            Err(e) => Err(self.fail(Doing::Read, name)(e)),
        }
    }

    /// Makes the link `name` that points to `target`.
    pub fn symlink(&self, target: &Path, name: impl AsRef<Path>) -> Result<(), FsError> {
        let name = name.as_ref();
        nix::unistd::symlinkat(target, &self.fd, name).map_err(self.fail(Doing::Create, name))
    }

    /// Gives `from` the name `to` in the folder `folder`, in place of what had it.
    pub fn rename(&self, from: impl AsRef<Path>, folder: &Dir, to: impl AsRef<Path>) -> Result<(), FsError> {
        let to = to.as_ref();
        nix::fcntl::renameat(&self.fd, from.as_ref(), &folder.fd, to).map_err(folder.fail(Doing::Rename, to))
    }

    /// Removes the file or link `name`; `false` if it was not there.
    pub fn unlink(&self, name: impl AsRef<Path>) -> Result<bool, FsError> {
        self.remove(name.as_ref(), UnlinkatFlags::NoRemoveDir)
    }

    /// Removes the empty folder `name`; `false` if it was not there.
    pub fn remove_dir(&self, name: impl AsRef<Path>) -> Result<bool, FsError> {
        self.remove(name.as_ref(), UnlinkatFlags::RemoveDir)
    }

    fn remove(&self, name: &Path, flags: UnlinkatFlags) -> Result<bool, FsError> {
        match nix::unistd::unlinkat(&self.fd, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(e) => Err(self.fail(Doing::Remove, name)(e)),
        }
    }

    /// Removes `name` and all below it, on this file system only and never through a link.
    pub fn remove_tree(&self, name: impl AsRef<Path>) -> Result<(), FsError> {
        let name = name.as_ref();
        let Some(stat) = self.stat(name)? else { return Ok(()) };
        if kind(&stat) != FileKind::Folder {
            return self.unlink(name).map(drop);
        }
        if stat.st_dev != self.own_stat()?.st_dev {
            return Err(self.fail(Doing::Remove, name)(Errno::EXDEV));
        }
        if let Some(dir) = self.child(name)? {
            for entry in dir.names()? {
                dir.remove_tree(&entry)?;
            }
        }
        self.remove_dir(name).map(drop)
    }

    /// The names in it, without `.` and `..`, sorted.
    pub fn names(&self) -> Result<Vec<OsString>, FsError> {
        let fail = |e| FsError::new(Doing::Read, &self.path, e);
        let mut listing = nix::dir::Dir::openat(&self.fd, ".", FOLDER, Mode::empty()).map_err(fail)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Sets its mode, whatever the umask, where it is another one: what changes is one more for the journal, and what
    /// was just made is most often as it should be.
    pub fn set_mode(&self, mode: u32) -> Result<(), FsError> {
        if self.own_stat()?.st_mode & ALL_MODES == mode {
            return Ok(());
        }
        nix::sys::stat::fchmod(&self.fd, Mode::from_bits_truncate(mode)).map_err(self.fail(Doing::SetAttributes, ""))
    }

    /// Sets its owner, where it is another one.
    pub fn set_owner(&self, owner: Owner) -> Result<(), FsError> {
        if owner.holds(&self.own_stat()?) {
            return Ok(());
        }
        let (uid, gid) = owner.ids();
        nix::unistd::fchown(&self.fd, uid, gid).map_err(self.fail(Doing::SetAttributes, ""))
    }

    /// Sets the owner of the entry `name`, of the link itself if it is one, where it is another one.
    pub fn set_owner_of(&self, name: impl AsRef<Path>, owner: Owner) -> Result<(), FsError> {
        let name = name.as_ref();
        if self.stat(name)?.is_some_and(|stat| owner.holds(&stat)) {
            return Ok(());
        }
        let (uid, gid) = owner.ids();
        nix::unistd::fchownat(&self.fd, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(self.fail(Doing::SetAttributes, name))
    }

    /// Waits until its entries are on stable storage.
    pub fn sync(&self) -> Result<(), FsError> {
        nix::unistd::fsync(self.fd.as_fd()).map_err(self.fail(Doing::Sync, ""))
    }

    /// Waits until the content of the file `name` is on stable storage, whoever wrote it.
    pub fn sync_entry(&self, name: impl AsRef<Path>) -> Result<(), FsError> {
        match self.open_file(name.as_ref())? {
            Some(file) => self.sync_file(name, &file),
            None => Ok(()),
        }
    }

    /// Whether its file system keeps all changes of folders in one journal, in their order: then whoever
    /// waits for one of them has waited for all that came before.
    pub fn has_one_journal(&self) -> bool {
        let kind = nix::sys::statfs::fstatfs(&self.fd).map(|stat| stat.filesystem_type());
        match kind {
            Ok(XFS_SUPER_MAGIC) => true,
            // It can be made without one.
            Ok(EXT4_SUPER_MAGIC) => nix::sys::stat::fstat(&self.fd).is_ok_and(|stat| has_journal(stat.st_dev)),
            _ => false,
        }
    }

    /// Waits until the bytes of `file`, the entry `name`, are on stable storage.
    pub fn sync_file(&self, name: impl AsRef<Path>, file: &File) -> Result<(), FsError> {
        file.sync_all().map_err(|e| FsError::new(Doing::Sync, self.join(name), e))
    }
}

/// At most `limit` bytes of `file`, which had `size` bytes when it was last looked at: so large is the first read.
pub fn read_sized(file: File, size: u64, limit: u64) -> std::io::Result<Vec<u8>> {
    // A little more, for the read that finds the end.
    let room = usize::try_from(size.min(limit)).unwrap_or(0) + 64;
    let mut data = Vec::with_capacity(room);
    file.take(limit).read_to_end(&mut data)?;
    Ok(data)
}

/// XFS as statfs(2) names it; nix has no name for it where the C library is musl.
const XFS_SUPER_MAGIC: FsType = FsType(0x5846_5342);

/// Whether the kernel keeps a journal of the ext4 on this device.
fn has_journal(device: u64) -> bool {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let Ok(link) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    let Some(name) = link.file_name().and_then(std::ffi::OsStr::to_str) else { return false };
    let of_device = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| e.file_name().to_str().and_then(|n| n.strip_prefix(name)?.strip_prefix('-')).is_some())
    };
    // The one is hidden from a service that sees processes only, the other from a container.
    // Where there is no journal the file is there, and says so.
    if let Ok(task) = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task")) {
        return is_task(&task);
    }
    std::fs::read_dir("/proc/fs/jbd2").is_ok_and(|mut journals| journals.any(of_device))
}

/// Whether ext4's `journal_task` names one: the number of its thread, which is 0 in a container.
fn is_task(told: &str) -> bool {
    told.trim().parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_system_without_a_journal_is_told_from_one_with_it() {
        for (told, expected) in [("214\n", true), ("0\n", true), ("<none>\n", false), ("", false)] {
            assert_eq!(super::is_task(told), expected, "{told:?}");
        }
    }
}
