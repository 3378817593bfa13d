//! Changes of the folder by others: inotify, without the events of our own writes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::node::fsx::Shared;
use crate::node::fsx::Stamp;
use crate::node::fsx::changes::FolderChange;
use crate::node::fsx::changes::Watched;

/// Our last action on each name, to recognise its event.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(Arc<Mutex<BTreeMap<OsString, Option<Stamp>>>>);

impl Expected {
    /// The file with `stamp` is about to get this name.
    pub(super) fn will_appear(&self, name: &str, stamp: Stamp) {
        self.with(|names| names.insert(name.into(), Some(stamp)));
    }

    /// The name is about to be removed.
    pub(super) fn will_vanish(&self, name: &str) {
        self.with(|names| names.insert(name.into(), None));
    }

    /// The action on the name is cancelled.
    pub(super) fn forget(&self, name: &str) {
        self.with(|names| names.remove(OsStr::new(name)));
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<OsString, Option<Stamp>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the event is our own action and the name is as we left it. A late event may stand for several actions.
    fn is_ours(&self, disk: &Shared, change: FolderChange, path: &Path, name: &OsStr) -> bool {
        let Some(expected) = self.with(|names| names.get(name).copied()) else { return false };
        match (expected, disk.look_at_link(path)) {
            (Some(stamp), Ok(now)) => stamp.is_same_content(&now.stamp),
            (None, Err(_)) => {
                // If the event of the creation is late, that of the removal is still to come.
                if matches!(change, FolderChange::Gone(_)) {
                    self.with(|names| names.remove(name));
                }
                true
            }
            _ => false,
        }
    }
}

/// A watch on the folder; ends when dropped.
pub(super) struct ManifestsWatch {
    expected: Expected,
    wake: Arc<dyn Fn() + Send + Sync>,
    watched: Watched,
}

impl ManifestsWatch {
    /// Calls `wake` for each change in `folder` that `expected` does not contain.
    pub(super) fn start(
        disk: &Shared,
        folder: &Path,
        expected: Expected,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(wake);
        let watched = watch(disk, folder, &expected, &wake)?;
        Ok(Self { expected, wake, watched })
    }

    /// Whether it still reports changes.
    pub(super) fn is_alive(&self) -> bool {
        self.watched.is_alive()
    }

    /// Watches the folder that is at `folder` now.
    pub(super) fn rearm(&mut self, disk: &Shared, folder: &Path) -> io::Result<()> {
        self.watched = watch(disk, folder, &self.expected, &self.wake)?;
        Ok(())
    }
}

impl fmt::Debug for ManifestsWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watched.fmt(f)
    }
}

fn watch(disk: &Shared, folder: &Path, expected: &Expected, wake: &Arc<dyn Fn() + Send + Sync>) -> io::Result<Watched> {
    let (path, expected, wake) = (folder.to_owned(), expected.clone(), Arc::clone(wake));
    let disk_of_watch = Arc::clone(disk);
    let tell = move |change: FolderChange| {
        if is_foreign(&disk_of_watch, change, &path, &expected) {
            wake();
        }
    };
    disk.watch(folder, Box::new(tell))
}

fn is_foreign(disk: &Shared, change: FolderChange, folder: &Path, expected: &Expected) -> bool {
    match change {
        FolderChange::Appeared(name) | FolderChange::Gone(name) | FolderChange::Altered(name) if is_hidden(name) => {
            false
        }
        FolderChange::Appeared(name) | FolderChange::Gone(name) => {
            !expected.is_ours(disk, change, &folder.join(name), name)
        }
        FolderChange::Altered(_) | FolderChange::Folder => true,
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
