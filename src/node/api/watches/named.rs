//! The list and the watch of one object by its name, in as little memory as waiting takes.
//!
//! Owns what is asked and how the answer is read; its events and errors are those of kube's watcher, which
//! watches everything else. There is one of these for each object that a daemon names, and kube's holds a
//! read buffer of 8 KiB and the state of every request it could make for as long as it lives.

use std::pin::Pin;
use std::time::Duration;

use futures::AsyncBufRead;
use futures::AsyncBufReadExt;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::ListParams;
use kube::api::ObjectList;
use kube::api::VersionMatch;
use kube::api::WatchEvent;
use kube::api::WatchParams;
use kube::core::Request;
use kube::core::Status;
use kube::runtime::watcher::Error;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::time::timeout;

use crate::node::api::object::RawObject;

/// A watch that is so much longer silent than the server was to let it live has lost its server.
const MARGIN: Duration = Duration::from_secs(5);

/// What an object's stream gives.
pub(super) type WatchItem = Result<Event<RawObject>, Error>;

/// Whether an object that may be a moment old is good enough.
pub(super) type CacheReadPolicy = fn(&Value) -> bool;

/// Lists and watches what `fields` selects, for ever; each watch ends after `seconds`. `cached`: the first list may
/// come from the API server's cache, which can be a moment behind, if what it has of the object is trusted; a
/// consistent one costs it a round to etcd.
///
/// As with kube's watcher a failure ends nothing: what failed is tried again when the next word is asked for.
pub(super) fn follow(
    api: Api<RawObject>,
    fields: String,
    seconds: u32,
    cached: Option<CacheReadPolicy>,
) -> BoxStream<'static, WatchItem> {
    let named = Named { api, fields, seconds, cached, state: NextStep::Start };
    futures::stream::unfold(named, |mut named| async { Some((named.next().await, named)) }).boxed()
}

struct Named {
    api: Api<RawObject>,
    fields: String,
    seconds: u32,
    /// What of the cache will do for the next list.
    cached: Option<CacheReadPolicy>,
    state: NextStep,
}

/// What comes next.
enum NextStep {
    /// To say that a list begins.
    Start,
    /// To list.
    List,
    /// To tell what was listed, and then that this is all.
    Listed { objects: std::vec::IntoIter<RawObject>, version: String },
    /// To watch from there on.
    Resume { version: String },
    /// To read the watch.
    Watching { version: String, lines: Lines },
}

impl Named {
    /// The next word; there is always one.
    async fn next(&mut self) -> WatchItem {
        loop {
            let (word, state) = match std::mem::replace(&mut self.state, NextStep::Start) {
                NextStep::Start => (Some(Ok(Event::Init)), NextStep::List),
                // The requests are boxed: they are large, and most of the time there is none.
                NextStep::List => match Box::pin(self.list()).await {
                    Ok((objects, version)) => (None, NextStep::Listed { objects: objects.into_iter(), version }),
                    Err(error) => (Some(Err(error)), NextStep::Start),
                },
                NextStep::Listed { mut objects, version } => match objects.next() {
                    Some(object) => (Some(Ok(Event::InitApply(object))), NextStep::Listed { objects, version }),
                    None => (Some(Ok(Event::InitDone)), NextStep::Resume { version }),
                },
                NextStep::Resume { version } => match Box::pin(self.watch(&version)).await {
                    Ok(lines) => (None, NextStep::Watching { version, lines }),
                    Err(error) => (Some(Err(Error::WatchStartFailed(error))), NextStep::Resume { version }),
                },
                NextStep::Watching { version, mut lines } => {
                    let silence = Duration::from_secs(self.seconds.into()) + MARGIN;
                    match timeout(silence, lines.next()).await {
                        Ok(Some(Ok(event))) => told(event, version, lines),
                        Ok(Some(Err(error))) => {
                            (Some(Err(Error::WatchFailed(error))), NextStep::Watching { version, lines })
                        }
                        Ok(None) | Err(_) => (None, NextStep::Resume { version }),
                    }
                }
            };
            self.state = state;
            if let Some(word) = word {
                return word;
            }
        }
    }

    async fn list(&mut self) -> Result<(Vec<RawObject>, String), Error> {
        let params = ListParams::default().fields(&self.fields);
        if let Some(cache_read_policy) = self.cached.take() {
            let cached = params.clone().at("0").matching(VersionMatch::NotOlderThan);
            let list = self.api.list(&cached).await.map_err(Error::InitialListFailed)?;
            // That the cache does not have it is no evidence of anything.
            if !list.items.is_empty() && list.items.iter().all(|object| cache_read_policy(&object.value)) {
                return listed(list);
            }
        }
        // No more than one object has the name, and so there are no pages.
        listed(self.api.list(&params).await.map_err(Error::InitialListFailed)?)
    }

    async fn watch(&mut self, version: &str) -> Result<Lines, kube::Error> {
        let params = WatchParams::default().fields(&self.fields).timeout(self.seconds);
        let request =
            Request::new(self.api.resource_url()).watch(&params, version).map_err(kube::Error::BuildRequest)?;
        let body = self.api.clone().into_client().request_stream(request).await?;
        Ok(Lines { body: Box::pin(body) })
    }
}

/// The objects of a list, and the version that the watch goes on from.
fn listed(list: ObjectList<RawObject>) -> Result<(Vec<RawObject>, String), Error> {
    let version = list.metadata.resource_version.filter(|version| !version.is_empty());
    version.map(|version| (list.items, version)).ok_or(Error::NoResourceVersion)
}

/// What an event of the watch says, and how it goes on.
fn told(event: WatchEvent<RawObject>, version: String, lines: Lines) -> (Option<WatchItem>, NextStep) {
    let (word, reached): (fn(RawObject) -> Event<RawObject>, RawObject) = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => (Event::Apply, object),
        WatchEvent::Deleted(object) => (Event::Delete, object),
        WatchEvent::Bookmark(bookmark) => {
            return (None, NextStep::Watching { version: bookmark.metadata.resource_version, lines });
        }
        WatchEvent::Error(status) => {
            let expired = status.code == 410;
            let state = if expired { NextStep::Start } else { NextStep::Watching { version, lines } };
            return (Some(Err(Error::WatchError(status))), state);
        }
    };
    match reached.resource_version().to_owned() {
        version if version.is_empty() => (Some(Err(Error::NoResourceVersion)), NextStep::Start),
        version => (Some(Ok(word(reached))), NextStep::Watching { version, lines }),
    }
}

/// The events of a watch, a line each. Between two lines no buffer is held.
struct Lines {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
}

impl Lines {
    /// The next event; `None` at the end, and where the last line breaks off.
    async fn next(&mut self) -> Option<Result<WatchEvent<RawObject>, kube::Error>> {
        loop {
            let mut line = Vec::new();
            match self.body.read_until(b'\n', &mut line).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(kube::Error::ReadEvents(error))),
            }
            match serde_json::from_slice(&line) {
                Ok(event) => return Some(Ok(event)),
                Err(error) if error.is_eof() => {}
                Err(error) => {
                    let status = serde_json::from_slice::<Status>(&line).map(Status::boxed);
                    return Some(Err(status.map_or(kube::Error::SerdeError(error), kube::Error::Api)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
