//! DaemonSets that the watch shows as outlines and that are to be read whole after all: by a GET each.
//!
//! Owns the GETs that are under way. A file of the same name, or a record, makes a DaemonSet one that matters here.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::core::model::ObjectKey;
use crate::node::api::backoff::Backoff;
use crate::node::api::confirm::GetResult;
use crate::node::api::confirm::get_daemon_set;

use super::WatchContext;
use super::Watches;

impl Watches {
    /// Reads these DaemonSets whole now; the watch does so from now on.
    pub(in crate::node::api) fn read_daemon_sets(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.reads.retain(|_, task: &mut AbortHandle| !task.is_finished());
        for key in keys {
            if !self.reads.contains_key(key) {
                let task = tokio::spawn(read(Arc::clone(&self.context), key.clone()));
                self.reads.insert(key.clone(), task.abort_handle());
            }
        }
    }
}

async fn read(context: Arc<WatchContext>, key: ObjectKey) {
    context.store.select(&key);
    let mut backoff = Backoff::request();
    while context.store.snapshot().is_unread(&key) {
        match get_daemon_set(&context.client, &key).await {
            GetResult::Object(value) if context.store.read(&value) => return,
            // The watch has to show it: otherwise one server's answer would count for all.
            GetResult::NotFound | GetResult::Object(_) | GetResult::Error(_) => {}
        }
        tokio::time::sleep(backoff.next()).await;
    }
}
