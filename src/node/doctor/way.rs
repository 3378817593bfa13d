//! The folders on the way to a path: a user who may write to one of them may replace what is below it.
//!
//! Owns which folders count. Must not judge what lies at the path itself, nor change anything.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

/// As many links as the kernel follows on one way.
const MOST_LINKS: usize = 40;

/// A folder's sticky bit: users who may write to it may not rename files of others.
const STICKY: u32 = 0o1000;

/// Accounts from this one on are people's, as shadow's `UID_MIN` has it. What a system's account owns, as some installers do
/// it with `/etc/kubernetes`, is meant so.
const FIRST_PERSON: u32 = 1000;

/// The first folder above `path`, and above what links on the way lead to, to which people other than root, or than this
/// process's user, may write. Folders that do not exist, or cannot be read, do not count.
pub(super) fn open_above(path: &Path) -> Option<PathBuf> {
    let own = nix::unistd::geteuid().as_raw();
    let mut todo: Vec<PathBuf> = parts(&std::path::absolute(path).ok()?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = todo.pop() {
        let data = fs::metadata(&at).ok()?;
        let is_writable = data.mode() & 0o022 != 0 && data.mode() & STICKY == 0;
        if is_writable || data.uid() >= FIRST_PERSON && data.uid() != own {
            return Some(at);
        }
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(part);
        match fs::read_link(&next) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                todo.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    None
}

/// The names on a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_folder_above_and_above_what_links_lead_to_counts() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let chmod = |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(path("a/b/c")).unwrap();
        fs::create_dir_all(path("x/y")).unwrap();
        for folder in ["a", "a/b", "a/b/c", "x", "x/y"] {
            chmod(folder, 0o755);
        }
        symlink("../../x/y", path("a/b/link")).unwrap();
        symlink(path("a/b/link"), path("x/far")).unwrap();
        symlink("round", path("round")).unwrap();
        for (open, mode, at, found) in [
            ("a", 0o755, "a/b/c", None),
            ("a", 0o777, "a/b/c", Some("a")),
            ("a", 0o775, "a/b/c", Some("a")),
            ("a", 0o1777, "a/b/c", None),
            ("a/b", 0o757, "a/b/c/missing/more", Some("a/b")),
            ("a/b/c", 0o777, "a/b/c", None),
            ("x", 0o777, "a/b/link", Some("x")),
            ("x", 0o777, "a/b/c", None),
            ("a/b", 0o777, "x/far/file", Some("a/b")),
            ("x/y", 0o777, "x/far/file", Some("x/y")),
            ("a", 0o777, "round/file", None),
        ] {
            chmod(open, mode);
            assert_eq!(open_above(&path(at)), found.map(path), "{open} {mode:o}: {at}");
            chmod(open, 0o755);
        }
    }
}
