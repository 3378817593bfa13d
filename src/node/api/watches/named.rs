//! One object by its name: a GET for the first answer, and a watch that begins with the object as it is then.
//!
//! Owns the requests and the reading of answers. Its events and errors are those of kube's watcher, which watches
//! everything else. There is one of these for each referenced object, and kube's watcher holds a read buffer of 8 KiB
//! and the state of every request for as long as it lives.
//!
//! Not a LIST: the API server answers a consistent LIST from its cache once that has caught up with etcd. If the last
//! write was to another resource, as when a ConfigMap is created before its DaemonSet, the cache learns of it by a
//! progress notification, which the API server requests from etcd every 100 ms. A GET is read from etcd.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::GetParams;
use kube::api::ListParams;
use kube::api::WatchEvent;
use kube::api::WatchParams;
use kube::core::Request;
use kube::core::Status;
use kube::runtime::watcher::Error;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::time::timeout;

use crate::core::dns;
use crate::core::model::ObjectRef;
use crate::node::api::confirm::is_absence;
use crate::node::api::object::RawObject;
use crate::node::api::object::resource;
use crate::node::api::shortening::INITIAL_EVENTS_END;

use super::lines::Lines;
use super::lines::NextLine;
use super::lines::Turns;
use super::lines::WatchTurn;

/// A watch that is silent for this much longer than its lifetime has lost its server.
const MARGIN: Duration = Duration::from_secs(5);

/// An event of the object, as kube's watcher gives it.
pub(super) type WatchItem = Result<Event<RawObject>, Error>;

/// Whether an object from the API server's cache, which may be a moment old, is good enough.
pub(super) type CacheReadPolicy = fn(&Value) -> bool;

/// Reads and watches `object` for ever; each watch ends after `seconds`. `cached`: the first GET may be answered from
/// the API server's cache if that object is good enough; a consistent GET needs a round trip to etcd.
///
/// As with kube's watcher, a failure ends nothing: the request is repeated when the next event is polled.
pub(super) fn follow(
    api: Api<RawObject>,
    object: ObjectRef,
    seconds: u32,
    cached: Option<CacheReadPolicy>,
    turns: Turns,
) -> BoxStream<'static, WatchItem> {
    let state = NextStep::Start;
    let named = NamedWatch { api, object, seconds, cached, streams_state: true, turns, turn: None, state };
    futures::stream::unfold(named, |mut named| async { Some((named.next().await, named)) }).boxed()
}

struct NamedWatch {
    api: Api<RawObject>,
    object: ObjectRef,
    seconds: u32,
    /// For the next GET.
    cached: Option<CacheReadPolicy>,
    /// Whether the API server has not refused a watch with initial events yet.
    streams_state: bool,
    /// Large objects are read in turns.
    turns: Turns,
    /// For the next watch.
    turn: Option<WatchTurn>,
    state: NextStep,
}

/// What comes next.
enum NextStep {
    Start,
    Get,
    /// Reports what was found, then that the list is complete.
    Found(Option<RawObject>, WatchStart),
    Watch(WatchStart),
    Read(WatchStart, Lines),
    /// Watches again when it is this watch's turn.
    Wait(WatchStart),
}

/// Where a watch starts.
enum WatchStart {
    /// After this version.
    Version(String),
    /// With the object as it is at this version or later (empty: now); what happened since the GET is unknown.
    State { version: String, is_reported: bool },
}

impl WatchStart {
    fn state(version: &str) -> Self {
        WatchStart::State { version: version.to_owned(), is_reported: false }
    }
}

/// The next event, if there is one already, and the next step.
type WatchStep = (Option<WatchItem>, NextStep);

