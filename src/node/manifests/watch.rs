//! Who else changes the folder: inotify, without the echo of our own writes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use notify::EventKind;
use notify::RecommendedWatcher;
use notify::RecursiveMode;
use notify::Watcher;
use notify::event::ModifyKind;
use notify::event::RenameMode;

use crate::node::fsx::Stamp;

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
        self.with(|names| names.remove(std::ffi::OsStr::new(name)));
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<OsString, Option<Stamp>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether what `path` is now is what we made of it.
    fn is_ours(&self, path: &Path, kind: &EventKind) -> bool {
        let appeared = match kind {
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => true,
            EventKind::Remove(_) => false,
            _ => return false,
        };
        let Some(name) = path.file_name() else { return false };
        let Some(expected) = self.with(|names| names.get(name).copied()) else { return false };
        match (expected, nix::sys::stat::lstat(path)) {
            (Some(stamp), Ok(now)) => appeared && stamp.is_same_content(&Stamp::from(&now)),
            // Also when it is told late that the name appeared, which we have taken away since.
            (None, Err(_)) => {
                if !appeared {
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
    watcher: RecommendedWatcher,
}

impl Watch {
    /// Calls `wake` for each change in `folder` that `expected` does not know.
    pub(super) fn start(
        folder: &Path,
        expected: Expected,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, notify::Error> {
        let path = folder.to_owned();
        let watcher = notify::recommended_watcher(move |event: Result<notify::Event, notify::Error>| {
            if is_foreign(event, &path, &expected) {
                wake();
            }
        });
        let mut watch = Self { watcher: watcher? };
        watch.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watch)
    }

    /// Watches the folder that now is at `folder`.
    pub(super) fn rearm(&mut self, folder: &Path) -> Result<(), notify::Error> {
        // The watch on a removed folder has ended by itself; one on a folder that was moved away has not.
        let _ = self.watcher.unwatch(folder);
        self.watcher.watch(folder, RecursiveMode::NonRecursive)
    }
}

fn is_foreign(event: Result<notify::Event, notify::Error>, folder: &Path, expected: &Expected) -> bool {
    match event {
        // Reading, ours or the kubelet's, changes nothing.
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
        Ok(event) => {
            event.paths.is_empty()
                || event.paths.iter().any(|path| {
                    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                    // The folder's own name may have a dot: what happens to the folder itself counts.
                    path == folder || !hidden && !expected.is_ours(path, &event.kind)
                })
        }
        // Lost events (a full queue): look.
        Err(_) => true,
    }
}
