//! A small HTTP/1.1 server on hyper: two paths, one request per connection, few connections.
//!
//! Owns the listener and its thread. Must not touch what is served.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::config::Listen;
use crate::core::metrics::Exposition;
use crate::node::fsx;

use super::Health;

/// Concurrent connections; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 8;
/// Timeout of one connection, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between tries to listen.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest request head: a scraper's has a few hundred bytes.
const HEAD: usize = 8 * 1024;

/// What is served.
pub trait Exposed: Send + Sync {
    /// The text for Prometheus; `None` before the first pass.
    fn exposition(&self) -> Option<String>;

    /// Whether passes are made.
    fn health(&self) -> Health;

    /// Takes why nothing is served, if so.
    fn complain(&self, complaint: Option<String>);
}

/// Starts the thread, which serves for as long as the process lives.
///
/// # Errors
/// If no thread can be started.
pub fn start(listen: Listen, exposed: Arc<dyn Exposed>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || runtime.block_on(serve(&listen, &exposed)))?;
    Ok(())
}

async fn serve(listen: &Listen, recorder: &Arc<dyn Exposed>) {
    loop {
        let Err(error) = accept(listen, recorder).await;
        let why = crate::config::io_reason(&error);
        recorder.complain(Some(format!("{listen}: cannot listen: {why}; trying again")));
        tokio::time::sleep(AGAIN).await;
    }
}

/// Accepts for ever.
async fn accept(listen: &Listen, recorder: &Arc<dyn Exposed>) -> Result<Infallible, io::Error> {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let permit = || async { Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other) };
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await?;
            recorder.complain(None);
            loop {
                let permit = permit().await?;
                let (stream, _) = listener.accept().await?;
                tokio::spawn(converse(stream, Arc::clone(recorder), permit));
            }
        }
        Listen::Unix(path) => {
            let listener = fsx::bind(path)?;
            recorder.complain(None);
            loop {
                let permit = permit().await?;
                let (stream, _) = listener.accept().await?;
                tokio::spawn(converse(stream, Arc::clone(recorder), permit));
            }
        }
    }
}

/// One request and its answer.
async fn converse<S>(stream: S, recorder: Arc<dyn Exposed>, permit: tokio::sync::OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
        let answer = respond(request.method(), request.uri().path(), recorder.as_ref());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // A reader that disconnects or is slow is not reported.
    let _ = tokio::time::timeout(PATIENCE, connection).await;
    drop(permit);
}

fn respond(method: &Method, path: &str, recorder: &dyn Exposed) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if !matches!(*method, Method::GET | Method::HEAD) {
        return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
    }
    match path {
        "/metrics" => match recorder.exposition() {
            Some(text) => answer(StatusCode::OK, Exposition::MEDIA_TYPE, text),
            None => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "no pass has ended yet\n".to_owned()),
        },
        "/healthz" => {
            let health = recorder.health();
            let status = if health.works { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let word = if health.works { "ok" } else { "not ok" };
            answer(status, TEXT, format!("{word}: {}\n", health.words))
        }
        _ => answer(StatusCode::NOT_FOUND, TEXT, "only /metrics and /healthz exist\n".to_owned()),
    }
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    response
}