impl NamedWatch {
    /// The next event; there is always one.
    async fn next(&mut self) -> WatchItem {
        loop {
            let (event, state) = self.step().await;
            self.state = state;
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// The requests are boxed: they are large, and most of the time there is none.
    async fn step(&mut self) -> WatchStep {
        match std::mem::replace(&mut self.state, NextStep::Start) {
            NextStep::Start => (Some(Ok(Event::Init)), NextStep::Get),
            NextStep::Get => match Box::pin(self.get()).await {
                Ok(found) => {
                    let origin = WatchStart::state(found.as_ref().map_or("", RawObject::resource_version));
                    (None, NextStep::Found(found, origin))
                }
                Err(error) => (Some(Err(Error::InitialListFailed(error))), NextStep::Start),
            },
            NextStep::Found(Some(object), origin) => {
                (Some(Ok(Event::InitApply(object))), NextStep::Found(None, origin))
            }
            NextStep::Found(None, origin) => (Some(Ok(Event::InitDone)), NextStep::Watch(origin)),
            NextStep::Watch(_) if !self.can_exist() => std::future::pending().await,
            NextStep::Watch(WatchStart::State { .. }) if !self.streams_state => match Box::pin(self.list()).await {
                Ok((event, version)) => (Some(Ok(event)), NextStep::Watch(WatchStart::Version(version))),
                Err(error) => (Some(Err(error)), NextStep::Start),
            },
            NextStep::Watch(origin) => match Box::pin(self.watch(&origin)).await {
                Ok(lines) => match origin {
                    WatchStart::State { version, .. } => (None, NextStep::Read(WatchStart::state(&version), lines)),
                    WatchStart::Version(_) => (None, NextStep::Read(origin, lines)),
                },
                Err(kube::Error::Api(status)) => {
                    self.refused(origin, status, |status| Error::WatchStartFailed(kube::Error::Api(status)))
                }
                Err(error) => (Some(Err(Error::WatchStartFailed(error))), NextStep::Watch(origin)),
            },
            NextStep::Read(origin, mut lines) => {
                let silence = Duration::from_secs(self.seconds.into()) + MARGIN;
                match timeout(silence, lines.next()).await {
                    Ok(NextLine::Event(event)) => self.read(event, origin, lines),
                    Ok(NextLine::Failed(error)) => {
                        (Some(Err(Error::WatchFailed(error))), NextStep::Read(origin, lines))
                    }
                    Ok(NextLine::OutOfTurn) => (None, NextStep::Wait(origin)),
                    Ok(NextLine::End) | Err(_) => (None, NextStep::Watch(origin)),
                }
            }
            NextStep::Wait(origin) => {
                self.turn = self.turns.wait().await;
                (None, NextStep::Watch(origin))
            }
        }
    }

    /// The API server cannot store an object with such a name, and the name becomes part of a path.
    fn can_exist(&self) -> bool {
        dns::subdomain(&self.object.key.name).is_none()
    }

    async fn get(&mut self) -> Result<Option<RawObject>, kube::Error> {
        if !self.can_exist() {
            return Ok(None);
        }
        if let Some(is_good_enough) = self.cached.take() {
            // Absence from the cache is no evidence.
            let found = self.get_with(&GetParams::at("0")).await?;
            if found.as_ref().is_some_and(|found| is_good_enough(&found.value)) {
                return Ok(found);
            }
        }
        self.get_with(&GetParams::default()).await
    }

    async fn get_with(&mut self, params: &GetParams) -> Result<Option<RawObject>, kube::Error> {
        let name = &self.object.key.name;
        match self.api.get_with(name, params).await {
            Err(kube::Error::Api(status)) if is_absence(&status, &resource(self.object.kind).plural, name) => Ok(None),
            found => found?.asked_for(name).map(Some),
        }
    }

    /// For an API server that refuses watches with initial events: the present object, and the version to watch from.
    async fn list(&mut self) -> Result<(Event<RawObject>, String), Error> {
        // At most one object has the name, so there are no pages.
        let params = ListParams::default().fields(&self.fields());
        let mut list = self.api.list(&params).await.map_err(Error::InitialListFailed)?;
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        let found = list.items.pop().map(|object| object.asked_for(&self.object.key.name)).transpose();
        let event = found.map_err(Error::InitialListFailed)?.map_or_else(|| self.gone(), Event::Apply);
        Ok((event, version.ok_or(Error::NoResourceVersion)?))
    }

    async fn watch(&mut self, origin: &WatchStart) -> Result<Lines, kube::Error> {
        let params = WatchParams::default().fields(&self.fields()).timeout(self.seconds);
        let (params, version) = match origin {
            WatchStart::Version(version) => (params, version),
            WatchStart::State { version, .. } => (params.initial_events(), version),
        };
        // A request that fails gives it back.
        let turn = self.turn.take();
        let request =
            Request::new(self.api.resource_url()).watch(&params, version).map_err(kube::Error::BuildRequest)?;
        let body = self.api.clone().into_client().request_stream(request).await?;
        Ok(Lines::new(body, self.turns.clone(), turn))
    }

    fn fields(&self) -> String {
        format!("metadata.name={}", self.object.key.name)
    }

    fn gone(&self) -> Event<RawObject> {
        Event::Delete(RawObject::named(&self.object.key))
    }

    fn read(&mut self, event: WatchEvent<RawObject>, origin: WatchStart, lines: Lines) -> WatchStep {
        let (event, object): (fn(RawObject) -> Event<RawObject>, RawObject) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (Event::Apply, object),
            WatchEvent::Deleted(object) => (Event::Delete, object),
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                let is_end = bookmark.metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|end| end == "true");
                return match origin {
                    WatchStart::State { .. } if !is_end => (None, NextStep::Read(origin, lines)),
                    WatchStart::State { is_reported: false, .. } => {
                        (Some(Ok(self.gone())), NextStep::Read(WatchStart::Version(version), lines))
                    }
                    _ => (None, NextStep::Read(WatchStart::Version(version), lines)),
                };
            }
            WatchEvent::Error(status) if status.code == 410 => return self.refused(origin, status, Error::WatchError),
            WatchEvent::Error(status) => return (Some(Err(Error::WatchError(status))), NextStep::Read(origin, lines)),
        };
        let object = match object.asked_for(&self.object.key.name) {
            Ok(object) => object,
            Err(error) => return (Some(Err(Error::WatchFailed(error))), NextStep::Start),
        };
        let version = object.resource_version().to_owned();
        let origin = match origin {
            _ if version.is_empty() => return (Some(Err(Error::NoResourceVersion)), NextStep::Start),
            WatchStart::Version(_) => WatchStart::Version(version),
            WatchStart::State { .. } => WatchStart::State { version, is_reported: true },
        };
        (Some(Ok(event(object))), NextStep::Read(origin, lines))
    }

    /// The API server refuses a watch from there.
    fn refused(
        &mut self,
        origin: WatchStart,
        status: Box<Status>,
        error: impl FnOnce(Box<Status>) -> Error,
    ) -> WatchStep {
        match (&origin, status.code) {
            (WatchStart::Version(version), 410) if self.streams_state => {
                (None, NextStep::Watch(WatchStart::state(version)))
            }
            (WatchStart::State { .. }, 400 | 422) if self.streams_state => {
                self.streams_state = false;
                (None, NextStep::Watch(origin))
            }
            (_, 410) => (Some(Err(error(status))), NextStep::Start),
            _ => (Some(Err(error(status))), NextStep::Watch(origin)),
        }
    }
}

#[cfg(test)]
mod tests;
