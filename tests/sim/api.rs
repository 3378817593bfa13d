//! The API server and its etcd: objects, lists, watches, tokens, and the ways in which they fail.
//!
//! Owns the protocol as the agent meets it. Must not know what the agent is to make of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use hyper::body::Bytes;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc;

mod http;
mod requests;

pub(crate) use http::connect;

/// How long a request and its answer are under way.
const LATENCY: std::time::Duration = std::time::Duration::from_millis(1);

/// What becomes of a connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reach {
    /// It answers.
    #[default]
    Up,
    /// It refuses.
    Refused,
    /// It takes connections, and says nothing.
    Silent,
}

/// How requests for one resource are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    Forbidden,
    NotFound,
    TooMany,
    Internal,
    /// No answer, ever.
    Silence,
}

/// A resource, a namespace (or nothing) and a name.
pub(crate) type Id = (String, String, String);

/// How a token of another cluster begins.
pub(crate) const THEIR_TOKEN: &str = "their-token";

/// An object's identity.
pub(crate) fn id(resource: &str, namespace: &str, name: &str) -> Id {
    (resource.to_owned(), namespace.to_owned(), name.to_owned())
}

/// What etcd has.
#[derive(Clone, Default)]
pub(crate) struct Etcd {
    pub(crate) objects: BTreeMap<Id, Value>,
    pub(crate) version: u64,
    uids: u64,
}

impl Etcd {
    /// That of another cluster, whose versions and UIDs are none of this one's.
    pub(crate) fn another(&self) -> Self {
        Self { objects: BTreeMap::new(), version: self.version + 1_000, uids: self.uids + 1_000_000 }
    }
}

struct Watcher {
    /// It receives what comes after this version.
    since: u64,
    resource: String,
    namespace: String,
    fields: String,
    labels: String,
    events: mpsc::UnboundedSender<Bytes>,
}

/// The server.
pub(crate) struct Server {
    pub(crate) etcd: Etcd,
    /// How far its history goes back: a watch from before is too old.
    oldest: u64,
    history: Vec<(u64, &'static str, Id, Value)>,
    watchers: Vec<Watcher>,
    pub(crate) reach: Reach,
    pub(crate) refusals: BTreeMap<String, Refusal>,
    /// Changes with every pod and Node; who waits for that is woken.
    pub(crate) pods_version: u64,
    pub(crate) poke: Option<Arc<tokio::sync::Notify>>,
    /// The wall clock, for tokens.
    pub(crate) now_millis: i64,
    /// Its own clock, which is never set.
    pub(crate) steady: i64,
    /// When each token ends that was given.
    tokens: BTreeMap<String, i64>,
    pub(crate) requests: u64,
    /// Cuts the connections that there are when it changes.
    pub(crate) cut: tokio::sync::watch::Sender<u64>,
    /// Whether nothing moves on the connections that there are.
    frozen: tokio::sync::watch::Sender<bool>,
    /// Whether the policy is there that lets an agent write the startup taint and nothing else of a Node.
    pub(crate) has_taint_policy: bool,
    /// Whether an agent has taken the startup taint away since that was last looked at.
    pub(crate) is_untainted: bool,
    /// Whether it is another cluster's, which no kubelet of this node talks to.
    pub(crate) is_other: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            etcd: Etcd::default(),
            oldest: 0,
            history: Vec::new(),
            watchers: Vec::new(),
            reach: Reach::Up,
            refusals: BTreeMap::new(),
            pods_version: 0,
            poke: None,
            now_millis: 0,
            steady: 0,
            tokens: BTreeMap::new(),
            requests: 0,
            cut: Default::default(),
            frozen: Default::default(),
            has_taint_policy: true,
            is_untainted: false,
            is_other: false,
        }
    }
}

pub(crate) type Shared = Arc<Mutex<Server>>;

