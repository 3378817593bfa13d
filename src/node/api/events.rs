//! Events (events.k8s.io/v1): what happened to DaemonSets on this node.
//!
//! News about the DaemonSet is an event on it, and every node of a cluster may send the same. All agents give
//! such an event the same name, so that the API server takes the first of each hour and refuses the others: without a
//! coordinator, too, a rollout over 5,000 nodes makes a handful of events. What concerns this node alone is an event on
//! its Node.
//!
//! Owns a short queue and the sending. Warnings are sent at once; normal events wait for a random time, because a
//! change of a DaemonSet reaches all nodes at once. Recording never blocks. What does not fit, or stays unsent for too
//! long, is dropped, oldest first, and counted. A repeated event becomes a series.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use http::Request;
use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;
use tokio::sync::Notify;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::model::ObjectKey;
use crate::node::api::backoff::random;
use crate::node::api::connector::Link;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;

/// How many events may wait.
const QUEUE: usize = 256;
/// How many different events are remembered for series.
const REMEMBERED: usize = 256;
/// The same event within this time is a series, as in client-go's recorder.
const SERIES: Duration = Duration::from_secs(360);
/// Time between two writes of the same series.
const SERIES_WRITE: Duration = Duration::from_secs(60);
/// The burst of events, and the time for one more.
const BURST: u32 = 32;
const PACE: Duration = Duration::from_millis(200);
/// Normal events are sent up to this long after they happened, at a different moment on each node.
const SPREAD: Duration = Duration::from_secs(10);
/// The time in which the agents of a cluster have one event on a DaemonSet for one cause: as long as the API server keeps
/// events by default.
const SHARED: Duration = Duration::from_secs(3600);
/// Where events on Nodes are.
const NODE_NAMESPACE: &str = "default";
/// The API's size limits in bytes.
const NOTE_LIMIT: usize = 1024;
const INSTANCE_LIMIT: usize = 128;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum EventKind {
    Normal,
    Warning,
}

/// The object that shows an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// The DaemonSet. One event for each reason and cause, whichever node comes first: nothing in the cause differs from
    /// node to node unless the cause does.
    DaemonSet { cause: String },
    /// The own Node.
    Node { name: String, uid: String },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEvent {
    pub regarding: Regarding,
    pub daemon_set: ObjectKey,
    /// The `metadata.uid` of the DaemonSet.
    pub uid: String,
    pub kind: EventKind,
    /// The reason, one CamelCase word: `Refused`, `Removed`, …
    pub reason: String,
    /// The action, one CamelCase word.
    pub action: String,
    /// The note; cut at 1 KiB.
    pub note: String,
}

/// The queue; clones share it.
#[derive(Clone)]
pub struct EventRecorder {
    state: Arc<Mutex<EventQueue>>,
    ready: Arc<Notify>,
    /// Notified whenever nothing is left to send.
    sent: Arc<Notify>,
    node: Arc<str>,
}

#[derive(Default)]
struct EventQueue {
    queue: VecDeque<(AgentEvent, jiff::Timestamp)>,
    sent: VecDeque<SentEvent>,
    /// Earliest time of the next write.
    not_before: Option<Instant>,
    dropped: u64,
}

/// An event that is in the API, for its series.
struct SentEvent {
    event: AgentEvent,
    name: String,
    count: u32,
    last: Instant,
    written: Instant,
}

/// A write to be sent.
#[derive(Debug, PartialEq)]
struct EventWrite {
    event: AgentEvent,
    name: String,
    body: Value,
    is_series: bool,
}

