//! Waking up when a folder changes: inotify where there is one, else a look every few seconds.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

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
            let ended = tokio::time::timeout(patience, self.ended()).await.unwrap_or_default();
            self.watched.retain(|_, watch| !ended.contains(watch));
        }
        self.is_news = false;
        self.arm();
    }

    /// Waits for changes; gives the watches that ended with what they watched.
    async fn ended(&mut self) -> Vec<WatchDescriptor> {
        let told = match &mut self.changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        };
        match told {
            Ok(events) => events.into_iter().filter(changes::is_end).map(|event| event.wd).collect(),
            // The slow look goes on.
            Err(_) => std::future::pending().await,
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
