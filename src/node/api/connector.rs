//! The agent's own way to the API server: few HTTP/2 connections under `kube::Client`.
//!
//! kube's stock client speaks HTTP/1.1, where every watch is a TLS connection of its own. Owns the
//! connections, their number, the credentials in force and the counters. Must not know Kubernetes
//! beyond "watch" and "list".

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use http::Request;
use http::Response;
use http::StatusCode;
use http::Uri;
use http::header::USER_AGENT;
use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::core::render::Endpoint;
use crate::node::api::backoff::Backoff;
use crate::node::api::body::ResponseBody;
use crate::node::api::body::StreamGuard;
use crate::node::api::dial;
use crate::node::api::dial::Connection;
use crate::node::api::dial::Line;
use crate::node::api::error::Failure;
use crate::node::api::error::FailureKind;
use crate::node::api::error::words;
use crate::node::api::kubeconfig::Credentials;

/// For the head of any response, watches included (theirs comes at once).
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Streams of each connection that watches leave to ordinary requests.
const RESERVED: usize = 8;
/// Lists at one time: each holds its whole page in memory.
const CONCURRENT_LISTS: usize = 4;
/// How often, at most, the kubeconfig's files are looked at for a change.
const CHECK_FILES: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Notified when the server has accepted this task's watch. kube's watcher does not tell, and
    /// carries nothing of ours down to here; but the request is polled in the task that makes it.
    pub(super) static WATCH_OPENED: Arc<Notify>;
}

/// The state of the link to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// Never connected and not failed yet.
    Connecting,
    /// Connected.
    Up,
    /// The last attempt failed.
    Down {
        /// Why.
        failure: Failure,
        /// Since when there has been no connection.
        since: Timestamp,
    },
}

/// Numbers for `status` and the bench.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Connections opened since the start.
    pub connections_opened: u64,
    /// Connections open now.
    pub connections: u64,
    /// Requests sent since the start.
    pub requests: u64,
    /// Streams open now: watches and requests under way.
    pub streams: u64,
}

/// A handle to the connections; clones share them.
#[derive(Clone)]
pub struct Connector {
    inner: Arc<Inner>,
}

/// What the clones share.
pub(super) struct Inner {
    kubeconfig: PathBuf,
    state: Mutex<State>,
    /// Held while dialling, so that a hundred watches open one connection.
    dialling: tokio::sync::Mutex<()>,
    lists: Arc<Semaphore>,
    link: watch::Sender<Link>,
    lost: Notify,
    opened: AtomicU64,
    requests: AtomicU64,
}

struct State {
    connections: Vec<Connection>,
    credentials: Option<Arc<Credentials>>,
    checked: Option<Instant>,
    /// The kubeconfig as it is now cannot be used; the last good one is in force.
    complaint: Option<String>,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

/// What a request is, as far as connections care.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Watch,
    List,
    Other,
}

/// A connection chosen for a request.
struct Lease {
    sender: hyper::client::conn::http2::SendRequest<Body>,
    line: Arc<Line>,
    guard: StreamGuard,
    credentials: Arc<Credentials>,
}

impl Connector {
    /// A connector for this kubeconfig. Nothing is read or connected before [`Connector::keep`] or
    /// the first request.
    pub fn new(kubeconfig: PathBuf) -> Self {
        let state = State {
            connections: Vec::new(),
            credentials: None,
            checked: None,
            complaint: None,
            backoff: Backoff::connection(),
            retry_at: None,
        };
        let inner = Inner {
            kubeconfig,
            state: Mutex::new(state),
            dialling: tokio::sync::Mutex::new(()),
            lists: Arc::new(Semaphore::new(CONCURRENT_LISTS)),
            link: watch::Sender::new(Link::Connecting),
            lost: Notify::new(),
            opened: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A client over these connections. Needs a running tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(Sender { inner: self.inner.clone() }, "default")
    }

    /// Keeps one connection open for ever: connects anew, with back-off, when there is none.
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

    /// Follows the link's state.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.inner.link.subscribe()
    }

