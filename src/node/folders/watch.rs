//! Waking up when a folder changes: inotify where there is one, else a look every few seconds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use notify::EventKind;
use notify::RecommendedWatcher;
use notify::RecursiveMode;
use notify::Watcher;
use notify::event::AccessKind;
use notify::event::AccessMode;
use tokio::sync::mpsc;

/// How often folders are looked at when they cannot be watched.
const POLL: Duration = Duration::from_secs(5);

/// How often they are looked at all the same: a link's target and a renamed parent are not seen by inotify.
const SLOW_POLL: Duration = Duration::from_secs(60);

/// A watch over folders that may not exist yet.
pub struct Watch {
    folders: Vec<PathBuf>,
    events: mpsc::Receiver<()>,
    /// Wakes when a folder appears while it is being looked for; keeps the channel open without a watcher.
    waker: mpsc::Sender<()>,
    watcher: Option<RecommendedWatcher>,
    /// What is watched, with device and inode: a folder that was made anew must be watched anew.
    watched: Vec<(PathBuf, (u64, u64))>,
    trouble: Option<String>,
}

impl Watch {
    /// Watches `folders`; where that is not possible, says why in [`Watch::trouble`] and looks every few seconds.
    pub fn new(folders: &[PathBuf]) -> Self {
        let (sender, events) = mpsc::channel(1);
        let for_events = sender.clone();
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                // A wake-up that waits already is as good as two.
                let _ = for_events.try_send(());
            }
        });
        let (watcher, trouble) = match made {
            Ok(watcher) => (Some(watcher), None),
            Err(error) => (None, Some(explain(&error))),
        };
        let mut watch =
            Self { folders: folders.to_vec(), events, waker: sender, watcher, watched: Vec::new(), trouble };
        watch.arm();
        watch
    }

    /// Why the folders are polled, if they are.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Waits until a folder may have changed. Safe to cancel: a change is never lost.
    pub async fn changed(&mut self) {
        let patience = if self.trouble.is_some() { POLL } else { SLOW_POLL };
        // The sender is ours, so the channel never ends.
        let _ = tokio::time::timeout(patience, self.events.recv()).await;
        self.arm();
    }

    /// Watches each folder and the nearest parent that exists, so that its making, removal and exchange are seen.
    fn arm(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut wanted: Vec<(PathBuf, (u64, u64))> = Vec::new();
        for folder in &self.folders {
            let parents = folder.ancestors().skip(1);
            let places = std::iter::once(folder.as_path()).filter_map(place);
            for place in places.chain(parents.filter_map(place).take(1)) {
                if !wanted.contains(&place) {
                    wanted.push(place);
                }
            }
        }
        let mut trouble = None;
        for (path, _) in self.watched.iter().filter(|watched| !wanted.contains(watched)) {
            // It may be gone already, and its watch with it.
            let _ = watcher.unwatch(path);
        }
        let mut armed = Vec::new();
        for place in wanted {
            if self.watched.contains(&place) {
                armed.push(place);
                continue;
            }
            match watcher.watch(&place.0, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    armed.push(place);
                    // What was made between the look and the watch would go unseen.
                    let _ = self.waker.try_send(());
                }
                Err(error) => trouble = Some(explain(&error)),
            }
        }
        self.watched = armed;
        self.trouble = trouble;
    }
}

fn place(path: &Path) -> Option<(PathBuf, (u64, u64))> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
    Some((path.to_owned(), (metadata.dev(), metadata.ino())))
}

/// Reading a file is no change, or every look would cause the next.
fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}

fn explain(error: &notify::Error) -> String {
    let limit = match &error.kind {
        notify::ErrorKind::MaxFilesWatch => true,
        notify::ErrorKind::Io(error) => {
            [Errno::EMFILE, Errno::ENOSPC].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
        }
        _ => false,
    };
    let hint = if limit { " (raise fs.inotify.max_user_instances and max_user_watches)" } else { "" };
    format!("the folders cannot be watched and are looked at every {} seconds: {error}{hint}", POLL.as_secs())
}
