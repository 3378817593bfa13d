//! Who else changes the folder: inotify, without the echo of our own writes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use inotify::EventOwned;
use inotify::WatchDescriptor;
use tokio::task::AbortHandle;

use crate::node::fsx::Stamp;
use crate::node::fsx::changes;
use crate::node::fsx::changes::Changes;
use crate::node::fsx::changes::Folders;

/// What we did last to each name, so that its event can be told from another's.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(Arc<Mutex<BTreeMap<OsString, Option<Stamp>>>>);

impl Expected {
    /// The file with `stamp` is about to get this name.
    pub(super) fn will_appear(&self, name: &str, stamp: Stamp) {
        self.with(|names| names.insert(name.into(), Some(stamp)));
    }

    /// The name is about to go.
    pub(super) fn will_vanish(&self, name: &str) {
        self.with(|names| names.insert(name.into(), None));
    }

    /// Nothing is about to happen to the name after all.
    pub(super) fn forget(&self, name: &str) {
        self.with(|names| names.remove(OsStr::new(name)));
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<OsString, Option<Stamp>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a name came or went, and is now what we made of it. Told late, it may have done so several times.
    fn is_ours(&self, event: &EventOwned, path: &Path, name: &OsStr) -> bool {
        if !changes::has_appeared(event) && !changes::has_gone(event) {
            return false;
        }
        let Some(expected) = self.with(|names| names.get(name).copied()) else { return false };
        match (expected, nix::sys::stat::lstat(path)) {
            (Some(stamp), Ok(now)) => stamp.is_same_content(&Stamp::from(&now)),
            (None, Err(_)) => {
                // Where it is told late that the name appeared, it is yet to be told that it went.
                if changes::has_gone(event) {
                    self.with(|names| names.remove(name));
                }
                true
            }
            _ => false,
        }
    }
}

/// A watch on the folder; ends when dropped.
#[derive(Debug)]
pub(super) struct Watch {
    folders: Folders,
    watched: WatchDescriptor,
    task: AbortHandle,
}

impl Watch {
    /// Calls `wake` for each change in `folder` that `expected` does not know. Needs a running tokio runtime.
    pub(super) fn start(
        folder: &Path,
        expected: Expected,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut changes = Changes::new()?;
        let mut folders = changes.folders();
        let watched = folders.watch(folder)?;
        let folder = folder.to_owned();
        let task = tokio::spawn(async move {
            while let Ok(events) = changes.next().await {
                if events.iter().any(|event| is_foreign(event, &folder, &expected)) {
                    wake();
                }
            }
            // Who owns the watch finds that it has ended.
            wake();
        });
        Ok(Self { folders, watched, task: task.abort_handle() })
    }

    /// Whether it still tells of changes.
    pub(super) fn is_alive(&self) -> bool {
        !self.task.is_finished()
    }

    /// Watches the folder that now is at `folder`.
    pub(super) fn rearm(&mut self, folder: &Path) -> io::Result<()> {
        // The watch on a removed folder has ended by itself; one on a folder that was moved away has not.
        self.folders.unwatch(self.watched.clone());
        self.watched = self.folders.watch(folder)?;
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_foreign(event: &EventOwned, folder: &Path, expected: &Expected) -> bool {
    match &event.name {
        Some(name) if name.as_encoded_bytes().starts_with(b".") => false,
        Some(name) => !expected.is_ours(event, &folder.join(name), name),
        // The folder itself; or events were lost (a full queue).
        None => !changes::is_end(event),
    }
}
