//! Sockets that have a name on the file system.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::net::UnixListener;

/// Listens on a socket of mode 0600; a leftover of an earlier process is replaced, anything else is not.
///
/// # Errors
/// When something else has the name, or the socket cannot be made there.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if is_socket(path)? {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Whether a socket has the name `path`.
///
/// # Errors
/// When something else has it, or it cannot be looked at.
pub fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::other("something that is no socket has that name")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file that has the name `path`, by its device and inode; none has it.
///
/// # Errors
/// When it cannot be looked at.
pub fn file_at(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes sure that [`bind`] could take `path`, and leaves nothing there.
///
/// # Errors
/// As [`bind`].
pub fn try_bind(path: &Path) -> io::Result<()> {
    is_socket(path)?;
    // No longer than the name itself: a socket's path is bounded.
    let trial = path.with_extension("try");
    drop(bind(&trial)?);
    fs::remove_file(trial)
}
