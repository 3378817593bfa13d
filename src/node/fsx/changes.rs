//! Kernel notifications of changes in folders.
//!
//! Owns which changes are reported: not listing and reading, or every check would cause the next; the kernel is not
//! even asked for them. Must not know what the folders mean.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use notify::Config;
use notify::ErrorKind;
use notify::Event;
use notify::EventKind;
use notify::EventKindMask;
use notify::INotifyWatcher;
use notify::RecursiveMode;
use notify::Watcher;
use notify::event::ModifyKind;
use notify::event::RenameMode;

use super::FileId;

/// What is reported of a folder and of the files in it.
const CHANGES: EventKindMask = EventKindMask::CORE.union(EventKindMask::ACCESS_CLOSE);

/// A change in a watched folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderChange<'a> {
    /// Something has this name now: it was made, or moved in.
    Appeared(&'a OsStr),
    /// Nothing has this name now: it was removed, or moved away.
    Gone(&'a OsStr),
    /// The content or the attributes of the file of this name changed.
    Altered(&'a OsStr),
    /// The folder itself changed, or changes were lost and the watch has ended.
    Folder,
}

/// The callback for a change.
pub type Tell = Box<dyn Fn(FolderChange) + Send + Sync>;

/// A watched folder; the watch ends when this is dropped.
pub type Watched = Box<dyn Watching>;

pub trait Watching: fmt::Debug + Send + Sync {
    /// Whether changes are still reported.
    fn is_alive(&self) -> bool;
}

/// One watcher for all folders. It starts with the first folder.
#[derive(Debug, Default)]
pub(super) struct FolderWatcher(Arc<SharedWatcher>);

#[derive(Default)]
struct SharedWatcher {
    watcher: Mutex<Option<INotifyWatcher>>,
    listeners: Arc<Listeners>,
}

/// The listeners. The watcher's own thread takes this lock, and a call to the watcher waits for that thread, so the
/// lock is never held during such a call.
#[derive(Default)]
struct Listeners(Mutex<Vec<Listener>>);

struct Listener {
    id: u64,
    folder: FileId,
    /// The path under which the watcher knows the folder.
    path: PathBuf,
    tell: Tell,
}

#[derive(Debug)]
struct FolderWatch {
    id: u64,
    path: PathBuf,
    shared: Arc<SharedWatcher>,
}

impl FolderWatcher {
    /// As [`super::Disk::watch`]. `tell` is called on the watcher's thread.
    pub(super) fn watch(&self, folder: &Path, tell: Tell) -> io::Result<Watched> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = folder_id(folder)?;
        let mut watcher = lock(&self.0.watcher);
        let watcher = match &mut *watcher {
            Some(watcher) => watcher,
            none => none.insert(start(Arc::clone(&self.0.listeners))?),
        };
        let known = self.0.listeners.path_of(at);
        let is_known = known.is_some();
        let path = known.unwrap_or_else(|| folder.to_owned());
        if !is_known {
            // For the watcher a path is a folder: it would keep watching the previous folder.
            self.0.listeners.end(|listener| listener.path == path);
            let _ = watcher.unwatch(&path);
        }
        // It listens before the watch starts, so no change is missed.
        lock(&self.0.listeners.0).push(Listener { id, folder: at, path: path.clone(), tell });
        if !is_known && let Err(error) = watcher.watch(&path, RecursiveMode::NonRecursive) {
            lock(&self.0.listeners.0).retain(|listener| listener.id != id);
            return Err(cause(error));
        }
        Ok(Box::new(FolderWatch { id, path, shared: Arc::clone(&self.0) }))
    }

    /// Called when the kernel has dropped notifications.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.0.listeners.report(Ok(Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan)));
    }
}

/// The folder that is at `path` now.
fn folder_id(path: &Path) -> io::Result<FileId> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A watcher whose thread runs.
fn start(listeners: Arc<Listeners>) -> io::Result<INotifyWatcher> {
    let config = Config::default().with_event_kinds(CHANGES);
    let watcher = INotifyWatcher::new(move |event| listeners.report(event), config).map_err(cause)?;
    // A failure to start the thread shows only with the first call; then dropping the watcher would panic.
    match watcher.watched_paths() {
        Ok(_) => Ok(watcher),
        Err(error) => {
            std::mem::forget(watcher);
            Err(cause(error))
        }
    }
}

fn cause(error: notify::Error) -> io::Error {
    match error.kind {
        ErrorKind::Io(error) => error,
        ErrorKind::MaxFilesWatch => Errno::ENOSPC.into(),
        ErrorKind::PathNotFound => Errno::ENOENT.into(),
        _ => io::Error::other(error),
    }
}

