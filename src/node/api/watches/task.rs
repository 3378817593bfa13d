//! The life of one watch: its list, its events, and retries after a failure.
//!
//! Owns when a watch restarts. Must not choose what is watched (`super`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::ListParams;
use kube::discovery::ApiResource;
use kube::runtime::watcher;
use kube::runtime::watcher::Config;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::time::doubled;
use crate::node::api::backoff;
use crate::node::api::connector::WATCH;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::object;
use crate::node::api::object::RawObject;
use crate::node::api::store::Scope;
use crate::node::api::store::Store;
use crate::node::api::store::key_of;

use super::WatchContext;
use super::WatchProgress;
use super::named;
use super::named::CacheReadPolicy;
use super::retry::Retry;
use super::retry::WatchPriority;

/// A watch that ends normally lives longer than this ([`super::config`]).
const IN_ORDER: Duration = Duration::from_secs(235);
/// The DaemonSets are listed again about this often: that shows a deletion that a watch missed.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// Failed resumptions in a row, after which everything is listed again.
const RESUMES: u32 = 3;
/// A ServiceAccount is not watched, but read again after about this time. Upstream reads it only when a pod is created; its
/// tokens are requested anyway. Immutable objects are watched as others: one that is replaced counts for the next pod.
const READ_AGAIN: Duration = Duration::from_secs(600);
/// What has no room is read again after about this time, then each time after twice as long, up to [`READ_AGAIN`].
const NO_ROOM_AGAIN: Duration = Duration::from_secs(60);

/// A referenced object is watched up to this long after it was first read. All nodes of a cluster read a new
/// DaemonSet's objects at once, and their manifests wait for these reads, not for the watches. Nothing is missed: the
/// watch starts with the present object.
const WATCH_AFTER: Duration = Duration::from_secs(6);

/// A cluster without NodeDaemons is checked for them again after about this time.
const MISSING_CHECK: Duration = Duration::from_secs(20);

/// One watch. Rare waits are boxed: this future exists for each referenced object.
pub(super) struct WatchTask {
    pub(super) scope: Scope,
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) config: Config,
    /// What is kept of an object, if it is.
    pub(super) keep: Box<dyn Fn(Value) -> Option<Value> + Send + Sync>,
}

/// Why one run of a watch ended.
enum WatchEnd {
    /// The resource version has expired: list again.
    Relist,
    /// Everything is known, and is read again after [`READ_AGAIN`].
    NotWatched,
    /// There is no room for the object. It is read again when there is, or after [`NO_ROOM_AGAIN`], when it may be smaller:
    /// a watch would bring the whole of it with each change.
    NoRoom,
}

/// When an object is read again that had no room for the `times`th time.
fn no_room_again(times: u32) -> Duration {
    doubled(NO_ROOM_AGAIN, times.saturating_sub(1), READ_AGAIN)
}

impl WatchTask {
    pub(super) fn spawn(self, context: &Arc<WatchContext>) -> AbortHandle {
        context.store.open(&self.scope);
        let context = Arc::clone(context);
        let watch_progress = Arc::new(WatchProgress::default());
        tokio::spawn(WATCH.scope(watch_progress.clone(), Box::new(self).run(context, watch_progress))).abort_handle()
    }

