//! Detects that etcd was restored from a backup: resource versions fall.
//!
//! Owns the check. A watch resumed at a resource version of the future is accepted, and stays silent until that
//! version is reached (cacheWatcher.process): it never reports what was restored, nor what happens until then. So
//! whenever watches were cut off, one object of each kind is listed to get the present resource version. If it is
//! below that of a watch, everything is listed again over a new connection. Resource versions are compared only within
//! one resource: each may have its own etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::watch;

use crate::node::api::backoff::random;
use crate::node::api::connector::Connector;
use crate::node::api::object::RawObject;
use crate::node::api::store::Store;

/// Watches that were cut off together are resumed within this time: one check for all of a kind. It also spreads the
/// checks of all agents of a cluster.
const GATHER: Duration = Duration::from_secs(2);

/// Shared by a watch's task and its requests.
#[derive(Debug, Default)]
pub(in crate::node::api) struct WatchProgress {
    /// The server has accepted the watch.
    pub(in crate::node::api) opened: Notify,
    /// The resource version at which the watch was last resumed; 0 before the first time.
    asked: AtomicU64,
}

impl WatchProgress {
    /// A watch is requested with this query.
    pub(in crate::node::api) fn ask(&self, query: &str) {
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        self.asked.store(version.and_then(|version| version.parse().ok()).unwrap_or(0), Ordering::Relaxed);
    }

    /// The server cannot continue from there: everything is listed again, so no check is needed.
    pub(super) fn expired(&self) {
        self.asked.store(0, Ordering::Relaxed);
    }

    /// The resource version at which it was last resumed; 0: unknown.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// A watch that was resumed after it was cut off.
struct Resumed {
    resource: String,
    watch_progress: Arc<WatchProgress>,
    at: u64,
    /// Lists at most one object of the watch's scope.
    now: (Api<RawObject>, ListParams),
}

/// Watches report here that they were resumed, and learn that they must list again; clones share it.
#[derive(Clone)]
pub(in crate::node::api) struct EtcdRollbackProbe {
    connector: Connector,
    resumed: mpsc::UnboundedSender<Resumed>,
    gone_back: Arc<watch::Sender<u64>>,
}

impl EtcdRollbackProbe {
    /// The handle and the task that runs the checks; it ends with the last clone.
    pub(in crate::node::api) fn new(connector: Connector, store: Store) -> (Self, impl Future<Output = ()>) {
        let (resumed, receiver) = mpsc::unbounded_channel();
        let gone_back = Arc::new(watch::Sender::new(0));
        (
            Self { connector: connector.clone(), resumed, gone_back: Arc::clone(&gone_back) },
            keep(receiver, gone_back, connector, store),
        )
    }

    /// Counts connections: over another one another server may answer.
    pub(super) fn lines_opened(&self) -> u64 {
        self.connector.counters().connections_opened
    }

    /// A watch of `resource` was resumed at a resource version.
    pub(super) fn resumed(
        &self,
        resource: &str,
        watch_progress: &Arc<WatchProgress>,
        api: Api<RawObject>,
        mut one: ListParams,
    ) {
        one.limit = Some(1);
        let (watch_progress, at) = (Arc::clone(watch_progress), watch_progress.asked());
        // It fails only when the process ends.
        let _ = self.resumed.send(Resumed { resource: resource.to_owned(), watch_progress, at, now: (api, one) });
    }

    /// Everything must be listed again.
    pub(super) fn relist_all(&self) {
        self.gone_back.send_modify(|number| *number += 1);
    }

    /// Changes whenever everything must be listed again.
    pub(super) fn gone_back(&self) -> watch::Receiver<u64> {
        self.gone_back.subscribe()
    }
}

async fn keep(
    mut resumed: mpsc::UnboundedReceiver<Resumed>,
    gone_back: Arc<watch::Sender<u64>>,
    connector: Connector,
    store: Store,
) {
    while let Some(first) = resumed.recv().await {
        tokio::time::sleep(GATHER.mul_f64(1.0 + random())).await;
        let rest = std::iter::from_fn(|| resumed.try_recv().ok());
        let mut latest: BTreeMap<String, Resumed> = BTreeMap::new();
        for next in std::iter::once(first).chain(rest).filter(|next| next.watch_progress.asked() == next.at) {
            let known = latest.get(&next.resource);
            if known.is_none_or(|known| known.at < next.at) {
                latest.insert(next.resource.clone(), next);
            }
        }
        for (resource, Resumed { at, now: (api, one), .. }) in latest {
            // A check that fails now is repeated when its watch is resumed the next time.
            let Ok(list) = api.list(&one).await else { continue };
            let now = list.metadata.resource_version.and_then(|version| version.parse::<u64>().ok());
            let Some(now) = now.filter(|now| *now < at) else { continue };
            tracing::warn!(
                resource,
                "resource versions of the API server fell from {at} to {now}, as after a restored backup: listing everything again"
            );
            store.history_went_back(at, now);
            connector.retire();
            gone_back.send_modify(|number| *number += 1);
            // The other resumed watches are listed again with the rest.
            while resumed.try_recv().is_ok() {}
            break;
        }
    }
}
