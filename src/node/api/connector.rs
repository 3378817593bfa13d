//! The agent's connections to the API server: few HTTP/2 connections under `kube::Client`.
//!
//! kube's stock client speaks HTTP/1.1, with a TLS connection for each watch. Owns the connections, their number, the
//! credentials in force and the counters. Must know of Kubernetes only "watch", "list", and which DaemonSets are read
//! whole.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::render::Endpoint;
use crate::core::time::Timestamp;
use crate::node::api::backoff::Backoff;
use crate::node::api::connector::exchange::Sender;
use crate::node::api::connector::pool::Inner;
use crate::node::api::connector::pool::PoolState;
use crate::node::api::error::ApiFailure;
use crate::node::api::kubeconfig::ApiCredentials;
use crate::node::api::selection::Selection;
use crate::node::api::watches::WatchProgress;

pub(super) mod pool;

mod exchange;

/// Concurrent lists: each holds a whole page in memory.
const CONCURRENT_LISTS: usize = 4;
/// Concurrent GETs of DaemonSets: each may have 1.5 MiB.
const CONCURRENT_LARGE: usize = 4;

tokio::task_local! {
    /// The progress of this task's watch: what was requested, and when the server accepted it. kube's watcher does not
    /// expose that or pass context down, but polls the request in the task that makes it.
    pub(super) static WATCH: Arc<WatchProgress>;
}

/// The state of the link to the API server.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Link {
    /// Never connected, and no attempt has failed yet.
    Connecting,
    /// Connected.
    Up,
    /// The last attempt failed.
    Down {
        failure: ApiFailure,
        /// Since when there has been no connection.
        since: Timestamp,
    },
}

/// Counters for `status` and the benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionCounters {
    /// Connections opened since the start.
    pub connections_opened: u64,
    /// Connections open now.
    pub connections: u64,
    /// Requests sent since the start.
    pub requests: u64,
    /// Streams open now: watches and requests under way.
    pub streams: u64,
}

/// A handle to the connections; clones share it.
#[derive(Clone)]
pub struct Connector {
    inner: Arc<Inner>,
}

impl Connector {
    /// A connector for this kubeconfig. Nothing is read or connected before [`Connector::keep`] or the first request.
    pub fn new(kubeconfig: PathBuf) -> Self {
        let state = PoolState {
            connections: Vec::new(),
            credentials: None,
            dialled_with: None,
            checked: None,
            complaint: None,
            backoff: Backoff::connection(),
            retry_at: None,
            connected_at: None,
        };
        let inner = Inner {
            kubeconfig,
            state: Mutex::new(state),
            dialling: tokio::sync::Mutex::new(()),
            lists: Arc::new(Semaphore::new(CONCURRENT_LISTS)),
            large: Arc::new(Semaphore::new(CONCURRENT_LARGE)),
            link: watch::Sender::new(Link::Connecting),
            lost: Notify::new(),
            opened: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A connector with fixed credentials.
    pub(super) fn of(credentials: ApiCredentials) -> Self {
        let connector = Self::new(PathBuf::new());
        connector.inner.with(|state| state.credentials = Some(Arc::new(credentials)));
        connector
    }

    /// A client over these connections. Needs a running tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_of(Selection::default())
    }

    /// The same for a client whose lists and watches of all DaemonSets read only what is selected whole.
    pub fn client_of(&self, selection: Selection) -> kube::Client {
        kube::Client::new(Sender { inner: self.inner.clone(), selection }, "default")
    }

    /// Keeps one connection open for ever: reconnects with back-off.
    pub async fn keep(self) {
        loop {
            let wait = self.inner.with(|state| match (&state.retry_at, state.first_usable().is_some()) {
                (_, true) => None,
                (retry_at, false) => Some(retry_at.unwrap_or_else(Instant::now)),
            });
            match wait {
                None => self.inner.lost.notified().await,
                Some(at) => {
                    tokio::time::sleep_until(at).await;
                    let _ = self.inner.connection().await;
                }
            }
        }
    }

    /// Watches the link's state.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.inner.link.subscribe()
    }

    /// How many connections have been opened: the number of the newest.
    pub(super) fn opened(&self) -> u64 {
        self.inner.opened.load(Ordering::Relaxed)
    }

    pub fn counters(&self) -> ConnectionCounters {
        let (connections, streams) = self.inner.with(|state| {
            let open = state.connections.iter().filter(|connection| !connection.sender.is_closed());
            let streams: usize = open.clone().map(|connection| connection.streams.load(Ordering::Relaxed)).sum();
            (open.count(), streams)
        });
        ConnectionCounters {
            connections_opened: self.opened(),
            connections: connections as u64,
            requests: self.inner.requests.load(Ordering::Relaxed),
            streams: streams as u64,
        }
    }

    /// The kubeconfig's server, once it was read.
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.inner.with(|state| state.credentials.as_ref().map(|credentials| credentials.endpoint.clone()))
    }

    /// Host and port of the kubeconfig's server for pods, once it was read; `None` too where it is a path of its host.
    pub fn endpoint_for_pods(&self) -> Option<Endpoint> {
        self.inner.with(|state| state.credentials.as_ref().and_then(|credentials| credentials.for_pods()))
    }

    /// The same of the server that the newest connection leads to; of the kubeconfig's while there has been none.
    pub(super) fn connected_endpoint_for_pods(&self) -> Option<Endpoint> {
        self.inner.with(|state| {
            let credentials = state.dialled_with.as_ref().or(state.credentials.as_ref());
            credentials.and_then(|credentials| credentials.for_pods())
        })
    }

    /// Why the present kubeconfig is not in force, if it is not.
    pub fn complaint(&self) -> Option<String> {
        self.inner.with(|state| state.complaint.clone())
    }

    /// From now on requests use a new connection; streams on the old ones may end.
    pub fn retire(&self) {
        self.inner.with(PoolState::retire_all);
        self.inner.lost.notify_one();
    }
}
