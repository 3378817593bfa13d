//! Answers of tasks on their way to the loop.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::Notify;

/// What tasks have sent and no pass has taken yet; clones share it.
#[derive(Debug)]
pub(super) struct Inbox<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// Puts an answer in, and wakes the loop.
    pub(super) fn put(&self, answer: T, wake: &Notify) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        wake.notify_one();
    }

    /// Everything so far.
    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
