//! The file systems of the folders that the agent writes to.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use nix::sys::statvfs;
use nix::sys::statvfs::FsFlags;

use crate::config::Config;
use crate::core::doctor::disk::DiskFolder;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;

/// Each folder, once.
pub(super) fn folders(config: &Config) -> Vec<DiskFolder> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let folders = [
        ("state-dir", &config.state_dir),
        ("manifest-dir", &config.manifest_dir),
        ("kubelet-root", &config.kubelet_root),
    ];
    folders.into_iter().map(|(key, path)| folder(key, path, &mounts)).collect()
}

fn folder(key: &'static str, path: &Path, mounts: &str) -> DiskFolder {
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
    found.kind = kind(&real, mounts);
    if found.kind == "ext4" {
        found.ext4_journal = Some(Dir::open(&Real::shared(), &real).is_ok_and(|dir| dir.has_one_journal()));
    }
    found
}

/// The folder, or its nearest existing parent.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// The type of the file system of `path`: that of the last mount at or above it (proc(5)).
fn kind(path: &Path, mounts: &str) -> String {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((fields, rest)) = line.split_once(" - ") else { continue };
        let (Some(at), Some(kind)) = (fields.split(' ').nth(4), rest.split(' ').next()) else { continue };
        let at = at.replace("\\040", " ");
        if path.starts_with(&at) && best.is_none_or(|(length, _)| at.len() >= length) {
            best = Some((at.len(), kind));
        }
    }
    best.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_or_above_counts() {
        let mounts = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:9 / /run rw - tmpfs tmpfs rw\n\
                      3 1 8:2 / /var/lib rw master:1 - xfs /dev/sdb rw\n4 1 0:8 / /run rw - overlay overlay rw\n";
        for (path, expected) in
            [("/etc", "ext4"), ("/run/daemonlet", "overlay"), ("/var/lib/kubelet", "xfs"), ("/var/library", "ext4")]
        {
            assert_eq!(kind(Path::new(path), mounts), expected, "{path}");
        }
        assert_eq!(kind(Path::new("/"), ""), "unknown");
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_above() {
        let scratch = tempfile::tempdir().unwrap();
        let found = folder("state-dir", &scratch.path().join("a/b"), "1 0 8:1 / / rw - xfs /dev/sda1 rw\n");
        assert_eq!((found.path.as_str(), found.kind.as_str()), (scratch.path().to_str().unwrap(), "xfs"));
        assert!(found.bytes > found.free_bytes && found.free_bytes > 0 && found.error.is_none(), "{found:?}");
        fs::write(scratch.path().join("file"), "").unwrap();
        assert_eq!(folder("state-dir", &scratch.path().join("file"), "").error.as_deref(), Some("not a folder"));
    }
}
