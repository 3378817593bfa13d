//! A note of each state folder that the agent used beside the unit's own, for the removal of the package.
//!
//! By then the configuration may be gone, or not be read any more. Must not fail the agent.

use std::ffi::OsStr;
use std::path::Path;

use crate::node::fsx::Dir;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Shared;

/// In the unit's own state folder: one path a line. The scripts of the packages read it.
const NOTE: &str = ".state-dirs";
const LIMIT: u64 = 1 << 16;

/// Notes `state_dir` in `own`, the folder that systemd gave the unit, unless it is that folder.
pub(super) fn note(files: &Shared, own: Option<&OsStr>, state_dir: &Path) {
    let Some(own) = own.map(Path::new).filter(|own| own.is_absolute() && *own != state_dir) else { return };
    if let Err(error) = write(files, own, state_dir) {
        tracing::warn!(%error, "a purge of the package will not find {}", state_dir.display());
    }
}

fn write(files: &Shared, own: &Path, state_dir: &Path) -> Result<(), FsError> {
    let (folder, _) = Dir::open_or_create(files, own, 0o700)?;
    let mut noted = folder.read_file(NOTE, LIMIT)?.unwrap_or_default();
    let line = format!("{}\n", state_dir.display());
    if noted.split_inclusive(|byte| *byte == b'\n').any(|known| known == line.as_bytes()) {
        return Ok(());
    }
    noted.extend_from_slice(line.as_bytes());
    let new = format!("{NOTE}.new");
    folder.unlink(&new)?;
    folder.create_file(&new, &noted, 0o600, Owner::default())?.sync()?;
    folder.rename(&new, &folder, NOTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fsx::Real;

    #[test]
    fn each_folder_is_noted_once_and_the_units_own_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let own = scratch.path().join("own");
        let noted = || std::fs::read_to_string(own.join(NOTE)).unwrap_or_default();
        for (state, text) in [(own.as_path(), ""), (Path::new("/a"), "/a\n"), (Path::new("/b"), "/a\n/b\n")] {
            for _ in 0..2 {
                note(&Real::shared(), Some(own.as_os_str()), state);
                assert_eq!(noted(), text);
            }
        }
        note(&Real::shared(), None, Path::new("/c"));
        assert_eq!(noted(), "/a\n/b\n", "it was not started by the unit");
    }
}
