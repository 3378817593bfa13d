//! One request and the head of its response.
//!
//! Owns addressing, timeouts and the retry of a request that was never sent.

use std::sync::Arc;
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
use kube::client::Body;
use tokio::time::timeout;

use crate::node::api::body::ResponseBody;
use crate::node::api::connector::WATCH;
use crate::node::api::connector::pool::Class;
use crate::node::api::connector::pool::Inner;
use crate::node::api::connector::pool::LeasedConnection;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::error::words;
use crate::node::api::kubeconfig::ApiCredentials;
use crate::node::api::selection::Selection;
use crate::node::api::shortening;
use crate::node::api::shortening::Shortening;

/// For the head of any response; watches answer at once, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

impl Inner {
    pub(super) async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<ResponseBody>, ApiFailure> {
        let class = classify(&request);
        if class == Class::Watch {
            let _ = WATCH.try_with(|watch| watch.ask(request.uri().query().unwrap_or_default()));
        }
        let permit = match class {
            Class::List => self.lists.clone().acquire_owned().await.ok(),
            Class::Large => self.large.clone().acquire_owned().await.ok(),
            Class::Watch | Class::Other => None,
        };
        let lease = self.acquire(class, permit).await?;
        let credentials = lease.credentials.clone();
        let request = address(request, &credentials)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.exchange(lease, request, class).await {
            Ok(response) => Ok(response),
            Err((failure, None)) => Err(failure),
            // The connection ended before the request was sent: retry once on another one.
            Err((_, Some(request))) => {
                let lease = self.acquire(class, None).await?;
                self.exchange(lease, *request, class).await.map_err(|(failure, _)| failure)
            }
        }
    }

    async fn exchange(
        &self,
        mut lease: LeasedConnection,
        request: Request<Body>,
        class: Class,
    ) -> Result<Response<ResponseBody>, (ApiFailure, Option<Box<Request<Body>>>)> {
        let what = format!("{} {}", request.method(), request.uri().path());
        match timeout(HEAD_TIMEOUT, lease.sender.try_send_request(request)).await {
            Ok(Ok(response)) => {
                if response.status() == StatusCode::UNAUTHORIZED {
                    // The token may just have been rotated: check the files before the next request.
                    self.with(|state| state.checked = None);
                }
                // A refused watch is an ordinary response.
                let is_watch = class == Class::Watch && response.status().is_success();
                if is_watch {
                    let _ = WATCH.try_with(|watch| watch.opened.notify_one());
                }
                let (line, guard) = (lease.line, lease.guard);
                Ok(response.map(|incoming| ResponseBody::new(incoming, line, is_watch, guard)))
            }
            Ok(Err(mut error)) => {
                let unsent = error.take_message().map(Box::new);
                let failure = lease.line.cause().unwrap_or_else(|| {
                    ApiFailure::new(FailureKind::Unreachable, format!("{what}: {}", words(error.error())))
                });
                Err((failure, unsent))
            }
            Err(_) => Err((ApiFailure::timeout(&what, HEAD_TIMEOUT), None)),
        }
    }
}

fn classify(request: &Request<Body>) -> Class {
    let query = request.uri().query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.starts_with(name));
    if request.method() != http::Method::GET {
        Class::Other
    } else if has("watch=true") {
        Class::Watch
    } else if has("fieldSelector=") || has("limit=") || has("labelSelector=") || WATCH.try_with(|_| ()).is_ok() {
        // A watch starts with a list, even of one object by its name.
        Class::List
    } else if request.uri().path().contains("/daemonsets/") {
        Class::Large
    } else {
        Class::Other
    }
}

/// Adds the server to the path, and the credentials.
fn address(request: Request<Body>, credentials: &ApiCredentials) -> Result<Request<Body>, ApiFailure> {
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
    parts.uri = uri.build().map_err(|error| ApiFailure::new(FailureKind::Protocol, error.to_string()))?;
    parts.headers.extend(credentials.headers.clone());
    let agent = concat!("daemonlet/", env!("CARGO_PKG_VERSION"));
    parts.headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    Ok(Request::from_parts(parts, body))
}

/// The service below `kube::Client`.
pub(super) struct Sender {
    pub(super) inner: Arc<Inner>,
    /// Which DaemonSets are read whole.
    pub(super) selection: Selection,
}

impl tower::Service<Request<Body>> for Sender {
    type Response = Response<ResponseBody>;
    type Error = ApiFailure;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ApiFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        shortening::ask_for_less(&mut request);
        let shortening = Shortening::of(&request, &self.selection);
        let sent = self.inner.clone().send(request);
        Box::pin(async move {
            let response = sent.await?;
            Ok(match shortening {
                Some(shortening) => response.map(|body| body.shortened_by(shortening)),
                None => response,
            })
        })
    }
}
