//! The open connections: which takes a request, and when to open another.
//!
//! Owns the lock. Must not send requests (`exchange`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::client::Body;
use tokio::sync::Notify;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::now;
use crate::node::api::backoff::Backoff;
use crate::node::api::body::StreamGuard;
use crate::node::api::connector::Link;
use crate::node::api::dial;
use crate::node::api::dial::Connection;
use crate::node::api::dial::Line;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::error::words;
use crate::node::api::kubeconfig::ApiCredentials;

/// Streams on each connection that watches leave free for other requests.
const RESERVED: usize = 8;
/// The last connection has failed if it ended sooner than this: a server, or a proxy before it, that ends each at once is
/// not asked again at once.
const STEADY: Duration = Duration::from_secs(5);
/// How often, at most, the kubeconfig's files are checked for changes.
const CHECK_FILES: Duration = Duration::from_secs(5);

/// What the clones share.
pub(in crate::node::api) struct Inner {
    pub(super) kubeconfig: PathBuf,
    pub(super) state: Mutex<PoolState>,
    /// Held while connecting, so that a hundred watches open one connection.
    pub(super) dialling: tokio::sync::Mutex<()>,
    pub(super) lists: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    pub(super) link: watch::Sender<Link>,
    pub(super) lost: Notify,
    pub(super) opened: AtomicU64,
    pub(super) requests: AtomicU64,
}

pub(super) struct PoolState {
    pub(super) connections: Vec<Connection>,
    pub(super) credentials: Option<Arc<ApiCredentials>>,
    /// Those that the newest connection was made with.
    pub(super) dialled_with: Option<Arc<ApiCredentials>>,
    pub(super) checked: Option<Instant>,
    /// The present kubeconfig is invalid; the last good one is in force.
    pub(super) complaint: Option<String>,
    pub(super) backoff: Backoff,
    pub(super) retry_at: Option<Instant>,
    /// When the newest connection was made, unless we have ended it.
    pub(super) connected_at: Option<Instant>,
}

/// The type of a request, as far as connections care.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Class {
    Watch,
    List,
    /// One object that may be large, of which many may be asked for at once.
    Large,
    Other,
}

/// The connection chosen for a request.
pub(super) struct LeasedConnection {
    pub(super) sender: hyper::client::conn::http2::SendRequest<Body>,
    pub(super) line: Arc<Line>,
    pub(super) guard: StreamGuard,
    pub(super) credentials: Arc<ApiCredentials>,
}

