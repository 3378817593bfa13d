//! The kernel's table of mounts (proc(5), mountinfo): what lies at a path, and how two mount namespaces differ there.
//!
//! Owns how the table is read. Must not read it: the shell does.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount<'t> {
    id: &'t str,
    parent: &'t str,
    /// The device number, such as `8:1`.
    pub device: &'t str,
    /// Which part of the file system is mounted: `/`, or another folder of it (bind mounts).
    pub root: Cow<'t, str>,
    /// Where it is mounted.
    pub point: Cow<'t, str>,
    /// The file system's type, such as `ext4`.
    pub kind: &'t str,
    is_read_only: bool,
}

/// A table of mounts. Lines that cannot be read are left out.
#[derive(Clone, Debug, Default)]
pub struct MountTable<'t> {
    mounts: Vec<Mount<'t>>,
}

impl<'t> MountTable<'t> {
    /// The table in the text of a `mountinfo` file.
    pub fn parse(text: &'t str) -> Self {
        Self { mounts: text.lines().filter_map(Mount::parse).collect() }
    }

    /// The mount that holds `path`, an absolute path without links: what is hidden below another mount does not count.
    pub fn mount_of(&self, path: &Path) -> Option<&Mount<'t>> {
        let ids: BTreeSet<&str> = self.mounts.iter().map(|mount| mount.id).collect();
        let is_top = |mount: &&Mount<'t>| !ids.contains(mount.parent) || mount.parent == mount.id;
        let mut found = self.first_above(path, is_top)?;
        // Each is left once; a table that the kernel wrote has no circle.
        for _ in 0..self.mounts.len() {
            let is_on = |mount: &&Mount<'t>| mount.parent == found.id && mount.id != found.id;
            let Some(next) = self.first_above(path, is_on) else { break };
            found = next;
        }
        Some(found)
    }

    /// The one of these mounts that a walk from the root to `path` meets first.
    fn first_above(&self, path: &Path, is_one: impl Fn(&&Mount<'t>) -> bool) -> Option<&Mount<'t>> {
        let above = self.mounts.iter().rev().filter(is_one).filter(|mount| path.starts_with(&*mount.point));
        above.min_by_key(|mount| mount.point.len())
    }

    /// What is at `path` in this table.
    fn place_of(&self, path: &Path) -> Option<(&Mount<'t>, FileSystemFolder)> {
        let mount = self.mount_of(path)?;
        let below = path.strip_prefix(&*mount.point).ok()?;
        // Without a slash at the end, which an empty rest would leave.
        let folder = Path::new(&*mount.root).join(below).components().collect();
        Some((mount, FileSystemFolder { kind: mount.kind.to_owned(), device: mount.device.to_owned(), folder }))
    }

    /// What the process of this table has at `path`, where that is not what `others` have there in a way that a new
    /// mount namespace would mend.
    pub fn difference(&self, others: &MountTable<'_>, path: &Path) -> Option<MountDifference> {
        let ((own, here), (other, there)) = (self.place_of(path)?, others.place_of(path)?);
        if here == there {
            let is_locked = own.is_read_only && !other.is_read_only;
            return is_locked.then_some(MountDifference::ReadOnly);
        }
        // Elsewhere nothing says that the others' folder exists, without which no service starts that may write to it.
        (path == Path::new(&*other.point)).then_some(MountDifference::Another { here, there })
    }
}

impl<'t> Mount<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<&str> = left.split(' ').collect();
        let [id, parent, device, root, point, options, ..] = fields[..] else { return None };
        Some(Self {
            id,
            parent,
            device,
            root: unescape(root),
            point: unescape(point),
            kind: right.split(' ').next().unwrap_or_default(),
            is_read_only: options.split(',').any(|option| option == "ro"),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemFolder {
    kind: String,
    device: String,
    folder: PathBuf,
}

impl fmt::Display for FileSystemFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of a file system {} ({})", self.folder.display(), self.kind, self.device)
    }
}

/// How a mount namespace differs from another one at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountDifference {
    /// The same folder, which can be written to in the other one only: what made it writable here went with the folder
    /// that was at this path before.
    ReadOnly,
    /// Another folder.
    Another {
        /// What is at the path here.
        here: FileSystemFolder,
        /// What is at the path in the other one.
        there: FileSystemFolder,
    },
}

