//! Requests and replies on a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use http::Request;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::body::Bytes;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::LATENCY;
use super::Reach;
use super::Shared;

/// What a path names.
pub(super) struct Path {
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: Option<String>,
    pub(super) sub: Option<String>,
}

impl Path {
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        parts.drain(
            ..match *parts.first()? {
                "api" => 2,
                "apis" => 3,
                _ => return None,
            }
            .min(parts.len()),
        );
        let mut parts = parts.into_iter().map(str::to_owned).peekable();
        let mut namespace = String::new();
        let mut resource = parts.next()?;
        let rest: Vec<String> = parts.collect();
        let mut rest = rest.into_iter();
        if resource == "namespaces" && rest.len() >= 2 {
            namespace = rest.next()?;
            resource = rest.next()?;
        }
        Some(Self { resource, namespace, name: rest.next(), sub: rest.next() })
    }
}

/// A response.
pub(super) enum Reply {
    Json(u16, Value),
    Text(u16, &'static str),
    Watch(mpsc::UnboundedReceiver<Bytes>),
    Silence,
}

impl Reply {
    pub(super) fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::Json(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": message, "metadata": {}}),
        )
    }

    pub(super) fn absent(request: &Path, name: &str) -> Self {
        let Self::Json(code, mut status) = Self::status(404, "NotFound", "not found") else { return Self::Silence };
        status["details"] = json!({"kind": request.resource, "name": name});
        Self::Json(code, status)
    }
}

/// A connection to the server as it is now; `None`: it is taken, and nothing comes.
pub(crate) fn connect(server: &Shared) -> std::io::Result<Option<DuplexStream>> {
    let (reach, mut cut, mut frozen) = {
        let server = server.lock().unwrap();
        (server.reach, server.cut.subscribe(), server.frozen.subscribe())
    };
    if reach == Reach::Refused {
        return Err(std::io::ErrorKind::ConnectionRefused.into());
    }
    let (theirs, ours) = tokio::io::duplex(1 << 16);
    let shared = Arc::clone(server);
    tokio::spawn(async move {
        if reach == Reach::Silent {
            let _open = ours;
            let _ = cut.changed().await;
            return;
        }
        let serve = service_fn(move |request: Request<Incoming>| answer(Arc::clone(&shared), request));
        let connection = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(100)
            .serve_connection(TokioIo::new(ours), serve);
        let mut connection = std::pin::pin!(connection);
        loop {
            let moves = !*frozen.borrow_and_update();
            tokio::select! {
                biased;
                _ = cut.changed() => break,
                _ = frozen.changed() => {}
                _ = &mut connection, if moves => break,
            }
        }
    });
    Ok(Some(theirs))
}

async fn answer(server: Shared, request: Request<Incoming>) -> Result<Response<Content>, Infallible> {
    let method = request.method().to_string();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.replace("%3D", "=").replace("%2F", "/").replace("%2C", ",")));
    let query = query.collect();
    // What is asked together is answered together.
    tokio::time::sleep(LATENCY).await;
    let reply = {
        let mut server = server.lock().unwrap();
        match server.reach {
            Reach::Up => server.respond(&method, &path, &query, &body),
            Reach::Silent | Reach::Refused => Reply::Silence,
        }
    };
    let (status, content) = match reply {
        Reply::Json(status, value) => (status, Content::Once(Some(value.to_string().into()))),
        Reply::Text(status, text) => (status, Content::Once(Some(text.into()))),
        Reply::Watch(events) => {
            let seconds: u64 =
                query.get("timeoutSeconds").and_then(|seconds: &String| seconds.parse().ok()).unwrap_or(290);
            let until = tokio::time::sleep(std::time::Duration::from_secs(seconds));
            (200, Content::Events(events, Box::pin(until)))
        }
        Reply::Silence => std::future::pending().await,
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(content).expect("a status and a body"))
}

/// A body: one piece, or events as lines until a time.
enum Content {
    Once(Option<Bytes>),
    Events(mpsc::UnboundedReceiver<Bytes>, Pin<Box<tokio::time::Sleep>>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Content::Once(piece) => Poll::Ready(piece.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Events(events, until) => match events.poll_recv(cx) {
                Poll::Ready(event) => Poll::Ready(event.map(|event| Ok(Frame::data(event)))),
                Poll::Pending => until.as_mut().poll(cx).map(|()| None),
            },
        }
    }
}