impl EventRecorder {
    /// A queue for the agent of this node.
    pub(super) fn new(node: &str) -> Self {
        Self {
            state: Arc::default(),
            ready: Arc::default(),
            sent: Arc::default(),
            node: cut(node, INSTANCE_LIMIT).into(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut EventQueue) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records an event. Returns at once, whatever the API server does. A DaemonSet that only a folder defines has no
    /// UID in the API and gets no events.
    pub fn record(&self, event: AgentEvent) {
        if event.uid.is_empty() {
            return;
        }
        self.with(|state| {
            if state.queue.len() >= QUEUE {
                state.queue.pop_front();
                state.dropped += 1;
            }
            match event.kind {
                EventKind::Warning => state.not_before = None,
                EventKind::Normal if state.queue.is_empty() => {
                    state.not_before = Some(Instant::now() + SPREAD.mul_f64(0.4 + 0.6 * random()));
                }
                EventKind::Normal => {}
            }
            state.queue.push_back((event, crate::clock::exact()));
        });
        self.ready.notify_one();
    }

    /// Events that were dropped unsent.
    pub fn dropped(&self) -> u64 {
        self.with(|state| state.dropped)
    }

    /// Sends waiting events at once; returns when they are sent, or after `bound`.
    pub(super) async fn flush(&self, bound: Duration) {
        let sent = self.sent.notified();
        self.with(|state| state.not_before = None);
        self.ready.notify_one();
        // What is not sent by then is lost; it is only an event.
        let _ = tokio::time::timeout(bound, sent).await;
    }

    /// Sends for ever.
    pub(super) async fn keep(self, client: kube::Client, link: watch::Receiver<Link>) {
        let mut link = link;
        let mut credit = BURST;
        let mut refilled = Instant::now();
        loop {
            if link.wait_for(|link| *link == Link::Up).await.is_err() {
                return;
            }
            if let Some(not_before) = self.with(|state| state.not_before).filter(|at| *at > Instant::now()) {
                tokio::select! {
                    () = tokio::time::sleep_until(not_before) => {}
                    () = self.ready.notified() => {}
                }
                continue;
            }
            let Some(write) = self.next(Instant::now()) else {
                self.sent.notify_waiters();
                self.ready.notified().await;
                continue;
            };
            let earned = (refilled.elapsed().as_millis() / PACE.as_millis()) as u32;
            if earned > 0 {
                credit = credit.saturating_add(earned).min(BURST);
                refilled = Instant::now();
            }
            if credit == 0 {
                tokio::time::sleep(PACE).await;
            }
            credit = credit.saturating_sub(1);
            if let Err(failure) = send(&client, &write).await {
                self.give_up(write, failure);
            }
        }
    }

    /// The next write, if any; a repetition within a minute is only counted.
    fn next(&self, now: Instant) -> Option<EventWrite> {
        let node = self.node.clone();
        self.with(|state| {
            loop {
                let (event, time) = state.queue.pop_front()?;
                state.sent.retain(|sent| now.saturating_duration_since(sent.last) < SERIES);
                if let Some(sent) = state.sent.iter_mut().find(|sent| sent.event == event) {
                    sent.count += 1;
                    sent.last = now;
                    if now.saturating_duration_since(sent.written) < SERIES_WRITE {
                        continue;
                    }
                    sent.written = now;
                    let body = json!({"series": {"count": sent.count, "lastObservedTime": micro_time(time)}});
                    return Some(EventWrite { event, name: sent.name.clone(), body, is_series: true });
                }
                let name = event_name(&event, &node, time);
                if state.sent.len() >= REMEMBERED {
                    state.sent.pop_front();
                }
                let sent = SentEvent { event: event.clone(), name: name.clone(), count: 1, last: now, written: now };
                state.sent.push_back(sent);
                let body = new_event(&event, &name, &node, time);
                return Some(EventWrite { event, name, body, is_series: false });
            }
        })
    }

    /// An event is not retried, unless there was no connection. One that another node has made is not needed.
    fn give_up(&self, write: EventWrite, failure: ApiFailure) {
        let is_shared = matches!(write.event.regarding, Regarding::DaemonSet { .. });
        if is_shared && !write.is_series && failure.kind == FailureKind::Conflict {
            return self.with(|state| state.sent.retain(|sent| sent.name != write.name));
        }
        let note = format!("event {} for {} not sent: {failure}", write.event.reason, write.event.daemon_set);
        tracing::debug!("{note}");
        self.with(|state| {
            // Without the first event there is no series to continue.
            state.sent.retain(|sent| sent.name != write.name);
            if failure.is_link() && state.queue.len() < QUEUE {
                state.queue.push_front((write.event, crate::clock::exact()));
            } else {
                state.dropped += 1;
            }
        });
    }
}

async fn send(client: &kube::Client, write: &EventWrite) -> Result<(), ApiFailure> {
    let base = format!("/apis/events.k8s.io/v1/namespaces/{}/events", namespace(&write.event));
    let (builder, content) = if write.is_series {
        (Request::patch(format!("{base}/{}", write.name)), "application/merge-patch+json")
    } else {
        (Request::post(base), "application/json")
    };
    let request = builder
        .header(http::header::CONTENT_TYPE, content)
        .body(write.body.to_string().into_bytes())
        .map_err(|error| ApiFailure::new(FailureKind::Protocol, error.to_string()))?;
    let answer = client.request_text(request).await;
    answer.map(drop).map_err(|error| ApiFailure::from_kube(&error))
}

fn namespace(event: &AgentEvent) -> &str {
    match event.regarding {
        Regarding::DaemonSet { .. } => &event.daemon_set.namespace,
        Regarding::Node { .. } => NODE_NAMESPACE,
    }
}

fn new_event(event: &AgentEvent, name: &str, node: &str, time: jiff::Timestamp) -> Value {
    let key = &event.daemon_set;
    let daemon_set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "namespace": key.namespace,
        "name": key.name,
        "uid": event.uid,
    });
    let (regarding, related) = match &event.regarding {
        Regarding::DaemonSet { .. } => (daemon_set, None),
        Regarding::Node { name, uid } => {
            (json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}), Some(daemon_set))
        }
    };
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace(event)},
        "eventTime": micro_time(time),
        "reportingController": "daemonlet",
        "reportingInstance": node,
        "type": match event.kind { EventKind::Normal => "Normal", EventKind::Warning => "Warning" },
        "reason": event.reason,
        "action": event.action,
        "note": cut(&event.note, NOTE_LIMIT),
        "regarding": regarding,
        "related": related,
    })
}

/// `<object>.<16 hex digits>`, as client-go names them. On a DaemonSet: the same on each node for one cause, in an hour.
/// On a Node: another one each time.
fn event_name(event: &AgentEvent, node: &str, time: jiff::Timestamp) -> String {
    let (object, of) = match &event.regarding {
        Regarding::DaemonSet { cause } => {
            let hour = time.as_second() / SHARED.as_secs().cast_signed();
            (event.daemon_set.name.as_str(), format!("{}\0{}\0{cause}\0{hour}", event.uid, event.reason))
        }
        Regarding::Node { name, .. } => {
            (name.as_str(), format!("{node}\0{}\0{}\0{}", event.reason, event.note, time.as_nanosecond()))
        }
    };
    let hex: String = Sha256::digest(of).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{hex}", cut(object, 200).trim_end_matches(['.', '-']))
}

/// RFC 3339 with six digits, as the API's MicroTime requires.
fn micro_time(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}

/// At most `limit` bytes, cut between characters.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
