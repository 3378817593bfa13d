//! Whole, small files that the node's owner or another program writes: configurations and credentials.
//!
//! Owns how they are opened, so that nothing at such a path can hold the process up or fill its memory. Must not know
//! what they mean.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::stat::makedev;

/// The most bytes that [`read`] takes: 1 MiB.
const MAX_BYTES: u64 = 1 << 20;

/// The bytes of the file at `path`; links are followed, and `/dev/null` is an empty file.
///
/// # Errors
/// The system's; and where it is not a regular file, or longer than 1 MiB.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MAX_BYTES)
}

/// As [`read`]; a text that is not UTF-8 is an error.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// As [`read`], with another limit in bytes.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // To open a device can do something, and a FIFO waits for its writer.
    if is_null_device(&fs::metadata(path)?)? {
        return Ok(Vec::new());
    }
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    // It may be another one by now.
    if is_null_device(&file.metadata()?)? {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("it is longer than {limit} bytes, the most that is read");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// Whether it is `/dev/null`; any other file that is not regular is an error.
fn is_null_device(found: &fs::Metadata) -> io::Result<bool> {
    let kind = found.file_type();
    if kind.is_file() {
        return Ok(false);
    }
    if kind.is_char_device() && found.rdev() == makedev(1, 3) {
        return Ok(true);
    }
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn what_is_not_a_regular_file_of_bounded_length_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let why = |path: &Path| read(path).unwrap_err().to_string();
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        symlink("fifo", path("to-fifo")).unwrap();
        for path in [path("fifo"), path("to-fifo"), "/dev/zero".into()] {
            assert_eq!(why(&path), "it is not a regular file", "{}", path.display());
        }
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        fs::File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        assert!(why(&path("huge")).contains("longer than 1048576 bytes"), "{}", why(&path("huge")));
        fs::write(path("file"), "text").unwrap();
        symlink("file", path("link")).unwrap();
        assert_eq!(read(&path("link")).unwrap(), b"text");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
        assert_eq!(read(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!read_text(Path::new("/proc/self/status")).unwrap().is_empty(), "what the kernel makes up");
    }
}
