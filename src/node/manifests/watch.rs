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
pub(super) struct Expected(Arc<Mutex<BTreeMap<OsString, Ours>>>);

/// What our actions make of a name: the file with this stamp, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ours {
    now: Option<Stamp>,
    /// While an action is under way: what the one before it made of the name.
    before: Option<Option<Stamp>>,
}

impl Ours {
    fn is(&self, there: Option<Stamp>) -> bool {
        let is = |ours: Option<Stamp>| match (ours, there) {
            (Some(ours), Some(there)) => ours.is_same_content(&there),
            (ours, there) => ours.is_none() && there.is_none(),
        };
        is(self.now) || self.before.is_some_and(is)
    }
}

impl Expected {
    /// Does `action`, after which `name` is the file with the stamp `now`, or no file.
    pub(super) fn during<T, E>(
        &self,
        name: &str,
        now: Option<Stamp>,
        action: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.with(|names| {
            let before = names.get(OsStr::new(name)).map(|ours| ours.now);
            names.insert(name.into(), Ours { now, before })
        });
        let done = action();
        self.with(|names| match (&done, names.get_mut(OsStr::new(name))) {
            (Ok(_), Some(ours)) => ours.before = None,
            (Ok(_), None) => {}
            (Err(_), _) => drop(names.remove(OsStr::new(name))),
        });
        done
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<OsString, Ours>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the event is our own action and the name is as we left it. A late event may stand for several actions,
    /// and the next one may be done while this looks.
    fn is_ours(&self, change: FolderChange, name: &OsStr, look: impl Fn() -> Option<Stamp>) -> bool {
        loop {
            let Some(ours) = self.with(|names| names.get(name).copied()) else { return false };
            let there = look();
            let is_unchanged = self.with(|names| {
                let is_unchanged = names.get(name) == Some(&ours);
                // If the event of the creation is late, that of the removal is still to come.
                if is_unchanged && ours == GONE && there.is_none() && matches!(change, FolderChange::Gone(_)) {
                    names.remove(name);
                }
                is_unchanged
            });
            if ours.is(there) {
                return true;
            }
            if is_unchanged {
                return false;
            }
        }
    }
}

/// A name that we have removed.
const GONE: Ours = Ours { now: None, before: None };

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
            !expected.is_ours(change, name, || Some(disk.look_at_link(&folder.join(name)).ok()?.stamp))
        }
        FolderChange::Altered(_) | FolderChange::Folder => true,
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event of a creation comes while the removal is announced, done, and after that.
    #[test]
    fn an_action_that_is_done_while_the_event_of_another_is_looked_at_is_no_change_of_others() {
        let (expected, name) = (Expected::default(), OsStr::new("a"));
        let stamp = |size: i64| -> Stamp {
            let stamp = serde_json::json!({ "dev": 1, "ino": 1, "size": size, "mtime": [0, 0], "ctime": [0, 0] });
            serde_json::from_value(stamp).unwrap()
        };
        let is_ours = |there: Option<Stamp>| expected.is_ours(FolderChange::Appeared(name), name, || there);
        let act = |now, during: &dyn Fn()| {
            let action = || {
                during();
                Ok::<_, io::Error>(())
            };
            expected.during("a", now, action).unwrap();
        };
        assert!(!is_ours(None), "no action of ours");
        act(Some(stamp(1)), &|| {});
        assert!(is_ours(Some(stamp(1))) && !is_ours(Some(stamp(2))) && !is_ours(None));
        act(None, &|| assert!(is_ours(Some(stamp(1))) && is_ours(None) && !is_ours(Some(stamp(2)))));
        assert!(is_ours(None) && !is_ours(Some(stamp(1))));
        act(Some(stamp(1)), &|| {});
        let removed = || {
            act(None, &|| {});
            None
        };
        assert!(expected.is_ours(FolderChange::Appeared(name), name, removed), "removed before it looks");
        assert!(expected.is_ours(FolderChange::Gone(name), name, || None));
        assert!(!expected.is_ours(FolderChange::Gone(name), name, || None), "its event came");
        let failed = expected.during("a", None, || Err::<(), _>(io::Error::other("read-only")));
        assert!(failed.is_err() && !is_ours(None));
    }
}