    /// Numbers.
    pub fn counters(&self) -> Counters {
        let (connections, streams) = self.inner.with(|state| {
            let open = state.connections.iter().filter(|connection| !connection.sender.is_closed());
            let streams: usize = open.clone().map(|connection| connection.streams.load(Ordering::Relaxed)).sum();
            (open.count(), streams)
        });
        Counters {
            connections_opened: self.inner.opened.load(Ordering::Relaxed),
            connections: connections as u64,
            requests: self.inner.requests.load(Ordering::Relaxed),
            streams: streams as u64,
        }
    }

    /// The server that the kubeconfig names, once it was read.
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.inner.with(|state| state.credentials.as_ref().map(|credentials| credentials.endpoint.clone()))
    }

    /// Why the kubeconfig as it is now is not in force, if so.
    pub fn complaint(&self) -> Option<String> {
        self.inner.with(|state| state.complaint.clone())
    }

    /// From now on requests go over a new connection; what the old ones carry may end.
    pub fn retire(&self) {
        self.inner.with(State::retire_all);
        self.inner.lost.notify_one();
    }
}

impl Inner {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops connections that nothing runs over and that are not the first.
    pub(super) fn close_spare(&self) {
        self.with(|state| {
            let first = state.first_usable().map(|connection| connection.id);
            state
                .connections
                .retain(|connection| Some(connection.id) == first || connection.streams.load(Ordering::Relaxed) > 0);
        });
    }

    /// A connection is over. Says `Down` at once if it was the last one, before anybody tries again.
    fn ended(&self, id: u64, cause: Option<Failure>) {
        let last = self.with(|state| {
            state.connections.retain(|connection| connection.id != id);
            state.first_usable().is_none()
        });
        if let Some(failure) = cause.filter(|_| last) {
            self.down(failure);
        }
        self.lost.notify_one();
    }

    fn down(&self, failure: Failure) {
        self.link.send_if_modified(|link| match link {
            Link::Down { failure: before, .. } if *before == failure => false,
            Link::Down { failure: before, .. } => {
                *before = failure;
                true
            }
            _ => {
                *link = Link::Down { failure, since: Timestamp::now() };
                true
            }
        });
    }

