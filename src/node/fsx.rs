//! Steps on a file system that the disk side shares: folders by descriptor, whole-file writes, stamps.
//!
//! Owns how a step is done safely (never through a symbolic link below the folder that the owner
//! named, modes independent of the umask) and how its failure is worded. Must not know what the
//! files mean.

use std::fmt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use nix::errno::Errno;

pub mod changes;
mod dir;
mod disk;
mod real;
#[cfg(any(test, feature = "simulation"))]
#[allow(clippy::unwrap_used, reason = "a simulated world that is not as it was laid out is a test that fails")]
mod simulated;
mod socket;
#[cfg(test)]
mod tests;
mod unsynced;

pub use dir::Dir;
pub use dir::File;
pub use dir::NewFile;
pub use disk::Disk;
pub use disk::DiskHandle;
pub use disk::Links;
pub use disk::Owner;
pub use disk::Shared;
pub use real::Real;
#[cfg(any(test, feature = "simulation"))]
pub use simulated::PowerLossKeeps;
#[cfg(any(test, feature = "simulation"))]
pub use simulated::Simulated;
pub use socket::bind;
pub use socket::file_at;
pub use socket::is_socket;
pub use socket::try_bind;
#[cfg(test)]
pub(crate) use tests::at_every_loss_of_power;
pub use unsynced::Unsynced;

/// So many descriptors have room from the start.
const DESCRIPTORS: i32 = 1_024;

/// Makes the process's table of descriptors as large as it will be. A process of more than one thread waits, each
/// time that the table grows, until every processor has passed through the kernel: more than 10 ms each at the boot
/// of a machine, when hundreds of files are opened before the first manifest. To be called while there is one thread.
/// Where the limit is lower, the table grows as it is needed.
pub fn widen_descriptors() {
    use nix::fcntl::FcntlArg;
    if let Ok(highest) = nix::fcntl::fcntl(std::io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(DESCRIPTORS - 1)) {
        let _ = nix::unistd::close(highest);
    }
}

/// How many threads of `most` there may be: one in a simulated world, whose effects have one order.
pub(in crate::node) fn threads(most: usize) -> usize {
    #[cfg(feature = "simulation")]
    if crate::simulation::world().is_some() {
        return 1;
    }
    most
}

/// Runs `read` on a thread of its own: a file system may hang.
///
/// # Errors
/// When `read` panics, or the process ends.
pub(in crate::node) async fn aside<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    match threads(2) {
        1 => Ok(read()),
        _ => tokio::task::spawn_blocking(read).await,
    }
}

/// What was being done when a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Doing {
    /// Opening a file or folder.
    Open,
    /// Making a file, folder or link.
    Create,
    Read,
    /// Writing.
    Write,
    /// Setting mode or owner.
    SetAttributes,
    /// Waiting until data is on stable storage.
    Sync,
    /// Giving a file its final name.
    Rename,
    /// Removing.
    Remove,
    /// Watching for changes.
    Watch,
}

impl Doing {
    const fn verb(self) -> &'static str {
        match self {
            Doing::Open => "open",
            Doing::Create => "create",
            Doing::Read => "read",
            Doing::Write => "write",
            Doing::SetAttributes => "set mode and owner of",
            Doing::Sync => "sync",
            Doing::Rename => "rename",
            Doing::Remove => "remove",
            Doing::Watch => "watch",
        }
    }

    const fn gerund(self) -> &'static str {
        match self {
            Doing::Open => "opening",
            Doing::Create => "creating",
            Doing::Read => "reading",
            Doing::Write => "writing",
            Doing::SetAttributes => "setting mode and owner of",
            Doing::Sync => "syncing",
            Doing::Rename => "renaming",
            Doing::Remove => "removing",
            Doing::Watch => "watching",
        }
    }

    /// The verb in one of its forms with its object.
    fn phrase(self, verb: &str, object: &str) -> String {
        let end = if self == Doing::Rename { " into place" } else { "" };
        format!("{verb} {object}{end}")
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())
    }
}

/// A step on a file system that failed.
#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("cannot {}", doing.phrase(doing.verb(), &path.to_string_lossy()))]
pub struct FsError {
    /// The step.
    pub doing: Doing,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    #[serde(with = "system_error")]
    pub source: std::io::Error,
}

impl FsError {
    pub(in crate::node) fn new(doing: Doing, path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Self { doing, path: path.into(), source: source.into() }
    }

    /// The step after `said`, without what `said` contains: the path, the verb, and that something cannot be done. Empty if
    /// nothing is left.
    pub(in crate::node) fn after(&self, said: &str) -> String {
        let path = self.path.to_string_lossy();
        let object = if names(said, &path) { "it" } else { &*path };
        let doing = self.doing;
        if said.contains(&format!("cannot {doing} ")) {
            return if object == "it" { String::new() } else { path.into_owned() };
        }
        match said.contains("cannot ") {
            true => format!("{} failed", doing.phrase(doing.gerund(), object)),
            false => format!("cannot {}", doing.phrase(doing.verb(), object)),
        }
    }