/// The kernel writes white space and backslashes as octal escapes.
fn unescape(field: &str) -> Cow<'_, str> {
    if !field.contains('\\') {
        return Cow::Borrowed(field);
    }
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine's table, and that of a service which may write to the manifest folder alone.
    const MACHINE: &str = "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
    const SERVICE: &str = "50 40 8:1 / / ro,relatime master:1 - ext4 /dev/sda1 rw\n\
        51 50 8:1 /etc/kubernetes/manifests /etc/kubernetes/manifests rw,relatime master:1 - ext4 /dev/sda1 rw\n";
    const MANIFESTS: &str = "/etc/kubernetes/manifests";

    fn difference(service: &str, machine: &str) -> Option<MountDifference> {
        MountTable::parse(service).difference(&MountTable::parse(machine), Path::new(MANIFESTS))
    }

    #[test]
    fn a_walk_to_the_path_ends_in_its_mount() {
        let table = MountTable::parse(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             30 22 0:25 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n\
             31 22 8:1 /srv/ds /etc/a\\040b rw - ext4 /dev/sda1 rw\nbroken\n\
             40 22 8:2 / /var/lib/kubelet rw - xfs /dev/sdb rw\n\
             41 22 8:3 / /var/lib rw - ext4 /dev/sdc rw\n\
             42 41 0:30 / /var/lib rw - tmpfs tmpfs rw\n",
        );
        let at = |path: &str| table.mount_of(Path::new(path)).map(|mount| (&*mount.point, mount.kind));
        assert_eq!(at("/etc/x"), Some(("/", "ext4")));
        assert_eq!(at("/run/daemonlet"), Some(("/run", "tmpfs")));
        assert_eq!(at("/runner"), Some(("/", "ext4")));
        assert_eq!(at("/etc/a b/c"), Some(("/etc/a b", "ext4")));
        assert_eq!(at("/var/lib/kubelet"), Some(("/var/lib", "tmpfs")), "the kubelet's own is hidden");
        assert_eq!(MountTable::default().mount_of(Path::new("/")), None);
        let circle = MountTable::parse("1 2 8:1 / / rw - ext4 a rw\n2 1 8:1 / / rw - ext4 a rw\n");
        assert_eq!(circle.mount_of(Path::new("/x")), None);
    }

    #[test]
    fn a_service_that_may_write_where_the_machine_may_differs_in_nothing() {
        assert_eq!(difference(SERVICE, MACHINE), None);
        assert_eq!(difference(MACHINE, MACHINE), None);
        assert_eq!(difference(SERVICE, ""), None, "not readable");
        // A file system that is mounted later comes into both, in the service below and above what it writes to.
        let tmpfs = "60 20 0:50 / /etc/kubernetes/manifests rw - tmpfs tmpfs rw\n";
        let below = "61 50 0:50 / /etc/kubernetes/manifests rw - tmpfs tmpfs rw\n";
        let above = "62 51 0:50 / /etc/kubernetes/manifests rw - tmpfs tmpfs rw\n";
        let service = SERVICE.replace("51 50", "51 61");
        assert_eq!(difference(&format!("{service}{below}{above}"), &format!("{MACHINE}{tmpfs}")), None);
        // A disk that the machine cannot write to either.
        let disk = "60 20 8:9 / /etc/kubernetes/manifests ro - ext4 /dev/sdb ro\n";
        assert_eq!(
            difference(&format!("{SERVICE}{}", disk.replace("60 20", "62 51")), &format!("{MACHINE}{disk}")),
            None
        );
    }

    #[test]
    fn a_folder_that_was_made_anew_can_be_written_to_by_the_machine_alone() {
        let bare = SERVICE.lines().next().unwrap();
        assert_eq!(difference(bare, MACHINE), Some(MountDifference::ReadOnly));
    }

    #[test]
    fn another_file_system_is_another_folder() {
        let tmpfs = "60 20 0:50 / /etc/kubernetes/manifests rw - tmpfs tmpfs rw\n";
        let found = difference(SERVICE, &format!("{MACHINE}{tmpfs}")).unwrap();
        let MountDifference::Another { here, there } = &found else { panic!("{found:?}") };
        assert_eq!(here.to_string(), "/etc/kubernetes/manifests of a file system ext4 (8:1)");
        assert_eq!(there.to_string(), "/ of a file system tmpfs (0:50)");
        let parent = "60 20 0:50 / /etc/kubernetes rw - tmpfs tmpfs rw\n";
        let found = difference(SERVICE, &format!("{MACHINE}{parent}"));
        assert_eq!(found, None, "the machine may have no such folder");
    }
}