impl Server {
    /// A new UID, another one in each life.
    fn uid(&mut self) -> String {
        self.etcd.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.etcd.uids)
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.etcd.objects.get(&id(resource, namespace, name))
    }

    /// Creates or replaces an object; keeps UID and counts generations as the server does.
    pub(crate) fn put(&mut self, resource: &str, mut object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = id(resource, &text("/metadata/namespace"), &text("/metadata/name"));
        let before = self.etcd.objects.get(&key).cloned();
        self.etcd.version += 1;
        let version = self.etcd.version;
        let (uid, generation) = match &before {
            Some(before) => {
                let is_same = before["spec"] == object["spec"];
                let generation = before["metadata"]["generation"].as_u64().unwrap_or(1) + u64::from(!is_same);
                (before["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), generation)
            }
            None if object["metadata"]["uid"].is_string() => (text("/metadata/uid"), 1),
            None => (self.uid(), 1),
        };
        object["metadata"]["uid"] = uid.into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        object["metadata"]["generation"] = generation.into();
        if object["metadata"]["creationTimestamp"].is_null() {
            object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let event = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.etcd.objects.insert(key.clone(), object.clone());
        self.publish(event, key, object);
    }

    /// Changes an object that is there.
    pub(crate) fn change(&mut self, key: &Id, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.etcd.objects.get(key).cloned() {
            change(&mut object);
            self.put(&key.0, object);
        }
    }

    pub(crate) fn delete(&mut self, key: &Id) {
        if let Some(mut object) = self.etcd.objects.remove(key) {
            self.etcd.version += 1;
            object["metadata"]["resourceVersion"] = self.etcd.version.to_string().into();
            self.publish("DELETED", key.clone(), object);
        }
    }

    fn publish(&mut self, event: &'static str, key: Id, object: Value) {
        let line: Bytes = format!("{}\n", json!({"type": event, "object": object})).into();
        let (is_up, version) = (self.reach == Reach::Up, self.etcd.version);
        if matches!(key.0.as_str(), "pods" | "nodes") {
            self.pods_version += 1;
            self.poke.iter().for_each(|poke| poke.notify_one());
        }
        self.watchers.retain(|watcher| {
            !is_up
                || version <= watcher.since
                || !matches(&watcher.resource, &watcher.namespace, &watcher.fields, &key, &object)
                || !has_labels(&watcher.labels, &object)
                || watcher.events.send(line.clone()).is_ok()
        });
        self.history.push((self.etcd.version, event, key, object));
    }

    /// etcd is restored from a backup: what was written since is lost, and the versions of that are given again. Who runs pods
    /// has those that it had.
    pub(crate) fn restore(&mut self, backup: Etcd) {
        let is_bound = |key: &Id, object: &Value| {
            key.0 == "pods" && !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
        };
        let uids = self.etcd.uids;
        let now = std::mem::replace(&mut self.etcd, Etcd { uids, ..backup });
        self.etcd.objects.retain(|key, object| !is_bound(key, object));
        self.etcd.objects.extend(now.objects.into_iter().filter(|(key, object)| is_bound(key, object)));
        self.forget();
    }

    /// The server starts anew: all connections end, and nothing of the history is there.
    pub(crate) fn forget(&mut self) {
        self.pods_version += 1;
        self.history.clear();
        self.oldest = self.etcd.version;
        self.break_connections();
    }

    /// What is watched from before is too old: each watch ends with 410.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.etcd.version + 1;
        self.etcd.version += 1;
        self.watchers.clear();
    }

    /// Ends all watches, and nothing else.
    pub(crate) fn end_watches(&mut self) {
        self.watchers.clear();
    }

    pub(crate) fn break_connections(&mut self) {
        self.watchers.clear();
        self.cut.send_modify(|cut| *cut += 1);
    }

    pub(crate) fn set_reach(&mut self, reach: Reach) {
        if self.reach != reach {
            self.reach = reach;
            self.pods_version += 1;
            self.frozen.send_replace(reach == Reach::Silent);
            if reach != Reach::Silent {
                self.break_connections();
            }
        }
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().map(|object| object.remove(name))),
            value => merge(&mut target[name], value),
        }
    }
}

/// Whether an object has the labels of a selector.
fn has_labels(selector: &str, object: &Value) -> bool {
    let mut pairs = selector.split(',').filter_map(|pair| pair.split_once('='));
    pairs.all(|(name, value)| object["metadata"]["labels"][name] == value)
}

fn matches(resource: &str, namespace: &str, fields: &str, key: &Id, object: &Value) -> bool {
    key.0 == resource
        && (namespace.is_empty() || key.1 == namespace)
        && fields.split(',').filter(|field| !field.is_empty()).all(|field| {
            let (path, value) = field.split_once('=').unwrap_or((field, ""));
            match path {
                "metadata.name" => key.2 == value,
                "spec.nodeName" => object["spec"]["nodeName"].as_str().unwrap_or_default() == value,
                "involvedObject.uid" => object["involvedObject"]["uid"] == value,
                _ => false,
            }
        })
}
