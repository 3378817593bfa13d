//! A folder held open: every step below it goes through that, never through a link.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;

use super::DiskHandle;
use super::Doing;
use super::FileKind;
use super::FsError;
use super::Links;
use super::Owner;
use super::Shared;
use super::Stat;

mod file;

pub use file::File;
pub use file::NewFile;

/// An open folder, with its path for messages.
#[derive(Debug)]
pub struct Dir {
    disk: Shared,
    handle: DiskHandle,
    path: PathBuf,
}

impl Dir {
    /// Opens a folder by path; symbolic links in the path are followed.
    pub fn open(disk: &Shared, path: &Path) -> Result<Self, FsError> {
        let handle = disk.open_folder(&DiskHandle::Start, path, Links::Follow);
        let handle = handle.map_err(|e| FsError::new(Doing::Open, path, e))?;
        Ok(Self { disk: Arc::clone(disk), handle, path: path.to_owned() })
    }

    /// Opens `path`, creating it and missing parents with `mode`; `true`: it was created.
    pub fn open_or_create(disk: &Shared, path: &Path, mode: u32) -> Result<(Self, bool), FsError> {
        match Self::open(disk, path) {
            Ok(dir) => Ok((dir, false)),
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => {
                create_all(disk, path, mode).map_err(|e| FsError::new(Doing::Create, path, e))?;
                let dir = Self::open(disk, path)?;
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

    pub fn disk(&self) -> &Shared {
        &self.disk
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

    pub fn missing(&self, name: &str) -> FsError {
        self.fail(Doing::Open, name)(Errno::ENOENT)
    }

    /// The folder `name` in it, never through a link; `None` if there is nothing of that name.
    pub fn child(&self, name: impl AsRef<Path>) -> Result<Option<Dir>, FsError> {
        let name = name.as_ref();
        match self.disk.open_folder(&self.handle, name, Links::Refuse) {
            Ok(handle) => Ok(Some(Dir { disk: Arc::clone(&self.disk), handle, path: self.join(name) })),
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
        if let Some(dir) = self.create_child(name, mode)? {
            return Ok((dir, true));
        }
        // Another process has created it in the meantime.
        let dir = self.child(name)?.ok_or(Errno::ENOENT).map_err(self.fail(Doing::Create, name))?;
        dir.set_mode(mode)?;
        Ok((dir, false))
    }

    /// Makes a new folder `name` with exactly `mode`; `None` if the name is taken.
    pub fn create_child(&self, name: impl AsRef<Path>, mode: u32) -> Result<Option<Dir>, FsError> {
        let name = name.as_ref();
        match self.disk.create_folder(&self.handle, name, mode) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(None),
            Err(e) => return Err(self.fail(Doing::Create, name)(e)),
        }
        let dir = self.child(name)?.ok_or(Errno::ENOENT).map_err(self.fail(Doing::Create, name))?;
        dir.set_mode(mode)?;
        Ok(Some(dir))
    }

    /// Writes a new file whole, with exactly `mode` and `owner`; the name must not be taken.
    /// The bytes are not on stable storage until [`File::sync`].
    pub fn create_file(&self, name: impl AsRef<Path>, data: &[u8], mode: u32, owner: Owner) -> Result<File, FsError> {
        self.create_file_with(name, mode, owner, |file| file.put(data))
    }

    /// As [`Dir::create_file`], with what `fill` writes: it need not be in memory as a whole.
    pub fn create_file_with(
        &self,
        name: impl AsRef<Path>,
        mode: u32,
        owner: Owner,
        fill: impl FnOnce(&mut NewFile<'_>) -> io::Result<()>,
    ) -> Result<File, FsError> {
        let (name, disk) = (name.as_ref(), &self.disk);
        // Owner and mode are set before anyone can read it.
        let handle = disk.create_file(&self.handle, name).map_err(self.fail(Doing::Create, name))?;
        let filled = fill(&mut NewFile { disk, handle: &handle });
        filled.map_err(|error| FsError::new(Doing::Write, self.join(name), error))?;
        let stat = disk.stat_open(&handle).map_err(self.fail(Doing::Read, name))?;
        let change_mode = || if stat.mode == mode { Ok(()) } else { disk.set_mode(&handle, mode) };
        let change_owner = || if owner.holds(&stat) { Ok(()) } else { disk.set_owner(&handle, owner) };
        // Who gives a file away may not change its mode any more (without CAP_FOWNER); but a change of owner
        // takes set-uid and set-gid bits away.
        let changed = if mode & 0o6000 == 0 {
            change_mode().and_then(|()| change_owner())
        } else {
            change_owner().and_then(|()| change_mode())
        };
        changed.map_err(self.fail(Doing::SetAttributes, name))?;
        Ok(File { disk: Arc::clone(disk), handle, path: self.join(name) })
    }

    /// Opens the file `name` for reading, never through a link; `None` if there is none.
    pub fn open_file(&self, name: impl AsRef<Path>) -> Result<Option<File>, FsError> {
        let name = name.as_ref();
        match self.disk.open_file(&self.handle, name, Links::Refuse) {
            Ok(handle) => Ok(Some(File { disk: Arc::clone(&self.disk), handle, path: self.join(name) })),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(self.fail(Doing::Open, name)(e)),
        }
    }

    /// At most `limit` bytes of the file `name`; `None` if there is none.
    pub fn read_file(&self, name: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        self.open_file(name)?.map(|file| file.read(limit)).transpose()
    }

    /// The attributes of `name`, of the link itself if it is one; `None` if it does not exist.
    pub fn stat(&self, name: impl AsRef<Path>) -> Result<Option<Stat>, FsError> {
        let name = name.as_ref();
        match self.disk.stat(&self.handle, name, Links::Refuse) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(e) => Err(self.fail(Doing::Read, name)(e)),
        }
    }

    /// What this folder itself is.
    pub fn own_stat(&self) -> Result<Stat, FsError> {
        self.disk.stat_open(&self.handle).map_err(self.fail(Doing::Read, ""))
    }

    /// Where the link `name` points; `None` if there is no link of that name.
    pub fn read_link(&self, name: impl AsRef<Path>) -> Result<Option<OsString>, FsError> {
        let name = name.as_ref();
        match self.disk.read_link(&self.handle, name) {
            Ok(target) => Ok(Some(target)),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(None),
            Err(e) => Err(self.fail(Doing::Read, name)(e)),
        }
    }

    /// Makes the link `name` that points to `target`.
    pub fn symlink(&self, target: &Path, name: impl AsRef<Path>) -> Result<(), FsError> {
        let name = name.as_ref();
        self.disk.create_link(target, &self.handle, name).map_err(self.fail(Doing::Create, name))
    }

    /// Gives `from` the name `to` in the folder `folder`, in place of what had it.
    pub fn rename(&self, from: impl AsRef<Path>, folder: &Dir, to: impl AsRef<Path>) -> Result<(), FsError> {
        let to = to.as_ref();
        let renamed = self.disk.rename(&self.handle, from.as_ref(), &folder.handle, to);
        renamed.map_err(folder.fail(Doing::Rename, to))
    }

    /// Removes the file or link `name`; `false` if it was not there.
    pub fn unlink(&self, name: impl AsRef<Path>) -> Result<bool, FsError> {
        let name = name.as_ref();
        self.removed(name, self.disk.unlink(&self.handle, name))
    }

    /// Removes the empty folder `name`; `false` if it was not there.
    pub fn remove_dir(&self, name: impl AsRef<Path>) -> Result<bool, FsError> {
        let name = name.as_ref();
        self.removed(name, self.disk.remove_folder(&self.handle, name))
    }

    fn removed(&self, name: &Path, result: nix::Result<()>) -> Result<bool, FsError> {
        match result {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(e) => Err(self.fail(Doing::Remove, name)(e)),
        }
    }

    /// Removes `name` and all below it, on this file system only and never through a link.
    pub fn remove_tree(&self, name: impl AsRef<Path>) -> Result<(), FsError> {
        let name = name.as_ref();
        let Some(stat) = self.stat(name)? else { return Ok(()) };
        if stat.kind != FileKind::Folder {
            return self.unlink(name).map(drop);
        }
        if stat.stamp.dev != self.own_stat()?.stamp.dev {
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
        let mut names = self.disk.names(&self.handle).map_err(self.fail(Doing::Read, ""))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Sets its mode, whatever the umask, where it is another one: what changes is one more for the journal, and what
    /// was just made is most often as it should be.
    pub fn set_mode(&self, mode: u32) -> Result<(), FsError> {
        if self.own_stat()?.mode == mode {
            return Ok(());
        }
        self.disk.set_mode(&self.handle, mode).map_err(self.fail(Doing::SetAttributes, ""))
    }

    /// Sets the mode of the file `name`, never through a link, where it is another one.
    pub fn set_mode_of(&self, name: impl AsRef<Path>, mode: u32) -> Result<(), FsError> {
        let name = name.as_ref();
        let Some(file) = self.open_file(name)? else { return Ok(()) };
        match file.stat()?.mode == mode {
            true => Ok(()),
            false => self.disk.set_mode(&file.handle, mode).map_err(self.fail(Doing::SetAttributes, name)),
        }
    }

    /// Sets its owner, where it is another one.
    pub fn set_owner(&self, owner: Owner) -> Result<(), FsError> {
        if owner.holds(&self.own_stat()?) {
            return Ok(());
        }
        self.disk.set_owner(&self.handle, owner).map_err(self.fail(Doing::SetAttributes, ""))
    }

    /// Sets the owner of the entry `name`, of the link itself if it is one, where it is another one.
    pub fn set_owner_of(&self, name: impl AsRef<Path>, owner: Owner) -> Result<(), FsError> {
        let name = name.as_ref();
        if self.stat(name)?.is_some_and(|stat| owner.holds(&stat)) {
            return Ok(());
        }
        self.disk.set_owner_at(&self.handle, name, owner).map_err(self.fail(Doing::SetAttributes, name))
    }

    /// Waits until its entries are on stable storage.
    pub fn sync(&self) -> Result<(), FsError> {
        self.disk.sync(&self.handle).map_err(self.fail(Doing::Sync, ""))
    }

    /// Waits until the content of the file `name` is on stable storage, whoever wrote it.
    pub fn sync_entry(&self, name: impl AsRef<Path>) -> Result<(), FsError> {
        self.open_file(name)?.map_or(Ok(()), |file| file.sync())
    }

    /// Whether [`super::Disk::has_one_journal`].
    pub fn has_one_journal(&self) -> bool {
        self.disk.has_one_journal(&self.handle)
    }

    /// Which file system it is on, as [`super::Disk::file_system`] tells.
    pub fn file_system(&self) -> Result<u64, FsError> {
        self.disk.file_system(&self.handle).map_err(self.fail(Doing::Read, ""))
    }

    /// Locks it for as long as this value lives; `false` if another process has it locked.
    pub fn lock(&self) -> Result<bool, FsError> {
        match self.disk.lock(&self.handle) {
            Ok(()) => Ok(true),
            Err(Errno::EWOULDBLOCK) => Ok(false),
            Err(e) => Err(self.fail(Doing::Open, "")(e)),
        }
    }
}

/// Creates the folder `path` and its missing parents, on stable storage: a folder that is lost takes its content with it.
fn create_all(disk: &Shared, path: &Path, mode: u32) -> nix::Result<()> {
    let made = match (disk.create_folder(&DiskHandle::Start, path, mode), path.parent()) {
        (Err(Errno::ENOENT), Some(parent)) => {
            create_all(disk, parent, mode)?;
            disk.create_folder(&DiskHandle::Start, path, mode)
        }
        (made, _) => made,
    };
    match (made, path.parent()) {
        // Another process has created it in the meantime; opening it shows what it is.
        (Err(Errno::EEXIST), _) => Ok(()),
        (Ok(()), Some(parent)) => disk.sync(&disk.open_folder(&DiskHandle::Start, parent, Links::Follow)?),
        (made, _) => made,
    }
}
