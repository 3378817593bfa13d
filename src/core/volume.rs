//! The content of a materialised volume: files with bytes, modes and owners, before any disk is touched.
//!
//! Owns the value that rendering produces and the disk side writes. Must not do I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

/// The longest path inside a volume, in bytes: Linux takes 4,096 for a path, and before this one stands where the volume
/// is.
const MAX_PATH: usize = 4096 - 256;
/// The longest name of a file or folder, in bytes.
const MAX_NAME: usize = 255;

/// Whether `name` is a name of one entry of a folder.
pub fn is_entry_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && name.len() <= MAX_NAME && !name.contains(['/', '\0'])
}

/// Why nothing can be written at `path` inside a volume, if so: it would leave the volume, clash with its versions
/// (AtomicWriter's `validatePath`), or no file system has it.
pub fn unwritable(path: &str) -> Option<&'static str> {
    match path {
        _ if path.starts_with('/') => Some("is not relative"),
        _ if path.len() > MAX_PATH || path.split('/').any(|part| part.len() > MAX_NAME) => {
            Some("is too long for a file name")
        }
        _ if path.starts_with("..") || path.split('/').any(|part| part == "..") => Some("contains or starts with `..`"),
        _ if !path.split('/').all(is_entry_name) => Some("is not the path of a file"),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// The content; files with the same share it.
    pub data: FileData,
    /// Permission bits, as set by the kubelet's own plugin (fsGroup included).
    pub mode: u32,
    /// Owner; `None` is root (a token's `runAsUser`).
    pub uid: Option<u32>,
}

/// The bytes of a file. Those that are a text of an object are not copied: a ConfigMap may have a MiB of them.
#[derive(Clone)]
pub struct FileData(VolumeFileContent);

#[derive(Clone)]
enum VolumeFileContent {
    Bytes(Arc<[u8]>),
    Text { object: Arc<Value>, member: &'static str, key: String },
}

impl FileData {
    /// The text `key` of the map `member` of `object`; empty if there is none.
    pub fn of_object(object: Arc<Value>, member: &'static str, key: &str) -> Self {
        Self(VolumeFileContent::Text { object, member, key: key.to_owned() })
    }

    /// How many bytes are no object's.
    pub fn own_len(&self) -> usize {
        match &self.0 {
            VolumeFileContent::Bytes(bytes) => bytes.len(),
            VolumeFileContent::Text { .. } => 0,
        }
    }
}

impl<T: Into<Arc<[u8]>>> From<T> for FileData {
    fn from(bytes: T) -> Self {
        Self(VolumeFileContent::Bytes(bytes.into()))
    }
}

impl Deref for FileData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            VolumeFileContent::Bytes(bytes) => bytes,
            VolumeFileContent::Text { object, member, key } => {
                let text = object.get(member).and_then(|map| map.get(key)?.as_str());
                text.unwrap_or_default().as_bytes()
            }
        }
    }
}

impl PartialEq for FileData {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for FileData {}

impl fmt::Debug for FileData {
    /// Only the length: it may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileData({} bytes)", self.len())
    }
}

/// One volume, written as an emptyDir under the pinned pod UID in the kubelet's AtomicWriter layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeData {
    /// The volume's name in the pod.
    pub name: String,
    /// Path inside the volume (relative, validated) to file.
    pub files: BTreeMap<String, VolumeFile>,
    /// `fsGroup` of the pod: group of every file and folder, folders setgid.
    pub fs_group: Option<u32>,
    /// Folders inside this volume on which other volumes are mounted (the kubelet's nested mount points).
    pub nested_mount_points: BTreeSet<String>,
    /// Which of `files` are tokens.
    pub tokens: BTreeSet<String>,
    /// Whether files that are not in `files` stay as they are on disk; a volume without data is not written then.
    pub keeps_others: bool,
    /// Whether it is the env file of a container: the manifest names the keys in it, so both change together.
    pub is_environment: bool,
}

impl VolumeData {
    /// Its tokens alone: a token is brought up to date whatever else the volume lacks. `None`: it has none.
    pub fn tokens_alone(&self) -> Option<Self> {
        let is_token = |path: &String| self.tokens.contains(path);
        let files = self.files.iter().filter(|(path, _)| is_token(path));
        let files = files.map(|(path, file)| (path.clone(), file.clone())).collect();
        (!self.tokens.is_empty()).then(|| Self { files, keeps_others: true, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_written_is_known_before_anything_is() {
        let long = "x".repeat(MAX_NAME);
        let deep = |bytes: usize| "x/".repeat(bytes / 2 - 1) + "xx";
        for path in ["a", ".a", "a/..b", "a.b/c", &long, &deep(MAX_PATH)] {
            assert_eq!(unwritable(path), None, "{path}");
        }
        for (path, why) in [
            ("/a", "is not relative"),
            (&*(long.clone() + "x"), "is too long for a file name"),
            (&format!("a/{long}x"), "is too long for a file name"),
            (&deep(MAX_PATH + 2), "is too long for a file name"),
            ("..data", "contains or starts with `..`"),
            ("..data/x", "contains or starts with `..`"),
            ("a/../b", "contains or starts with `..`"),
            ("", "is not the path of a file"),
            ("a//b", "is not the path of a file"),
            ("./a", "is not the path of a file"),
            ("a\0", "is not the path of a file"),
        ] {
            assert_eq!(unwritable(path), Some(why), "{path}");
        }
    }
}
