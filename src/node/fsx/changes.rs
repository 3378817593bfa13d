//! Being told by the kernel that something in a folder changed.
//!
//! Owns which changes count: listing and reading are none, or every look would cause the next, and the kernel is not
//! even asked to tell of them. Must not know what the folders mean.

use std::io;
use std::path::Path;

use futures::FutureExt;
use futures::StreamExt;
use inotify::EventMask;
use inotify::EventOwned;
use inotify::EventStream;
use inotify::Inotify;
use inotify::WatchDescriptor;
use inotify::WatchMask;
use inotify::Watches;

/// What is told of a folder and of the files in it.
const CHANGES: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVE)
    .union(WatchMask::MODIFY)
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR);

/// Room for what the kernel tells at once; what does not fit is told next.
const BUFFER: usize = 4_096;

/// An inotify instance. What it watches ends with it, and with the last clone of its [`Folders`].
#[derive(Debug)]
pub struct Changes(EventStream<Vec<u8>>);

/// What an instance watches; clones share it.
#[derive(Clone, Debug)]
pub struct Folders(Watches);

impl Changes {
    /// An instance that watches nothing yet. Needs a running tokio runtime.
    ///
    /// # Errors
    ///
    /// Where the kernel grants no more instances (`EMFILE`).
    pub fn new() -> io::Result<Self> {
        Inotify::init()?.into_event_stream(vec![0; BUFFER]).map(Self)
    }

    /// What is watched.
    pub fn folders(&self) -> Folders {
        Folders(self.0.watches())
    }

    /// Waits for changes; gives all that the kernel tells by then. Safe to cancel: none is lost.
    ///
    /// # Errors
    ///
    /// None that is known to happen; the instance is of no use after one, and another is to be made.
    pub async fn next(&mut self) -> io::Result<Vec<EventOwned>> {
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut events = vec![self.0.next().await.ok_or_else(ended)??];
        while let Some(event) = self.0.next().now_or_never() {
            events.push(event.ok_or_else(ended)??);
        }
        Ok(events)
    }
}

impl Folders {
    /// Watches a folder from now on, until it is removed: it, not its path. One that is watched already keeps its
    /// descriptor.
    ///
    /// # Errors
    ///
    /// Where there is no such folder, or the kernel grants no more watches (`ENOSPC`).
    pub fn watch(&mut self, folder: &Path) -> io::Result<WatchDescriptor> {
        self.0.add(folder, CHANGES)
    }

    /// Ends a watch, if it has not ended by itself.
    pub fn unwatch(&mut self, watch: WatchDescriptor) {
        let _ = self.0.remove(watch);
    }
}

/// Whether a watch ended with this event: its folder is gone, or nobody asks any more.
pub fn is_end(event: &EventOwned) -> bool {
    event.mask.contains(EventMask::IGNORED)
}

/// Whether changes went untold before this event, the end of a watch among them: the kernel keeps so many and no more.
pub fn is_loss(event: &EventOwned) -> bool {
    event.mask.contains(EventMask::Q_OVERFLOW)
}

/// Whether a name appeared.
pub fn has_appeared(event: &EventOwned) -> bool {
    event.mask.intersects(EventMask::CREATE | EventMask::MOVED_TO)
}

/// Whether a name went.
pub fn has_gone(event: &EventOwned) -> bool {
    event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM)
}
