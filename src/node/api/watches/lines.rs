//! The events of a watch, one a line; large ones are read in turns.
//!
//! Owns how much of all watches is in memory at once: when many large ConfigMaps come or change together, each would be
//! there as a line and as an object. Must not interpret the events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufRead;
use futures::AsyncBufReadExt;
use kube::api::WatchEvent;
use kube::core::Status;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::node::api::object::RawObject;

/// A longer line is read in turn. A shorter one does not wait.
const LARGE: usize = 128 * 1024;
/// So many large lines are read at once: as many as one pass may well have the changes of.
const AT_ONCE: usize = 16;
/// A turn ends after this time, whatever was read: an API server that stops in the middle of a line delays other lines no
/// longer. The reading of the line goes on.
const TURN: Duration = Duration::from_secs(5);

/// Gives turns; clones share it. Whoever waits first is first.
#[derive(Clone)]
pub(in crate::node::api) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(in crate::node::api) fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }

    /// The next turn.
    pub(super) async fn wait(&self) -> Option<WatchTurn> {
        Arc::clone(&self.0).acquire_owned().await.ok().map(WatchTurn::new)
    }

    fn take(&self) -> Option<WatchTurn> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(WatchTurn::new)
    }
}

/// A turn; it ends when it is dropped, or after [`TURN`].
pub(super) struct WatchTurn {
    _held: oneshot::Sender<()>,
}

impl WatchTurn {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        let (held, dropped) = oneshot::channel();
        tokio::spawn(async move {
            let _ = timeout(TURN, dropped).await;
            drop(permit);
        });
        Self { _held: held }
    }
}

/// What comes next of a watch.
pub(super) enum NextLine {
    Event(WatchEvent<RawObject>),
    /// The rest can still be read.
    Failed(kube::Error),
    /// The watch has ended, perhaps in the middle of a line.
    End,
    /// It is another line's turn. The watch is to be given up, because its received data blocks that of others, and
    /// to be begun again with a turn.
    OutOfTurn,
}

/// The lines of one watch. Between two of them no buffer is held.
pub(super) struct Lines {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    turns: Turns,
    turn: Option<WatchTurn>,
}

impl Lines {
    /// Of a watch that was begun with `turn`, which is for its first line.
    pub(super) fn new(body: impl AsyncBufRead + Send + 'static, turns: Turns, turn: Option<WatchTurn>) -> Self {
        Self { body: Box::pin(body), turns, turn }
    }

    pub(super) async fn next(&mut self) -> NextLine {
        loop {
            let mut line = Vec::new();
            while line.last() != Some(&b'\n') {
                let read = match self.body.fill_buf().await {
                    Ok([]) => break,
                    Ok(read) => read,
                    Err(error) => return NextLine::Failed(kube::Error::ReadEvents(error)),
                };
                let used = read.iter().position(|byte| *byte == b'\n').map_or(read.len(), |at| at + 1);
                line.extend_from_slice(&read[..used]);
                self.body.as_mut().consume(used);
                if line.len() > LARGE && self.turn.is_none() {
                    self.turn = self.turns.take();
                    if self.turn.is_none() {
                        return NextLine::OutOfTurn;
                    }
                }
            }
            if line.is_empty() {
                return NextLine::End;
            }
            let event = serde_json::from_slice(&line);
            self.turn = None;
            match event {
                Ok(event) => return NextLine::Event(event),
                Err(error) if error.is_eof() => {}
                Err(error) => {
                    let status = serde_json::from_slice::<Status>(&line).map(Status::boxed);
                    return NextLine::Failed(status.map_or(kube::Error::SerdeError(error), kube::Error::Api));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
