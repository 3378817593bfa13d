//! Waking up when a folder changes: with inotify where possible, else by polling.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::node::api::words;
use crate::node::fsx;
use crate::node::fsx::FileId;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;
use crate::node::fsx::changes::Watched;

/// How often folders that cannot be watched are polled, and others are looked for: inotify does not report that something
/// was mounted over one, or a link's new target.
const POLL: Duration = Duration::from_secs(5);

/// How often watched folders are read anyway: inotify does not report a renamed parent.
const SLOW_POLL: Duration = Duration::from_secs(60);

/// A watch on folders that may not exist yet.
pub struct FoldersWatch {
    folders: Vec<PathBuf>,
    disk: Shared,
    watched: BTreeMap<FileId, Watched>,
    news: Arc<Notify>,
    trouble: Option<String>,
}

impl FoldersWatch {
    /// Watches `folders`. If that fails, says why in [`FoldersWatch::trouble`] and polls every few seconds.
    pub fn new(disk: Shared, folders: &[PathBuf]) -> Self {
        let (folders, watched, news) = (folders.to_vec(), BTreeMap::new(), Arc::default());
        let mut watch = Self { folders, disk, watched, news, trouble: None };
        watch.arm();
        watch
    }

    /// Why the folders are polled, if they are.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Waits until a folder may have changed. Cancel-safe: no change is lost.
    pub async fn changed(&mut self) {
        for _ in 0..SLOW_POLL.as_secs() / POLL.as_secs() {
            let is_told = tokio::time::timeout(POLL, self.news.notified()).await.is_ok();
            if self.arm() | is_told || self.trouble.is_some() {
                return;
            }
        }
    }

    /// Watches each folder and its nearest existing parent, to notice its creation, removal and replacement. Gives whether
    /// others are there than before.
    fn arm(&mut self) -> bool {
        let mut wanted: BTreeMap<FileId, &Path> = BTreeMap::new();
        for folder in &self.folders {
            let found = |path| Some((folder_id(&self.disk, path)?, path));
            wanted.extend(found(folder.as_path()));
            wanted.extend(folder.ancestors().skip(1).find_map(found));
        }
        let before = self.watched.len();
        self.watched.retain(|place, watched| wanted.contains_key(place) && watched.is_alive());
        let mut is_another = self.watched.len() != before;
        self.trouble = None;
        for (place, path) in wanted {
            if self.watched.contains_key(&place) {
                continue;
            }
            let news = Arc::clone(&self.news);
            match self.disk.watch(path, Box::new(move |_| news.notify_one())) {
                Ok(watched) => {
                    self.watched.insert(place, watched);
                    is_another = true;
                    // Something may have changed between reading the folder and watching it.
                    self.news.notify_one();
                }
                Err(error) => self.trouble = Some(explain(&error)),
            }
        }
        is_another
    }
}

/// The folder that is at `path` now; `None` if there is none.
fn folder_id(disk: &Shared, path: &Path) -> Option<FileId> {
    let stat = disk.look(path).ok().filter(|stat| stat.kind == FileKind::Folder)?;
    Some(stat.stamp.file_id())
}

fn explain(error: &io::Error) -> String {
    let hint = fsx::watch_hint(error).map_or_else(String::new, |hint| format!(" ({hint})"));
    format!("the folders cannot be watched and are polled every {} seconds: {}{hint}", POLL.as_secs(), words(error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::node::fsx::Real;

    #[tokio::test]
    async fn where_changes_were_lost_everything_is_watched_anew() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("daemonsets.d");
        fs::create_dir(&folder).unwrap();
        let disk = Arc::new(Real::default());
        let mut watch = FoldersWatch::new(disk.clone(), std::slice::from_ref(&folder));
        watch.changed().await;
        let before = watch.watched.len();
        disk.lose();
        assert!(watch.watched.values().all(|watched| !watched.is_alive()));
        watch.changed().await;
        assert_eq!(watch.watched.len(), before);
        assert!(watch.watched.values().all(|watched| watched.is_alive()));
        let soon = Duration::from_millis(200);
        while tokio::time::timeout(soon, watch.changed()).await.is_ok() {}
        fs::write(folder.join("x"), "").unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(3), watch.changed()).await.is_ok(), "a change is reported");
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_whose_place_another_one_took_is_found_soon() {
        let root = tempfile::tempdir().unwrap();
        let (link, next) = (root.path().join("link"), root.path().join("next"));
        for target in ["a", "b"] {
            fs::create_dir_all(root.path().join(target).join("d")).unwrap();
        }
        std::os::unix::fs::symlink("a", &link).unwrap();
        let mut watch = FoldersWatch::new(Arc::new(Real::default()), &[link.join("d")]);
        while tokio::time::timeout(POLL / 2, watch.changed()).await.is_ok() {}
        std::os::unix::fs::symlink("b", &next).unwrap();
        fs::rename(&next, &link).unwrap();
        assert!(tokio::time::timeout(2 * POLL, watch.changed()).await.is_ok(), "as when something is mounted over it");
    }
}