    async fn run(self: Box<Self>, context: Arc<WatchContext>, watch_progress: Arc<WatchProgress>) {
        let priority = match self.scope {
            Scope::DaemonSets => WatchPriority::Leading,
            Scope::NodeDaemons => WatchPriority::First,
            _ => WatchPriority::Later,
        };
        let mut retry = Retry::new(context.link.clone(), priority, context.order.clone());
        let mut gone_back = context.etcd_rollback.gone_back();
        let mut cache_read_policy = context.cache_read_policy(&self.scope);
        let mut without_room = 0;
        loop {
            gone_back.mark_unchanged();
            let began = Instant::now();
            let ended = tokio::select! {
                biased;
                // Its sender lives as long as the context.
                Ok(()) = gone_back.changed() => WatchEnd::Relist,
                () = self.is_old() => WatchEnd::Relist,
                ended = self.watch(&context, &mut retry, &watch_progress, cache_read_policy) => ended,
            };
            cache_read_policy = None;
            let rest = match ended {
                WatchEnd::Relist => continue,
                WatchEnd::NotWatched => READ_AGAIN,
                WatchEnd::NoRoom if began.elapsed() > READ_AGAIN => {
                    without_room = 1;
                    NO_ROOM_AGAIN
                }
                WatchEnd::NoRoom => {
                    without_room += 1;
                    no_room_again(without_room)
                }
            };
            let rest = tokio::time::timeout(rest.mul_f64(0.5 + backoff::random()), gone_back.changed());
            let room = context.store.room(&self.scope);
            Box::pin(async {
                tokio::select! { _ = rest => {} () = room => {} }
            })
            .await;
        }
    }

    /// Waits until the list is old enough to be repeated, whatever the watch reports.
    async fn is_old(&self) {
        match self.scope {
            Scope::DaemonSets => {
                Box::pin(tokio::time::sleep(LOOK_AGAIN.mul_f64(0.75 + backoff::random() / 2.0))).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// A watch was accepted. If it was cut off before, it may have missed that etcd was restored.
    fn opened(&self, context: &WatchContext, watch_progress: &Arc<WatchProgress>, was_cut_off: bool) {
        if self.scope == Scope::DaemonSets {
            context.store.history_continues_at(watch_progress.asked());
        }
        if was_cut_off && watch_progress.asked() > 0 {
            let one = ListParams {
                field_selector: self.config.field_selector.clone(),
                label_selector: self.config.label_selector.clone(),
                ..ListParams::default()
            };
            context.etcd_rollback.resumed(&self.resource.plural, watch_progress, self.api(context), one);
        }
    }

    fn api(&self, context: &WatchContext) -> Api<RawObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, &self.resource),
            None => Api::all_with(context.client.clone(), &self.resource),
        }
    }