impl Listeners {
    /// Calls all listeners that `event` concerns; a listener whose folder is gone or moved is removed.
    fn report(&self, event: notify::Result<Event>) {
        let Some(event) = event.ok().filter(|event| !event.need_rescan()) else {
            // Anything may have changed unnoticed, and watches may have ended.
            return self.end(|_| true);
        };
        // A move within one folder is reported as one name gone and another appeared; a third event has both paths.
        let [path] = &event.paths[..] else { return };
        let is_gone =
            matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)));
        let has_appeared =
            matches!(event.kind, EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)));
        lock(&self.0).retain(|listener| {
            if *path == listener.path {
                (listener.tell)(FolderChange::Folder);
                return !is_gone;
            }
            if let Some(name) = path.file_name().filter(|_| path.parent() == Some(&listener.path)) {
                (listener.tell)(match (has_appeared, is_gone) {
                    (true, _) => FolderChange::Appeared(name),
                    (_, true) => FolderChange::Gone(name),
                    _ => FolderChange::Altered(name),
                });
            }
            true
        });
    }

    /// Ends the watches in `ends` and notifies their listeners.
    fn end(&self, ends: impl Fn(&Listener) -> bool) {
        // Notified after removal: a notified listener watches again.
        let ended: Vec<Listener> = lock(&self.0).extract_if(.., |listener| ends(listener)).collect();
        ended.iter().for_each(|listener| (listener.tell)(FolderChange::Folder));
    }

    fn path_of(&self, folder: FileId) -> Option<PathBuf> {
        lock(&self.0).iter().find(|listener| listener.folder == folder).map(|listener| listener.path.clone())
    }
}

impl Watching for FolderWatch {
    fn is_alive(&self) -> bool {
        lock(&self.shared.listeners.0).iter().any(|listener| listener.id == self.id)
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        let mut watcher = lock(&self.shared.watcher);
        let is_shared = {
            let mut listeners = lock(&self.shared.listeners.0);
            listeners.retain(|listener| listener.id != self.id);
            listeners.iter().any(|listener| listener.path == self.path)
        };
        if let Some(watcher) = watcher.as_mut().filter(|_| !is_shared) {
            // It may have ended by itself.
            let _ = watcher.unwatch(&self.path);
        }
    }
}

impl fmt::Debug for SharedWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<PathBuf> = lock(&self.listeners.0).iter().map(|listener| listener.path.clone()).collect();
        f.debug_tuple("Shared").field(&paths).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use super::*;

    fn watch(changes: &FolderWatcher, folder: &Path) -> (Watched, Receiver<String>) {
        let (sender, receiver) = mpsc::channel();
        (changes.watch(folder, Box::new(move |change| drop(sender.send(format!("{change:?}"))))).unwrap(), receiver)
    }

    fn has_come(changes: &Receiver<String>, what: &str) -> bool {
        let next = || changes.recv_timeout(Duration::from_secs(3)).ok();
        std::iter::from_fn(next).any(|change| change == what)
    }

    #[test]
    fn one_folder_under_two_paths_is_reported_to_both_until_each_ends() {
        let root = tempfile::tempdir().unwrap();
        let (folder, link) = (root.path().join("a"), root.path().join("b"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let changes = FolderWatcher::default();
        let (one, of_one) = watch(&changes, &folder);
        let (two, of_two) = watch(&changes, &link);
        fs::write(folder.join("x"), "").unwrap();
        assert!(has_come(&of_one, "Appeared(\"x\")") && has_come(&of_two, "Appeared(\"x\")"));
        drop(one);
        fs::remove_file(folder.join("x")).unwrap();
        assert!(has_come(&of_two, "Gone(\"x\")"));
        assert!(of_one.iter().all(|change| !change.starts_with("Gone")));
        fs::rename(&folder, root.path().join("c")).unwrap();
        assert!(has_come(&of_two, "Folder"));
        assert!(!two.is_alive());
    }

    #[test]
    fn another_folder_at_the_same_path_is_watched_though_the_first_is_held_open() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a");
        fs::create_dir(&folder).unwrap();
        let changes = FolderWatcher::default();
        let (first, _of_first) = watch(&changes, &folder);
        let held = fs::File::open(&folder).unwrap();
        fs::remove_dir(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        let (second, of_second) = watch(&changes, &folder);
        assert!(!first.is_alive());
        drop((first, held));
        fs::write(folder.join("x"), "").unwrap();
        assert!(has_come(&of_second, "Appeared(\"x\")"));
        assert!(second.is_alive());
    }

    #[test]
    fn what_cannot_be_watched_says_why() {
        let error = FolderWatcher::default().watch(Path::new("/nowhere/at/all"), Box::new(|_| {})).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
