//! Mode and owner of our manifests: a manifest may carry secrets, and its containers may run as root.
//!
//! Owns which they are, and restores them after a change. Must not touch content: the kubelet compares
//! the content, and restarts nothing for a mode.

use std::ffi::OsStr;
use std::fmt;

use nix::errno::Errno;

use super::ManifestDir;
use super::ManifestError;
use crate::node::fsx::Dir;
use crate::node::fsx::Doing;
use crate::node::fsx::FsError;
use crate::node::fsx::Owner;
use crate::node::fsx::Stat;

/// The mode of a manifest.
pub(super) const MODE: u32 = 0o600;

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    mode: u32,
    uid: u32,
}

impl FileAttributes {
    /// Those of a manifest.
    fn own() -> Self {
        Self { mode: MODE, uid: nix::unistd::geteuid().as_raw() }
    }

    /// A manifest's attributes, if they were changed.
    pub(super) fn changed(stat: &Stat) -> Option<Self> {
        Some(Self { mode: stat.mode, uid: stat.uid }).filter(|found| *found != Self::own())
    }
}

impl fmt::Display for FileAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {:04o} and owner {}", self.mode, self.uid)
    }
}

impl ManifestDir {
    /// Restores mode and owner of the manifests that the last scan found changed. Gives each file and what it had, or why
    /// that stays. A file system that has no modes is not asked again.
    pub fn restore_attributes(&mut self) -> Vec<(String, Result<FileAttributes, ManifestError>)> {
        let found: Vec<(String, FileAttributes)> = self.scan_cache.changed_attributes().collect();
        self.immutable.retain(|file, attributes| found.contains(&(file.clone(), *attributes)));
        let dir = self.folder.dir();
        let restored = found.into_iter().map(|(file, attributes)| {
            let stays = |source| ManifestError::Attributes { path: self.path.join(&file), source };
            let path = self.path.join(&file);
            let unchanged = || FsError::new(Doing::SetAttributes, &path, Errno::EOPNOTSUPP);
            let result = match self.immutable.contains_key(&file) {
                true => Err(stays(unchanged())),
                false => match restore(dir, file.as_ref()) {
                    Ok(true) => Ok(attributes),
                    Ok(false) => {
                        self.immutable.insert(file.clone(), attributes);
                        Err(stays(unchanged()))
                    }
                    Err(source) => Err(stays(source)),
                },
            };
            (file, result)
        });
        restored.collect()
    }
}

/// Gives whether the file `name` has its mode and owner now, or is not there any more.
fn restore(dir: &Dir, name: &OsStr) -> Result<bool, FsError> {
    // Whoever owns the file may change its mode.
    dir.set_owner_of(name, Owner { uid: Some(FileAttributes::own().uid), gid: None })?;
    dir.set_mode_of(name, MODE)?;
    Ok(dir.stat(name)?.is_none_or(|stat| FileAttributes::changed(&stat).is_none()))
}