    /// Runs the watch for ever.
    fn stream(
        &self,
        context: &WatchContext,
        cache_read_policy: Option<CacheReadPolicy>,
    ) -> BoxStream<'static, named::WatchItem> {
        match (&self.scope, self.config.timeout) {
            (Scope::Object(object), Some(seconds)) => {
                named::follow(self.api(context), object.clone(), seconds, cache_read_policy, context.turns.clone())
            }
            _ => watcher(self.api(context), self.config.clone()).boxed(),
        }
    }

    async fn watch(
        &self,
        context: &WatchContext,
        retry: &mut Retry,
        watch_progress: &Arc<WatchProgress>,
        cache_read_policy: Option<CacheReadPolicy>,
    ) -> WatchEnd {
        let store = &context.store;
        // The acceptance of an earlier watch does not count for this one.
        let _ = watch_progress.opened.notified().now_or_never();
        let mut stream = self.stream(context, cache_read_policy);
        let mut seen = BTreeSet::new();
        let (mut is_done, mut is_listed) = (false, false);
        let mut resumes = 0;
        // Since when, and over which connection, the watch continues; `None` before the first of this list.
        let mut open: Option<(Instant, u64)> = None;
        let mut failed = false;
        loop {
            // It is not given up for want of room before it has been read this time.
            if is_listed && store.lacks_room(&self.scope) {
                store.recovered(&self.scope);
                return WatchEnd::NoRoom;
            }
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = watch_progress.opened.notified() => {
                    let line = context.etcd_rollback.lines_opened();
                    let before = open.replace((Instant::now(), line));
                    let in_order = |(since, before): (Instant, u64)| {
                        !failed && line == before && since.elapsed() >= IN_ORDER
                    };
                    self.opened(context, watch_progress, before.is_some_and(|before| !in_order(before)));
                    failed = false;
                    store.recovered(&self.scope);
                    retry.established();
                    resumes = 0;
                    continue;
                }
            };
            let Some(event) = event else { return WatchEnd::Relist };
            match event {
                Ok(Event::Init) => {
                    open = None;
                    seen.clear();
                    (is_done, is_listed) = (false, false);
                }
                Ok(Event::InitApply(object)) => {
                    is_done |= self.apply(context, object, Some(&mut seen));
                }
                Ok(Event::InitDone) => {
                    store.complete(&self.scope, &seen);
                    is_listed = true;
                    let is_there = !seen.is_empty();
                    seen.clear();
                    store.wake();
                    if is_done {
                        store.recovered(&self.scope);
                        return WatchEnd::NotWatched;
                    }
                    // Missing objects are waited for.
                    if is_there && matches!(self.scope, Scope::Object(_)) && !store.lacks_room(&self.scope) {
                        Box::pin(tokio::time::sleep(WATCH_AFTER.mul_f64(0.5 + backoff::random() / 2.0))).await;
                    }
                }
                Ok(Event::Apply(object)) => {
                    let is_done = self.apply(context, object, None);
                    store.wake();
                    if is_done {
                        return WatchEnd::NotWatched;
                    }
                }
                Ok(Event::Delete(object)) => {
                    store.delete(&self.scope, &object.value);
                    store.wake();
                }
                Err(error) => {
                    let failure = ApiFailure::from_watcher(&error);
                    let is_expired = failure.kind == FailureKind::Expired;
                    failed = true;
                    if is_expired {
                        watch_progress.expired();
                    }
                    let resumed = matches!(error, watcher::Error::WatchStartFailed(_))
                        && !failure.is_link()
                        && !retry.is_settling();
                    resumes += u32::from(resumed);
                    // kube's watcher keeps its resource version when the answer to the watch itself is 410, and would
                    // never list again.
                    let stuck = is_expired || resumes > RESUMES;
                    if self.is_missing(&failure) {
                        // Agents work without that resource; it may be installed later.
                        store.missing(&self.scope);
                        Box::pin(tokio::time::sleep(MISSING_CHECK.mul_f64(0.5 + backoff::random()))).await;
                        return WatchEnd::Relist;
                    }
                    if retry.is_news(&failure) {
                        self.report(store, failure);
                    }
                    Box::pin(retry.pause(is_expired)).await;
                    if stuck {
                        return WatchEnd::Relist;
                    }
                }
            }
        }
    }

    /// Whether the cluster does not have the resource.
    fn is_missing(&self, failure: &ApiFailure) -> bool {
        self.scope == Scope::NodeDaemons && failure.kind == FailureKind::NotFound
    }

    /// Whether the object need not be watched.
    fn apply(&self, context: &WatchContext, object: RawObject, seen: Option<&mut BTreeSet<ObjectKey>>) -> bool {
        let key = key_of(&object.value);
        match (self.keep)(object.value).filter(|_| context.store.has_place(&self.scope, &key)) {
            Some(value) => {
                if let Some(seen) = seen {
                    seen.insert(key);
                }
                let lasts = self.scope != Scope::DaemonSets;
                let value = Arc::new(if lasts { object::compact(value) } else { value });
                context.store.apply(&self.scope, context.known_or(&self.scope, value));
                matches!(&self.scope, Scope::Object(object) if object.kind == Kind::ServiceAccount)
            }
            None => {
                // An object that was one of them is not any more.
                if matches!(self.scope, Scope::Pending(_)) {
                    context.store.delete(&self.scope, &RawObject::named(&key).value);
                }
                false
            }
        }
    }

    fn report(&self, store: &Store, failure: ApiFailure) {
        let message = failure.message.clone();
        if store.failed(&self.scope, failure) {
            tracing::warn!(scope = %self.scope, "watch of {} failed: {message}; trying again", self.scope);
        }
        store.wake();
    }
}
