//! The file systems of the folders that the agent writes to.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use nix::sys::statvfs;
use nix::sys::statvfs::FsFlags;

use crate::config::Config;
use crate::core::doctor::disk::DiskFolder;
use crate::core::mounts::MountTable;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;

/// Each folder, once.
pub(super) fn folders(config: &Config) -> Vec<DiskFolder> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = MountTable::parse(&mounts);
    let folders = [
        ("state-dir", &config.state_dir),
        ("manifest-dir", &config.manifest_dir),
        ("kubelet-root", &config.kubelet_root),
    ];
    folders.into_iter().map(|(key, path)| folder(key, path, &mounts)).collect()
}

fn folder(key: &'static str, path: &Path, mounts: &MountTable<'_>) -> DiskFolder {
    let path = existing(path);
    let mut found = DiskFolder {
        key,
        path: path.display().to_string(),
        error: None,
        kind: String::new(),
        free_bytes: 0,
        bytes: 0,
        free_inodes: 0,
        inodes: 0,
        read_only: false,
        ext4_journal: None,
    };
    if !path.is_dir() {
        found.error = Some("not a folder".to_owned());
        return found;
    }
    match statvfs::statvfs(&path) {
        Err(errno) => found.error = Some(crate::config::io_reason(&errno.into())),
        Ok(stat) => {
            // The fields are narrower on some machines.
            #[allow(clippy::useless_conversion, reason = "u32 on 32-bit machines")]
            let [size, blocks, available, files, free] = [
                u64::from(stat.fragment_size()),
                u64::from(stat.blocks()),
                u64::from(stat.blocks_available()),
                u64::from(stat.files()),
                u64::from(stat.files_available()),
            ];
            found.bytes = blocks.saturating_mul(size);
            found.free_bytes = available.saturating_mul(size);
            (found.inodes, found.free_inodes) = (files, free);
            found.read_only = stat.flags().contains(FsFlags::ST_RDONLY);
        }
    }
    let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    found.kind = mounts.mount_of(&real).map_or_else(|| "unknown".to_owned(), |mount| mount.kind.to_owned());
    if found.kind == "ext4" {
        found.ext4_journal = Some(Dir::open(&Real::shared(), &real).is_ok_and(|dir| dir.has_one_journal()));
    }
    found
}

/// The folder, or its nearest existing parent.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_above() {
        let scratch = tempfile::tempdir().unwrap();
        let mounts = MountTable::parse("1 0 8:1 / / rw - xfs /dev/sda1 rw\n");
        let found = folder("state-dir", &scratch.path().join("a/b"), &mounts);
        assert_eq!((found.path.as_str(), found.kind.as_str()), (scratch.path().to_str().unwrap(), "xfs"));
        assert!(found.bytes > found.free_bytes && found.free_bytes > 0 && found.error.is_none(), "{found:?}");
        fs::write(scratch.path().join("file"), "").unwrap();
        assert_eq!(folder("state-dir", &scratch.path().join("file"), &mounts).error.as_deref(), Some("not a folder"));
    }
}
