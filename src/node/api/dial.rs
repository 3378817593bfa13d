//! One HTTP/2 connection: TCP, TLS, handshake, keep-alive, and why it ended.
//!
//! Owns the timeouts of connecting. Must not choose when to connect (`connector`).

use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use kube::client::Body;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::error::words;
use crate::node::api::kubeconfig::ApiCredentials;
use crate::node::api::tls;

/// Timeout for name resolution, TCP, TLS and the HTTP/2 preface together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for one address of several.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(4);
/// client-go's `ReadIdleTimeout`: a ping is sent after this much silence, even on an idle connection.
const PING_AFTER: Duration = Duration::from_secs(30);
/// client-go's `PingTimeout`: an unanswered ping ends the connection.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Bounds the data in flight for each stream and for the connection: memory before speed.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// kube-apiserver's limit (`HTTP2MaxStreamsPerConnection`), until its SETTINGS say otherwise.
const USUAL_STREAM_LIMIT: usize = 100;

/// A connection in use.
pub(super) struct Connection {
    /// Number of this connection, counted from 1.
    pub(super) id: u64,
    pub(super) sender: SendRequest<Body>,
    /// The credentials it was made with.
    pub(super) fingerprint: [u8; 32],
    /// Requests whose responses are not read completely, and the server's limit.
    pub(super) streams: Arc<AtomicUsize>,
    limit: Arc<AtomicUsize>,
    /// It takes no new requests; running ones may finish.
    pub(super) retired: Arc<AtomicBool>,
    /// Why it ended.
    pub(super) line: Arc<Line>,
}

impl Connection {
    /// How many streams it may carry at once.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed).max(1)
    }

    /// Whether it takes requests.
    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.retired.load(Ordering::Relaxed)
    }
}

/// What the transport of a connection has observed. hyper reports an unanswered ping as a plain end of the connection,
/// so the cause comes from here.
pub(super) struct Line {
    state: Mutex<LineState>,
}

struct LineState {
    last_read: Instant,
    end: Option<ApiFailure>,
}

impl Line {
    fn new() -> Self {
        Self { state: Mutex::new(LineState { last_read: Instant::now(), end: None }) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut LineState) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the connection ended, if the transport knows.
    pub(super) fn cause(&self) -> Option<ApiFailure> {
        self.with(|state| {
            let silent = state.last_read.elapsed();
            let unanswered = PING_AFTER + PING_TIMEOUT - Duration::from_secs(1);
            state.end.clone().or_else(|| {
                (silent >= unanswered).then(|| {
                    let message =
                        format!("the API server has been silent for {} s and left a ping unanswered", silent.as_secs());
                    ApiFailure::new(FailureKind::Timeout, message)
                })
            })
        })
    }
}

/// A transport that updates a [`Line`].
struct Observed<S> {
    inner: S,
    line: Arc<Line>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        match &result {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                self.line.with(|state| state.last_read = Instant::now());
            }
            Poll::Ready(Ok(())) => {
                let closed = ApiFailure::new(FailureKind::Unreachable, "the API server closed the connection");
                self.line.with(|state| state.end.get_or_insert(closed).clone());
            }
            Poll::Ready(Err(error)) => {
                let broken = ApiFailure::io("connection lost", error);
                self.line.with(|state| state.end.get_or_insert(broken).clone());
            }
            Poll::Pending => {}
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Called when a connection ends, with the cause if it is known.
pub(super) type OnEnd = Box<dyn FnOnce(Option<ApiFailure>) + Send>;

/// Connects.
pub(super) async fn dial(id: u64, credentials: &ApiCredentials, ended: OnEnd) -> Result<Connection, ApiFailure> {
    let target = format!("connect to {}:{}", credentials.endpoint.host, credentials.endpoint.port);
    match timeout(CONNECT_TIMEOUT, establish(id, credentials, &target, ended)).await {
        Ok(result) => result,
        Err(_) => Err(ApiFailure::timeout(&format!("{target}: TLS or HTTP/2 handshake"), CONNECT_TIMEOUT)),
    }
}

async fn establish(
    id: u64,
    credentials: &ApiCredentials,
    target: &str,
    ended: OnEnd,
) -> Result<Connection, ApiFailure> {
    let line = Arc::new(Line::new());
    #[cfg(feature = "simulation")]
    if let Some(stream) = crate::simulation::connect() {
        let stream = stream.await.map_err(|error| ApiFailure::io(target, &error))?;
        return handshake(id, Observed { inner: stream, line: line.clone() }, line, credentials, target, ended).await;
    }
    let tcp = tcp(&credentials.endpoint.host, credentials.endpoint.port, target).await?;
    let Some((config, name)) = &credentials.tls else {
        return handshake(id, Observed { inner: tcp, line: line.clone() }, line, credentials, target, ended).await;
    };
    let connector = TlsConnector::from(config.clone());
    let stream = connector.connect(name.clone(), tcp).await.map_err(|error| tls_failure(target, &error))?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        let message = format!("{target}: the server does not speak HTTP/2 (is this an API server?)");
        return Err(ApiFailure::new(FailureKind::Protocol, message));
    }
    // Boxed: the TLS state is large and would be part of every future that may connect.
    let stream = Box::new(stream);
    handshake(id, Observed { inner: stream, line: line.clone() }, line, credentials, target, ended).await
}

async fn tcp(host: &str, port: u16, target: &str) -> Result<TcpStream, ApiFailure> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port))
            .await
            .map_err(|error| ApiFailure::io(&format!("{target}: the name does not resolve"), &error))?
            .collect(),
    };
    let mut last = ApiFailure::new(FailureKind::Unreachable, format!("{target}: the name has no address"));
    for address in &addresses {
        match timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Disables Nagle's algorithm, so watch events are acknowledged at once; failure is harmless.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = ApiFailure::io(target, &error),
            Err(_) => last = ApiFailure::timeout(&format!("{target}: TCP"), ADDRESS_TIMEOUT),
        }
    }
    Err(last)
}

fn tls_failure(target: &str, error: &io::Error) -> ApiFailure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => ApiFailure::new(FailureKind::Tls, format!("{target}: {}", tls::words(inner))),
        None => ApiFailure::io(&format!("{target}: TLS"), error),
    }
}

async fn handshake<S>(
    id: u64,
    stream: S,
    line: Arc<Line>,
    credentials: &ApiCredentials,
    target: &str,
    ended: OnEnd,
) -> Result<Connection, ApiFailure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, mut connection) = builder.handshake::<_, Body>(TokioIo::new(stream)).await.map_err(|error| {
        line.cause().unwrap_or_else(|| ApiFailure::new(FailureKind::Protocol, format!("{target}: {}", words(&error))))
    })?;
    let limit = Arc::new(AtomicUsize::new(USUAL_STREAM_LIMIT));
    let seen = limit.clone();
    let cause = line.clone();
    tokio::spawn(async move {
        let driven = std::future::poll_fn(|cx| {
            let result = Pin::new(&mut connection).poll(cx);
            seen.store(connection.current_max_send_streams(), Ordering::Relaxed);
            result
        });
        if let Err(error) = driven.await {
            tracing::debug!("connection {id} ended: {}", words(&error));
        }
        ended(cause.cause());
    });
    Ok(Connection {
        id,
        sender,
        fingerprint: credentials.fingerprint,
        streams: Arc::default(),
        limit,
        retired: Arc::default(),
        line,
    })
}
