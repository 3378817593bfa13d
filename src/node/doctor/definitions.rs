//! Who may write to the folders that define DaemonSets, and who can read the Secrets there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use crate::core::input;
use crate::core::model::Kind;
use crate::core::yaml;
use crate::node::doctor::way;
use crate::regular_file;

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

/// Those of `folders` that are something else.
pub(super) fn others(folders: &[PathBuf]) -> Vec<String> {
    let is_other = |path: &&PathBuf| fs::metadata(path).is_ok_and(|data| !data.is_dir());
    folders.iter().filter(is_other).map(|path| path.display().to_string()).collect()
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

/// The files of `folders` that have Secrets and that every user can read.
pub(super) fn readable_secrets(folders: &[PathBuf]) -> Vec<String> {
    let allows = |path: &Path, bits: u32| fs::metadata(path).is_ok_and(|data| data.mode() & bits != 0);
    let folders = folders.iter().filter(|folder| allows(folder, 0o001));
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let readable = files.map(|file| file.path()).filter(|path| allows(path, 0o004) && has_secret(path));
    let mut named: Vec<String> = readable.map(|path| path.display().to_string()).collect();
    named.sort();
    named.truncate(MOST);
    named
}

fn has_secret(path: &Path) -> bool {
    let bytes = regular_file::read_at_most(path, yaml::MAX_TEXT as u64).unwrap_or_default();
    let file = input::parse_file(path, &String::from_utf8_lossy(&bytes));
    file.objects.iter().any(|(reference, _)| reference.kind == Kind::Secret)
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

    #[test]
    fn a_file_with_secrets_that_every_user_can_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let (secret, other) = (folder.path().join("secret.yaml"), folder.path().join("other.yaml"));
        let object = |kind: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: s, namespace: a}}\n");
        fs::write(&secret, object("Secret")).unwrap();
        fs::write(&other, object("ConfigMap")).unwrap();
        let named = vec![secret.display().to_string()];
        for (folder_mode, mode, expected) in
            [(0o755, 0o644, &named), (0o755, 0o640, &vec![]), (0o700, 0o644, &vec![]), (0o711, 0o604, &named)]
        {
            chmod(folder.path(), folder_mode);
            chmod(&secret, mode);
            chmod(&other, mode);
            let found = readable_secrets(&[folder.path().to_owned(), "/nowhere".into()]);
            assert_eq!(&found, expected, "{folder_mode:o} {mode:o}");
        }
    }
}
