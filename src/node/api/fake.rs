//! A minimal API server in process, for tests: HTTP/2 on loopback without TLS.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::task::Context;
use std::task::Poll;

use http::Request;
use http::Response;
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
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A response of the server.
pub(super) enum FakeReply {
    /// This status and body.
    Json(u16, Value),
    /// This status and text that is not JSON.
    Text(u16, &'static str),
    /// A watch: these events, then those from the receiver, until its sender is dropped.
    Watch(mpsc::UnboundedReceiver<Value>),
    /// No response, ever.
    NoAnswer,
}

type Handler = Box<dyn FnMut(&str, &str) -> FakeReply + Send>;

/// A running server.
pub(super) struct Fake {
    address: SocketAddr,
    handler: Arc<Mutex<Handler>>,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: AbortHandle,
    limit: u32,
    folder: tempfile::TempDir,
}

impl Fake {
    /// Starts a server that allows `limit` streams per connection. The handler gets the method, and the path with
    /// query.
    pub(super) async fn start(limit: u32, handler: impl FnMut(&str, &str) -> FakeReply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
        let (requests, connections) = (Arc::default(), Arc::default());
        let accepting = accept(listener, limit, &handler, &requests, &connections);
        let folder = tempfile::tempdir().unwrap();
        let fake = Self { address, handler, requests, connections, accepting, limit, folder };
        write_kubeconfig(&fake.kubeconfig(), &format!("http://{address}"), "token: abc");
        fake
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Replaces the handler.
    pub(super) fn answer(&self, handler: impl FnMut(&str, &str) -> FakeReply + Send + 'static) {
        *self.handler.lock().unwrap() = Box::new(handler);
    }

    /// Every request so far, as `METHOD path?query`; a patch with its format after that.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests contain this.
    pub(super) fn count(&self, part: &str) -> usize {
        self.requests().iter().filter(|request| request.contains(part)).count()
    }

    /// Stops the server: connections are cut, new ones refused.
    pub(super) fn stop(&self) {
        self.accepting.abort();
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// Serves again at the same address.
    pub(super) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accepting = accept(listener, self.limit, &self.handler, &self.requests, &self.connections);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes a kubeconfig with this server and user.
pub(super) fn write_kubeconfig(path: &std::path::Path, server: &str, user: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    );
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn accept(
    listener: TcpListener,
    limit: u32,
    handler: &Arc<Mutex<Handler>>,
    requests: &Arc<Mutex<Vec<String>>>,
    connections: &Arc<Mutex<Vec<AbortHandle>>>,
) -> AbortHandle {
    let (handler, requests, connections) = (handler.clone(), requests.clone(), connections.clone());
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (handler, requests) = (handler.clone(), requests.clone());
            let serve = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path_and_query().map(|path| path.to_string()).unwrap_or_default();
                let method = request.method().to_string();
                let format = request.headers().get(http::header::CONTENT_TYPE).filter(|_| method == "PATCH");
                let format = format.map(|format| format!(" {}", format.to_str().unwrap())).unwrap_or_default();
                requests.lock().unwrap().push(format!("{method} {path}{format}"));
                let reply = handler.lock().unwrap()(&method, &path);
                async move { respond(reply).await }
            });
            let connection = http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(limit)
                .serve_connection(TokioIo::new(stream), serve);
            let task = tokio::spawn(async move {
                let _ = connection.await;
            });
            connections.lock().unwrap().push(task.abort_handle());
        }
    });
    accepting.abort_handle()
}

async fn respond(reply: FakeReply) -> Result<Response<FakeBody>, Infallible> {
    let (status, content) = match reply {
        FakeReply::Json(status, value) => (status, FakeBody::Once(Some(value.to_string().into()))),
        FakeReply::Text(status, text) => (status, FakeBody::Once(Some(text.into()))),
        FakeReply::Watch(events) => (200, FakeBody::Events(events)),
        FakeReply::NoAnswer => std::future::pending().await,
    };
    Ok(Response::builder().status(status).body(content).unwrap())
}

/// A body: one piece, or events as lines.
pub(super) enum FakeBody {
    Once(Option<Bytes>),
    Events(mpsc::UnboundedReceiver<Value>),
}

impl Body for FakeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            FakeBody::Once(piece) => Poll::Ready(piece.take().map(|bytes| Ok(Frame::data(bytes)))),
            FakeBody::Events(events) => events.poll_recv(cx).map(|event| {
                let event = event?;
                Some(Ok(Frame::data(format!("{event}\n").into())))
            }),
        }
    }
}

/// A list of these objects.
pub(super) fn list(items: &[Value]) -> FakeReply {
    FakeReply::Json(
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": items}),
    )
}

/// An error status in the API server's form.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message, "metadata": {}})
}

/// The 404 for the object of this path, in the API server's form.
pub(super) fn absent(path: &str) -> FakeReply {
    let mut segments = path.split('?').next().unwrap_or_default().rsplit('/');
    let (name, kind) = (segments.next(), segments.next());
    let mut status = status(404, "NotFound", "not found");
    status["details"] = json!({"kind": kind, "name": name});
    FakeReply::Json(404, status)
}

/// A watch that stays open without events. (Its sender is never dropped.)
pub(super) fn quiet() -> FakeReply {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::mem::forget(sender);
    FakeReply::Watch(receiver)
}

/// Whether a request is a GET of one object by its name.
pub(super) fn is_of_one(path: &str) -> bool {
    !["watch=", "limit=", "fieldSelector="].iter().any(|parameter| path.contains(parameter))
}

/// Whether a request is a watch.
pub(super) fn is_watch(path: &str) -> bool {
    path.contains("watch=true")
}