impl Inner {
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut PoolState) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops idle connections except the first.
    pub(in crate::node::api) fn close_spare(&self) {
        self.with(|state| {
            let first = state.first_usable().map(|connection| connection.id);
            state
                .connections
                .retain(|connection| Some(connection.id) == first || connection.streams.load(Ordering::Relaxed) > 0);
        });
    }

    /// A connection has ended. If it was the last one, the link is `Down` at once, before any retry.
    pub(super) fn ended(&self, id: u64, cause: Option<ApiFailure>) {
        let last = self.with(|state| {
            state.connections.retain(|connection| connection.id != id);
            let last = state.first_usable().is_none();
            if last {
                state.has_lost_all();
            }
            last
        });
        if let Some(failure) = cause.filter(|_| last) {
            self.down(failure);
        }
        self.lost.notify_one();
    }

    pub(super) fn down(&self, failure: ApiFailure) {
        self.link.send_if_modified(|link| match link {
            Link::Down { failure: before, .. } if *before == failure => false,
            Link::Down { failure: before, .. } => {
                *before = failure;
                true
            }
            _ => {
                *link = Link::Down { failure, since: now() };
                true
            }
        });
    }

    /// The credentials in force: read again after a file has changed; if that fails, the last good ones.
    pub(super) fn credentials(&self) -> Result<Arc<ApiCredentials>, ApiFailure> {
        self.with(|state| {
            let now = Instant::now();
            let recent = state.checked.is_some_and(|checked| now < checked + CHECK_FILES);
            if recent && let Some(credentials) = &state.credentials {
                return Ok(credentials.clone());
            }
            state.checked = Some(now);
            if let Some(credentials) = &state.credentials
                && state.complaint.is_none()
                && !credentials.is_stale()
            {
                return Ok(credentials.clone());
            }
            match ApiCredentials::load(&self.kubeconfig) {
                Ok(credentials) => {
                    let credentials = Arc::new(credentials);
                    state.complaint = None;
                    for connection in &state.connections {
                        if connection.fingerprint != credentials.fingerprint {
                            connection.retired.store(true, Ordering::Relaxed);
                        }
                    }
                    state.credentials = Some(credentials.clone());
                    Ok(credentials)
                }
                Err(error) => {
                    let message = words(&error);
                    state.complaint = Some(message.clone());
                    state.credentials.clone().ok_or_else(|| ApiFailure::new(FailureKind::Kubeconfig, message))
                }
            }
        })
    }

    /// Ensures that there is a usable connection.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<(), ApiFailure> {
        self.acquire(Class::Other, None).await.map(drop)
    }

    /// A stream on a connection with room, or on a new one.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        class: Class,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<LeasedConnection, ApiFailure> {
        let mut permit = permit;
        let credentials = self.credentials();
        if let Ok(credentials) = &credentials
            && let Some(lease) = self.lease(class, credentials, &mut permit)
        {
            return Ok(lease);
        }
        let _single = self.dialling.lock().await;
        // The previous holder of the lock may have connected, or failed, for all waiters.
        if let Ok(credentials) = &credentials
            && let Some(lease) = self.lease(class, credentials, &mut permit)
        {
            return Ok(lease);
        }
        if let Some(failure) = self.recent_failure() {
            return Err(failure);
        }
        let attempt = match self.credentials() {
            Ok(credentials) => {
                let id = self.opened.load(Ordering::Relaxed) + 1;
                let inner = Arc::downgrade(self);
                let on_end = Box::new(move |cause| inner.upgrade().map_or((), |inner| inner.ended(id, cause)));
                dial::dial(id, &credentials, on_end).await.map(|connection| (connection, credentials))
            }
            Err(failure) => Err(failure),
        };
        match attempt {
            Ok((connection, credentials)) => {
                self.opened.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("connection {} opened", connection.id);
                self.with(|state| {
                    state.dialled_with = Some(credentials.clone());
                    state.connections.push(connection);
                    state.connected_at = Some(Instant::now());
                    state.retry_at = None;
                });
                self.link.send_if_modified(|link| std::mem::replace(link, Link::Up) != Link::Up);
                self.lease(class, &credentials, &mut permit)
                    .ok_or_else(|| ApiFailure::new(FailureKind::Unreachable, "the new connection ended at once"))
            }
            Err(failure) => {
                self.with(|state| state.retry_at = Some(Instant::now() + state.backoff.next()));
                if self.with(|state| state.first_usable().is_none()) {
                    self.down(failure.clone());
                }
                Err(failure)
            }
        }
    }

    fn recent_failure(&self) -> Option<ApiFailure> {
        let waiting = self.with(|state| state.retry_at.is_some_and(|at| Instant::now() < at));
        let ended = || ApiFailure::new(FailureKind::Unreachable, "the API server ended the connection at once");
        waiting.then(|| match &*self.link.borrow() {
            Link::Down { failure, .. } => failure.clone(),
            Link::Up | Link::Connecting => ended(),
        })
    }

    fn lease(
        self: &Arc<Self>,
        class: Class,
        credentials: &Arc<ApiCredentials>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Option<LeasedConnection> {
        let (sender, streams, line) = self.with(|state| {
            state.connections.retain(|connection| !connection.sender.is_closed());
            let connection = state.connections.iter().find(|connection| connection.has_room(class))?;
            Some((connection.sender.clone(), connection.streams.clone(), connection.line.clone()))
        })?;
        let guard = StreamGuard::new(self.clone(), streams, permit.take());
        Some(LeasedConnection { sender, line, guard, credentials: credentials.clone() })
    }
}

impl PoolState {
    pub(super) fn first_usable(&self) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.is_usable())
    }

    /// No connection is left. One that lasted is replaced at once.
    fn has_lost_all(&mut self) {
        let now = Instant::now();
        match self.connected_at.take() {
            Some(at) if now < at + STEADY => self.retry_at = Some(now + self.backoff.next()),
            _ => self.backoff.reset(),
        }
    }

    /// The next connection is made with what the files of the credentials are then.
    pub(super) fn retire_all(&mut self) {
        (self.checked, self.connected_at) = (None, None);
        for connection in &self.connections {
            connection.retired.store(true, Ordering::Relaxed);
        }
        self.connections.retain(|connection| connection.streams.load(Ordering::Relaxed) > 0);
    }
}

impl Connection {
    fn has_room(&self, class: Class) -> bool {
        let limit = self.limit();
        let limit = if class == Class::Watch { limit.saturating_sub(RESERVED).max(1) } else { limit };
        self.is_usable() && self.streams.load(Ordering::Relaxed) < limit
    }
}

#[cfg(test)]
mod tests {
    use crate::node::api::connector::Connector;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_each_connection_at_once_is_not_asked_again_at_once() {
        let connector = Connector::new(PathBuf::new());
        let inner = &connector.inner;
        let connected = || inner.with(|state| state.connected_at = Some(Instant::now()));
        connected();
        inner.ended(1, None);
        let failure = inner.recent_failure().expect("it waits");
        assert_eq!(failure.message, "the API server ended the connection at once");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(inner.recent_failure().is_none(), "it is asked again soon");
        connected();
        tokio::time::advance(STEADY).await;
        inner.ended(2, None);
        assert!(inner.recent_failure().is_none(), "one that lasted is replaced at once");
        connected();
        inner.with(PoolState::retire_all);
        inner.ended(3, None);
        assert!(inner.recent_failure().is_none(), "we have ended it");
    }
}
