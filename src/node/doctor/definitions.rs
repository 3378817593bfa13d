//! Who may write to the folders that define DaemonSets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use crate::node::doctor::way;

/// The most paths that are named.
const MOST: usize = 5;

/// Those of `folders`, of what is in them and of the folders above that users other than root, or than this process's, may write
/// to. Files that do not exist, or that no agent can read, do not count.
pub(super) fn open(folders: &[PathBuf]) -> Vec<String> {
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.sort();
    open_of(folders.iter().cloned().chain(paths))
}

/// Those of `paths` and of the folders above them.
pub(super) fn open_of(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let open = paths.flat_map(|path| way::open_above(&path).into_iter().chain(is_open(&path).then_some(path)));
    let mut named: Vec<String> = Vec::new();
    for path in open.map(|path| path.display().to_string()) {
        if named.len() < MOST && !named.contains(&path) {
            named.push(path);
        }
    }
    named
}

/// Links are followed: the file that they name counts, with its own mode and owner.
fn is_open(path: &Path) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    let is_others = |data: &fs::Metadata| data.mode() & 0o022 != 0 || data.uid() != 0 && data.uid() != own;
    fs::metadata(path).is_ok_and(|data| (data.is_file() || data.is_dir()) && is_others(&data))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_and_a_file_that_others_may_write_to_are_named() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let chmod = |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        for folder in ["well", "open", "files"] {
            fs::create_dir(path(folder)).unwrap();
            chmod(folder, 0o755);
        }
        for file in ["files/a.yaml", "files/b.yaml", "elsewhere.yaml"] {
            fs::write(path(file), "").unwrap();
            chmod(file, 0o644);
        }
        symlink("/dev/null", path("files/masked.yaml")).unwrap();
        symlink(path("elsewhere.yaml"), path("files/link.yaml")).unwrap();
        symlink("/nowhere", path("files/dangling.yaml")).unwrap();
        let folders = ["well", "open", "files", "missing"].map(path);
        assert_eq!(open(&folders), Vec::<String>::new(), "a mask and a link say nothing");
        for (name, mode, reported) in [
            ("open", 0o777, "open"),
            ("open", 0o1777, "open"),
            ("open", 0o775, "open"),
            ("files/b.yaml", 0o666, "files/b.yaml"),
            ("files/b.yaml", 0o664, "files/b.yaml"),
            ("elsewhere.yaml", 0o602, "files/link.yaml"),
        ] {
            chmod(name, mode);
            assert_eq!(open(&folders), [path(reported).display().to_string()], "{name} {mode:o}");
            chmod(name, 0o755);
        }
        fs::create_dir_all(path("above/defs")).unwrap();
        chmod("above/defs", 0o755);
        chmod("above", 0o777);
        let above = path("above").display().to_string();
        assert_eq!(open(&[path("above/defs"), path("above/none")]), [above], "it could be another one");
    }
}
