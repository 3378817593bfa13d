//! Waking up when a folder changes: inotify where there is one, else a look every few seconds.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use inotify::EventOwned;
use inotify::WatchDescriptor;
use nix::errno::Errno;

use crate::node::fsx::changes;
use crate::node::fsx::changes::Changes;

/// How often folders are looked at when they cannot be watched.
const POLL: Duration = Duration::from_secs(5);

/// How often they are looked at all the same: a link's target and a renamed parent are not seen by inotify.
const SLOW_POLL: Duration = Duration::from_secs(60);

/// A folder as inotify knows it: device and inode, whatever its path. One that was made anew is another one.
type Place = (u64, u64);

/// A watch over folders that may not exist yet.
pub struct Watch {
    folders: Vec<PathBuf>,
    changes: Option<Changes>,
    watched: BTreeMap<Place, WatchDescriptor>,
    /// Something may have changed between the look at a folder and its watch.
    is_news: bool,
    trouble: Option<String>,
}

impl Watch {
    /// Watches `folders`; where that is not possible, says why in [`Watch::trouble`] and looks every few seconds.
    /// Needs a running tokio runtime.
    pub fn new(folders: &[PathBuf]) -> Self {
        let (changes, trouble) = match Changes::new() {
            Ok(changes) => (Some(changes), None),
            Err(error) => (None, Some(explain(&error))),
        };
        let (folders, watched) = (folders.to_vec(), BTreeMap::new());
        let mut watch = Self { folders, changes, watched, is_news: false, trouble };
        watch.arm();
        watch
    }

    /// Why the folders are polled, if they are.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Waits until a folder may have changed. Safe to cancel: a change is never lost.
    pub async fn changed(&mut self) {
        if !self.is_news {
            let patience = if self.trouble.is_some() { POLL } else { SLOW_POLL };
            let told = async {
                match &mut self.changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            match tokio::time::timeout(patience, told).await {
                Ok(Ok(events)) => self.follow(&events),
                Ok(Err(error)) => (self.changes, self.trouble) = (None, Some(explain(&error))),
                Err(_) => {}
            }
        }
        self.is_news = false;
        self.arm();
    }

    /// Forgets the watches that ended with what they watched; where that may have gone untold, ends them all.
    fn follow(&mut self, events: &[EventOwned]) {
        let is_lost = events.iter().any(changes::is_loss);
        if let Some(mut watches) = self.changes.as_ref().map(Changes::folders).filter(|_| is_lost) {
            std::mem::take(&mut self.watched).into_values().for_each(|watch| watches.unwatch(watch));
        }
        for event in events.iter().filter(|event| changes::is_end(event)) {
            self.watched.retain(|_, watch| *watch != event.wd);
        }
    }

    /// Watches each folder and the nearest parent that exists, so that its making, removal and exchange are seen.
    fn arm(&mut self) {
        let Some(mut watches) = self.changes.as_ref().map(Changes::folders) else { return };
        let mut wanted: BTreeMap<Place, &Path> = BTreeMap::new();
        for folder in &self.folders {
            let parents = folder.ancestors().skip(1);
            let places = std::iter::once(folder.as_path()).filter_map(place);
            wanted.extend(places.chain(parents.filter_map(place).take(1)));
        }
        self.watched.retain(|place, watch| {
            let keep = wanted.contains_key(place);
            if !keep {
                watches.unwatch(watch.clone());
            }
            keep
        });
        self.trouble = None;
        for (place, path) in wanted {
            if self.watched.contains_key(&place) {
                continue;
            }
            match watches.watch(path) {
                Ok(watch) => {
                    self.watched.insert(place, watch);
                    self.is_news = true;
                }
                Err(error) => self.trouble = Some(explain(&error)),
            }
        }
    }
}

fn place(path: &Path) -> Option<(Place, &Path)> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
    Some(((metadata.dev(), metadata.ino()), path))
}

fn explain(error: &io::Error) -> String {
    let limit = [Errno::EMFILE, Errno::ENOSPC].iter().any(|errno| error.raw_os_error() == Some(*errno as i32));
    let hint = if limit { " (raise fs.inotify.max_user_instances and max_user_watches)" } else { "" };
    format!("the folders cannot be watched and are looked at every {} seconds: {error}{hint}", POLL.as_secs())
}

#[cfg(test)]
mod tests {
    use inotify::EventMask;

    use super::*;

    #[tokio::test]
    async fn where_changes_went_untold_everything_is_watched_anew() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("daemonsets.d");
        fs::create_dir(&folder).unwrap();
        let mut watch = Watch::new(std::slice::from_ref(&folder));
        watch.changed().await;
        let before: Vec<WatchDescriptor> = watch.watched.values().cloned().collect();
        let lost = EventOwned { wd: before[0].clone(), mask: EventMask::Q_OVERFLOW, cookie: 0, name: None };
        watch.follow(&[lost]);
        assert!(watch.watched.is_empty());
        watch.changed().await;
        assert_eq!(watch.watched.len(), before.len());
        assert!(watch.watched.values().all(|watch| !before.contains(watch)), "{before:?}");
        let soon = Duration::from_millis(200);
        while tokio::time::timeout(soon, watch.changed()).await.is_ok() {}
        fs::write(folder.join("x"), "").unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(3), watch.changed()).await.is_ok(), "what changes is told");
    }
}
