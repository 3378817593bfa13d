//! Response bodies: counted, with timeouts, and with errors that name the cause.
//!
//! Owns what happens between a response's head and its end. Must not interpret the bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Body;
use hyper::body::Bytes;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::body::SizeHint;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::node::api::connector::pool::Inner;
use crate::node::api::dial::Line;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::error::words;
use crate::node::api::shortening::Shortening;

/// An ordinary response that pauses this long is given up.
pub(super) const BODY_SILENCE: Duration = Duration::from_secs(30);
/// A watch that ends sooner is a failure (client-go: "very short watch"): kube's watcher would retry at once, in a
/// tight loop.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Counts a stream on its connection while it exists.
pub(super) struct StreamGuard {
    pub(super) inner: Arc<Inner>,
    pub(super) streams: Arc<std::sync::atomic::AtomicUsize>,
    /// Held by lists, which are limited in number.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl StreamGuard {
    pub(super) fn new(
        inner: Arc<Inner>,
        streams: Arc<std::sync::atomic::AtomicUsize>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self { inner, streams, permit }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.permit.take();
        if self.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.inner.close_spare();
        }
    }
}

pub(super) struct ResponseBody {
    incoming: Incoming,
    line: Arc<Line>,
    /// `None` for watches: the connection's pings cover those.
    silence: Option<Pin<Box<Sleep>>>,
    watch_since: Option<Instant>,
    done: bool,
    shortening: Option<Box<Shortening>>,
    _guard: StreamGuard,
}

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, line: Arc<Line>, is_watch: bool, guard: StreamGuard) -> Self {
        Self {
            incoming,
            line,
            silence: (!is_watch).then(|| Box::pin(tokio::time::sleep(BODY_SILENCE))),
            watch_since: is_watch.then(Instant::now),
            done: false,
            shortening: None,
            _guard: guard,
        }
    }

    /// The same with its objects shortened.
    pub(super) fn shortened_by(self, shortening: Shortening) -> Self {
        Self { shortening: Some(Box::new(shortening)), ..self }
    }

    /// The part of a frame that is passed on; `None`: nothing.
    fn shortened(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let Some(shortening) = &mut self.shortening else { return Some(frame) };
        let bytes = match frame.into_data() {
            Ok(bytes) => shortening.feed(&bytes),
            Err(trailers) => return Some(trailers),
        };
        (!bytes.is_empty()).then(|| Frame::data(bytes.into()))
    }

    fn end(&self) -> Option<ApiFailure> {
        let since = self.watch_since?;
        let short = since.elapsed() < SHORT_WATCH;
        short.then(|| ApiFailure::new(FailureKind::Server, "the server ended the watch at once"))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ApiFailure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ApiFailure>>> {
        if self.done {
            return Poll::Ready(None);
        }
        loop {
            return match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(silence) = &mut self.silence {
                        silence.as_mut().reset(Instant::now() + BODY_SILENCE);
                    }
                    let Some(frame) = self.shortened(frame) else { continue };
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(Some(Err(error))) => {
                    self.done = true;
                    let failure = self.line.cause().unwrap_or_else(|| {
                        ApiFailure::new(FailureKind::Unreachable, format!("response cut off: {}", words(&error)))
                    });
                    Poll::Ready(Some(Err(failure)))
                }
                Poll::Ready(None) => {
                    self.done = true;
                    Poll::Ready(self.end().map(Err))
                }
                Poll::Pending => {
                    let Some(silence) = &mut self.silence else { return Poll::Pending };
                    if silence.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.done = true;
                    Poll::Ready(Some(Err(ApiFailure::timeout("the response stopped in the middle", BODY_SILENCE))))
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        // A watch that ends at once must be polled to become an error.
        self.done || (self.watch_since.is_none() && self.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.shortening {
            Some(_) => SizeHint::default(),
            None => self.incoming.size_hint(),
        }
    }
}