    /// The credentials in force, read anew when a file has changed; the last good ones when it
    /// turned bad.
    fn credentials(&self) -> Result<Arc<Credentials>, Failure> {
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
            match Credentials::load(&self.kubeconfig) {
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
                    state.credentials.clone().ok_or_else(|| Failure::new(FailureKind::Kubeconfig, message))
                }
            }
        })
    }

    /// Makes sure that there is a usable connection.
    async fn connection(self: &Arc<Self>) -> Result<(), Failure> {
        self.acquire(Class::Other, None).await.map(drop)
    }

    /// A stream on a connection with room, on a new one if none has.
    async fn acquire(self: &Arc<Self>, class: Class, permit: Option<OwnedSemaphorePermit>) -> Result<Lease, Failure> {
        let mut permit = permit;
        let credentials = self.credentials();
        if let Ok(credentials) = &credentials
            && let Some(lease) = self.lease(class, credentials, &mut permit)
        {
            return Ok(lease);
        }
        let _single = self.dialling.lock().await;
        // Whoever held the lock before may have connected, or failed, for all of us.
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
                log::debug!(target: "daemonlet::api", "connection {} opened", connection.id);
                self.with(|state| {
                    state.connections.push(connection);
                    state.backoff.reset();
                    state.retry_at = None;
                });
                self.link.send_if_modified(|link| std::mem::replace(link, Link::Up) != Link::Up);
                self.lease(class, &credentials, &mut permit)
                    .ok_or_else(|| Failure::new(FailureKind::Unreachable, "the new connection ended at once"))
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

    fn recent_failure(&self) -> Option<Failure> {
        let waiting = self.with(|state| state.retry_at.is_some_and(|at| Instant::now() < at));
        match (&*self.link.borrow(), waiting) {
            (Link::Down { failure, .. }, true) => Some(failure.clone()),
            _ => None,
        }
    }

    fn lease(
        self: &Arc<Self>,
        class: Class,
        credentials: &Arc<Credentials>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Option<Lease> {
        let (sender, streams, line) = self.with(|state| {
            state.connections.retain(|connection| !connection.sender.is_closed());
            let connection = state.connections.iter().find(|connection| connection.has_room(class))?;
            Some((connection.sender.clone(), connection.streams.clone(), connection.line.clone()))
        })?;
        let guard = StreamGuard::new(self.clone(), streams, permit.take());
        Some(Lease { sender, line, guard, credentials: credentials.clone() })
    }

    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<ResponseBody>, Failure> {
        let class = classify(&request);
        let permit = match class {
            Class::List => self.lists.clone().acquire_owned().await.ok(),
            _ => None,
        };
        let lease = self.acquire(class, permit).await?;
        let credentials = lease.credentials.clone();
        let request = address(request, &credentials)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.exchange(lease, request, class).await {
            Ok(response) => Ok(response),
            Err((failure, None)) => Err(failure),
            // Never sent: the connection ended in between. Once more, on another one.
            Err((_, Some(request))) => {
                let lease = self.acquire(class, None).await?;
                self.exchange(lease, *request, class).await.map_err(|(failure, _)| failure)
            }
        }
    }

    async fn exchange(
        &self,
        mut lease: Lease,
        request: Request<Body>,
        class: Class,
    ) -> Result<Response<ResponseBody>, (Failure, Option<Box<Request<Body>>>)> {
        let what = format!("{} {}", request.method(), request.uri().path());
        match timeout(HEAD_TIMEOUT, lease.sender.try_send_request(request)).await {
            Ok(Ok(response)) => {
                if response.status() == StatusCode::UNAUTHORIZED {
                    // The token may just have been rotated: look at the files before the next request.
                    self.with(|state| state.checked = None);
                }
                // A refused watch is an ordinary response.
                let is_watch = class == Class::Watch && response.status().is_success();
                if is_watch {
                    let _ = WATCH_OPENED.try_with(|opened| opened.notify_one());
                }
                let (line, guard) = (lease.line, lease.guard);
                Ok(response.map(|incoming| ResponseBody::new(incoming, line, is_watch, guard)))
            }
            Ok(Err(mut error)) => {
                let unsent = error.take_message().map(Box::new);
                let failure = lease.line.cause().unwrap_or_else(|| {
                    Failure::new(FailureKind::Unreachable, format!("{what}: {}", words(error.error())))
                });
                Err((failure, unsent))
            }
            Err(_) => Err((Failure::timeout(&what, HEAD_TIMEOUT), None)),
        }
    }
}

impl State {
    fn first_usable(&self) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.is_usable())
    }

    fn retire_all(&mut self) {
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

fn classify(request: &Request<Body>) -> Class {
    let query = request.uri().query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.starts_with(name));
    if request.method() != http::Method::GET {
        Class::Other
    } else if has("watch=true") {
        Class::Watch
    } else if has("fieldSelector=") || has("limit=") || has("labelSelector=") {
        Class::List
    } else {
        Class::Other
    }
}

/// Puts the server in front of the path, and says who we are.
fn address(request: Request<Body>, credentials: &Credentials) -> Result<Request<Body>, Failure> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let prefix = credentials.server.path().trim_end_matches('/');
    let mut uri = Uri::builder().path_and_query(format!("{prefix}{path}"));
    if let Some(scheme) = credentials.server.scheme() {
        uri = uri.scheme(scheme.clone());
    }
    if let Some(authority) = credentials.server.authority() {
        uri = uri.authority(authority.clone());
    }
    parts.uri = uri.build().map_err(|error| Failure::new(FailureKind::Protocol, error.to_string()))?;
    parts.headers.extend(credentials.headers.clone());
    let agent = concat!("daemonlet/", env!("CARGO_PKG_VERSION"));
    parts.headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    Ok(Request::from_parts(parts, body))
}

/// What goes under `kube::Client`.
struct Sender {
    inner: Arc<Inner>,
}

impl tower::Service<Request<Body>> for Sender {
    type Response = Response<ResponseBody>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.inner.clone().send(request))
    }
}