    /// A read of `path` that failed.
    pub fn reading(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::new(Doing::Read, path, source)
    }

    /// What to do about it, where the system's answer says so.
    pub fn hint(&self) -> Option<String> {
        let path = self.path.display();
        match Errno::from_raw(self.source.raw_os_error()?) {
            Errno::EROFS => Some(format!(
                "{path} is read-only for this service: if the folder was moved or made anew while the service ran, \
                 restart the service; else its unit's ReadWritePaths= has to name the folder, which `daemonlet generate \
                 unit-dropin` writes for this configuration, or the file system is mounted so"
            )),
            Errno::EACCES | Errno::EPERM => {
                Some(format!("this process may not {} {path}: run it as root, or give it the folder", self.doing))
            }
            Errno::ENOSPC | Errno::EDQUOT => {
                Some(format!("the file system of {path} is full (bytes or inodes): free some; this is tried again"))
            }
            Errno::ELOOP => Some(format!(
                "{path} is a symbolic link where none may be: see where it leads with `namei -l {path}`, then move it \
                 away, or name another path"
            )),
            Errno::ENOTDIR => Some(format!(
                "a file or a symbolic link stands where {path} needs a folder: see what it is with `namei -l {path}`, \
                 then move it away, or name another folder"
            )),
            _ => None,
        }
    }
}

/// What to do where something cannot be watched, if the system's answer says so.
pub(in crate::node) fn watch_hint(error: &std::io::Error) -> Option<&'static str> {
    let is_limit = matches!(Errno::from_raw(error.raw_os_error()?), Errno::EMFILE | Errno::ENOSPC);
    is_limit.then_some("raise fs.inotify.max_user_instances and max_user_watches")
}

/// Why a folder of another user is not used, and what to do about it; `None` if it belongs to this process's user.
pub(in crate::node) fn other_owner(stat: &Stat, path: &Path) -> Option<(String, String)> {
    let me = nix::unistd::geteuid();
    let hint = match stat.uid {
        owner if owner == me.as_raw() => return None,
        0 => "run this as root, who owns it".to_owned(),
        _ => format!("chown {me} {}", path.display()),
    };
    Some((format!("is owned by user {}", stat.uid), hint))
}

/// Why a folder into which others may write is not used; `None` if only its owner may.
pub(in crate::node) fn open_to_others(stat: &Stat) -> Option<String> {
    (stat.mode & 0o022 != 0).then(|| "can be written to by others than its owner".to_owned())
}

/// Whether `text` names exactly this path, not one below it or beside it.
fn names(text: &str, path: &str) -> bool {
    let follows = |at: usize| text.get(at + path.len()..).is_none_or(|rest| !rest.starts_with(is_of_path));
    text.match_indices(path).any(|(at, _)| follows(at))
}

fn is_of_path(letter: char) -> bool {
    letter.is_alphanumeric() || "/-_.".contains(letter)
}

/// A system's error in a recording: its number, or its words where it has none.
mod system_error {
    use std::io::Error;

    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serialize;
    use serde::Serializer;

    pub(super) fn serialize<S: Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
        match error.raw_os_error() {
            Some(number) => Ok::<i32, String>(number),
            None => Err(error.to_string()),
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Error, D::Error> {
        let error = Result::<i32, String>::deserialize(deserializer)?;
        Ok(error.map_or_else(Error::other, Error::from_raw_os_error))
    }
}

/// A file or folder as the kernel knows it: device and inode. One that was made anew is another one.
pub type FileId = (u64, u64);

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    dev: u64,
    ino: u64,
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    /// Whether both are of the same file, changed or not.
    pub fn is_same_file(&self, other: &Stamp) -> bool {
        self.file_id() == other.file_id()
    }

    /// The file's inode number.
    pub fn inode(&self) -> u64 {
        self.ino
    }

    /// Whether both are of the same file with the same content; its name, mode and owner may differ.
    pub fn is_same_content(&self, other: &Stamp) -> bool {
        self.is_same_file(other) && (self.size, self.mtime) == (other.size, other.mtime)
    }

    /// The file's device and inode, whatever its path.
    pub fn file_id(&self) -> FileId {
        (self.dev, self.ino)
    }

    /// When anything of the file last changed.
    pub fn changed(&self) -> SystemTime {
        time(self.ctime)
    }

    /// When its content last changed.
    pub fn modified(&self) -> SystemTime {
        time(self.mtime)
    }
}

fn time((seconds, nanoseconds): (i64, i64)) -> SystemTime {
    let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    SystemTime::UNIX_EPOCH + whole + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    Folder,
    /// A symbolic link.
    Link,
    /// The character device 1:3, which is `/dev/null`.
    NullDevice,
    /// Anything else.
    Other,
}

/// What an entry of a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// Its permissions, with the set-uid, set-gid and sticky bits.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
    /// What changes when it does.
    pub stamp: Stamp,
}

impl Stat {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stamp.size).unwrap_or(0)
    }
}
