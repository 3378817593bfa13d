//! The manifest folder and its staging folder: whether they are safe to use.

use std::path::Path;

use super::ManifestError;
use super::lock::ManifestLock;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::FileKind;
use crate::node::fsx::FsError;
use crate::node::fsx::Shared;

/// Inside the manifest folder: a sibling folder would be another mount under systemd's `ReadWritePaths=`, and a rename
/// across mounts fails.
pub(super) const STAGE: &str = ".daemonlet";

/// An open manifest folder.
#[derive(Debug)]
pub(super) struct ManifestFolder {
    dir: Dir,
    stage: Option<Dir>,
}

impl ManifestFolder {
    /// Opens it for writing; `lock`: its lock, where this process has it.
    pub(super) fn open(disk: &Shared, path: &Path, lock: &mut Option<ManifestLock>) -> Result<Self, ManifestError> {
        let fail = |source| ManifestError::ManifestFolder { path: path.to_owned(), source };
        refuse_link(disk, path)?;
        let (dir, made) = Dir::open_or_create(disk, path, 0o700).map_err(fail)?;
        let refuse = |(why, hint): (String, String)| ManifestError::Unsafe { path: path.to_owned(), why, hint };
        let stat = dir.own_stat().map_err(fail)?;
        if let Some(owned) = fsx::other_owner(&stat, path) {
            return Err(refuse(owned));
        }
        if let Some(why) = fsx::open_to_others(&stat) {
            return Err(refuse((why, format!("chmod go-w {}", path.display()))));
        }
        if made {
            sync_parent(disk, path).map_err(fail)?;
        }
        let (stage, _) = dir.child_or_create(STAGE, 0o700).map_err(fail)?;
        ManifestLock::take(&dir, &stage, lock)?;
        stage.set_mode(0o700).map_err(fail)?;
        for name in stage.names().map_err(fail)? {
            stage.remove_tree(&name).map_err(fail)?;
        }
        Ok(Self { dir, stage: Some(stage) })
    }

    /// Opens it read-only; `None` if it does not exist.
    pub(super) fn open_read_only(disk: &Shared, path: &Path) -> Result<Option<Self>, ManifestError> {
        refuse_link(disk, path)?;
        match Dir::open(disk, path) {
            Ok(dir) => Ok(Some(Self { dir, stage: None })),
            Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ManifestError::ManifestFolder { path: path.to_owned(), source }),
        }
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The staging folder; `None` if the folder is read-only.
    pub(super) fn stage(&self) -> Option<&Dir> {
        self.stage.as_ref()
    }

    /// Whether `path` still leads to this folder, and it is still safe.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (Ok(here), Ok(there)) = (self.dir.own_stat(), self.dir.disk().look_at_link(path)) else { return false };
        let is_safe = here.uid == nix::unistd::geteuid().as_raw() && here.mode & 0o022 == 0;
        here.stamp.is_same_file(&there.stamp)
            && (is_safe || self.stage.is_none())
            && self.stage.as_ref().is_none_or(|stage| stage.own_stat().is_ok_and(|stat| stat.links > 0))
    }
}

fn refuse_link(disk: &Shared, path: &Path) -> Result<(), ManifestError> {
    match disk.look_at_link(path) {
        Ok(stat) if stat.kind == FileKind::Link => Err(ManifestError::Unsafe {
            path: path.to_owned(),
            why: "is a symbolic link".to_owned(),
            hint: "name the folder that it leads to, here and in the kubelet's staticPodPath".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn sync_parent(disk: &Shared, path: &Path) -> Result<(), FsError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => Dir::open(disk, parent)?.sync(),
        _ => Ok(()),
    }
}
