//! The API server and its etcd: objects, lists, watches, tokens, and the ways in which they fail.
//!
//! Owns the protocol as the agent meets it. Must not know what the agent is to make of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
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
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

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
    resource: String,
    namespace: String,
    fields: String,
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
    /// Its own clock, which nobody sets.
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
        let is_up = self.reach == Reach::Up;
        if matches!(key.0.as_str(), "pods" | "nodes") {
            self.pods_version += 1;
            self.poke.iter().for_each(|poke| poke.notify_one());
        }
        self.watchers.retain(|watcher| {
            !is_up
                || !matches(&watcher.resource, &watcher.namespace, &watcher.fields, &key, &object)
                || watcher.events.send(line.clone()).is_ok()
        });
        self.history.push((self.etcd.version, event, key, object));
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

    fn respond(&mut self, method: &str, path: &str, query: &BTreeMap<String, String>, body: &[u8]) -> Reply {
        self.requests += 1;
        if std::env::var_os("DAEMONLET_SIM_HTTP").is_some() {
            eprintln!("          {method} {path} {query:?}");
        }
        let Some(request) = Path::of(path) else { return Reply::status(404, "NotFound", path) };
        let refusal = self.refusals.get(&request.resource).copied();
        match refusal {
            None => {}
            Some(Refusal::Forbidden) => return Reply::status(403, "Forbidden", path),
            Some(Refusal::NotFound) => return Reply::Text(404, "404 page not found"),
            Some(Refusal::TooMany) => return Reply::status(429, "TooManyRequests", path),
            Some(Refusal::Internal) => return Reply::status(500, "InternalError", path),
            Some(Refusal::Silence) => return Reply::Silence,
        }
        if request.resource == "nodedaemons" {
            return Reply::Text(404, "404 page not found");
        }
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method, request.name.as_deref(), request.sub.as_deref()) {
            ("GET", None, None) if query.contains_key("watch") => self.watch(&request, query),
            ("GET", None, None) => self.list(&request, query),
            ("GET", Some(name), None) => match self.get(&request.resource, &request.namespace, name) {
                Some(object) => Reply::Json(200, object.clone()),
                None => Reply::absent(&request, name),
            },
            ("POST", Some(name), Some("token")) => self.token(&request, name, &value),
            ("POST", None, None) if query.contains_key("dryRun") || request.resource == "events" => {
                Reply::Json(201, value)
            }
            ("PATCH", Some(_), Some(_))
                if request.resource == "nodes" && !super::node_conditions::is_allowed(&value) =>
            {
                let why = "nodes is forbidden: ValidatingAdmissionPolicy 'daemonlet-agent-node-status' with binding \
                     'daemonlet-agent-node-status' denied request";
                Reply::status(422, "Invalid", why)
            }
            ("PATCH", Some(_), None) if request.resource == "nodes" && self.refuses(&value) => {
                let why = "nodes is forbidden: ValidatingAdmissionPolicy 'daemonlet-agent-nodes' with binding \
                     'daemonlet-agent-nodes' denied request";
                Reply::status(422, "Invalid", why)
            }
            ("PATCH", Some(name), None) if query.contains_key("dryRun") => {
                match self.get(&request.resource, &request.namespace, name) {
                    Some(object) => Reply::Json(200, object.clone()),
                    None => Reply::absent(&request, name),
                }
            }
            ("PATCH", Some(name), sub) => self.patch(&request, name, sub, &value),
            ("DELETE", Some(name), None) => self.delete_pod(&request, name, &value),
            _ => Reply::status(405, "MethodNotAllowed", path),
        }
    }

    /// Whether the policy refuses a change of a Node: of anything but its taints.
    fn refuses(&self, patch: &Value) -> bool {
        let is_of_taints = |field: &String| matches!(field.as_str(), "metadata" | "spec");
        let is_narrow = patch.as_object().is_some_and(|patch| patch.keys().all(is_of_taints));
        let metadata = patch["metadata"].as_object().into_iter().flatten();
        let is_version = metadata.into_iter().all(|(field, _)| field == "resourceVersion");
        self.has_taint_policy && !(is_narrow && is_version)
    }

    fn list(&mut self, request: &Path, query: &BTreeMap<String, String>) -> Reply {
        let fields = query.get("fieldSelector").cloned().unwrap_or_default();
        let is_pending = query.contains_key("labelSelector");
        let of = |(key, object): &(&Id, &Value)| {
            !is_pending && matches(&request.resource, &request.namespace, &fields, key, object)
        };
        let items: Vec<&Value> = self.etcd.objects.iter().filter(of).map(|(_, object)| object).collect();
        let version = self.etcd.version.to_string();
        Reply::Json(
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn watch(&mut self, request: &Path, query: &BTreeMap<String, String>) -> Reply {
        if query.contains_key("sendInitialEvents") {
            return self.watch_list(request, query);
        }
        let since: u64 = query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
        if since < self.oldest {
            let line = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 410, "reason": "Expired", "message": "too old resource version", "metadata": {}}});
            let (events, receiver) = mpsc::unbounded_channel();
            let _ = events.send(Bytes::from(format!("{line}\n")));
            return Reply::Watch(receiver);
        }
        let (events, receiver) = mpsc::unbounded_channel();
        if query.contains_key("labelSelector") {
            let until = query.get("timeoutSeconds").and_then(|s| s.parse().ok()).unwrap_or(290);
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_secs(until)).await;
                drop(events);
            });
            return Reply::Watch(receiver);
        }
        let fields = query.get("fieldSelector").cloned().unwrap_or_default();
        for (version, event, key, object) in &self.history {
            if *version > since && matches(&request.resource, &request.namespace, &fields, key, object) {
                let _ = events.send(format!("{}\n", json!({"type": event, "object": object})).into());
            }
        }
        let (resource, namespace) = (request.resource.clone(), request.namespace.clone());
        self.watchers.push(Watcher { resource, namespace, fields, events });
        Reply::Watch(receiver)
    }

    /// A watch that begins with what there is (KEP-3157).
    fn watch_list(&mut self, request: &Path, query: &BTreeMap<String, String>) -> Reply {
        let (events, receiver) = mpsc::unbounded_channel();
        let fields = query.get("fieldSelector").cloned().unwrap_or_default();
        let send = |event: Value| drop(events.send(format!("{event}\n").into()));
        for (key, object) in &self.etcd.objects {
            if matches(&request.resource, &request.namespace, &fields, key, object) {
                send(json!({"type": "ADDED", "object": object}));
            }
        }
        let (kind, version) = match request.resource.as_str() {
            "configmaps" => ("ConfigMap", "v1"),
            "secrets" => ("Secret", "v1"),
            "serviceaccounts" => ("ServiceAccount", "v1"),
            "namespaces" => ("Namespace", "v1"),
            "services" => ("Service", "v1"),
            _ => ("Object", "v1"),
        };
        let end = json!({"k8s.io/initial-events-end": "true"});
        let metadata =
            json!({"resourceVersion": self.etcd.version.to_string(), "annotations": end, "creationTimestamp": null});
        send(json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": version, "metadata": metadata}}));
        let (resource, namespace) = (request.resource.clone(), request.namespace.clone());
        self.watchers.push(Watcher { resource, namespace, fields, events });
        Reply::Watch(receiver)
    }

    /// When a token ends that was given.
    pub(crate) fn token_ends(&self, token: &str) -> Option<i64> {
        self.tokens.get(token).copied()
    }

    fn token(&mut self, request: &Path, name: &str, body: &Value) -> Reply {
        if self.get("serviceaccounts", &request.namespace, name).is_none() {
            return Reply::absent(request, name);
        }
        let bound = body.pointer("/spec/boundObjectRef/uid").and_then(Value::as_str).unwrap_or_default();
        let node = body.pointer("/spec/boundObjectRef/name").and_then(Value::as_str).unwrap_or_default();
        if self.get("nodes", "", node).is_none_or(|node| node["metadata"]["uid"] != bound) {
            return Reply::status(409, "Conflict", "the node's UID is another one");
        }
        let seconds = body.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3_600);
        let whose = if self.is_other { THEIR_TOKEN } else { "token" };
        let token = format!("{whose}-{}-{name}-{bound}", self.tokens.len() + 1);
        self.tokens.insert(token.clone(), self.steady + seconds * 1_000);
        let expires = jiff::Timestamp::from_millisecond(self.now_millis + seconds * 1_000).unwrap_or_default();
        let mut reply = body.clone();
        reply["spec"]["expirationSeconds"] = seconds.into();
        reply["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
        Reply::Json(201, reply)
    }

    fn patch(&mut self, request: &Path, name: &str, sub: Option<&str>, patch: &Value) -> Reply {
        let key = id(&request.resource, &request.namespace, name);
        let Some(object) = self.etcd.objects.get(&key) else { return Reply::absent(request, name) };
        for field in ["uid", "resourceVersion"] {
            let wanted = &patch["metadata"][field];
            if !wanted.is_null() && *wanted != object["metadata"][field] {
                return Reply::status(409, "Conflict", "the object has been modified");
            }
        }
        let (mut changed, before) = (object.clone(), object.clone());
        match sub {
            Some("status") if request.resource == "nodes" => super::node_conditions::merge(&mut changed, patch),
            _ => merge(&mut changed, patch),
        }
        if request.resource == "nodes" {
            let is_tainted = super::startup_taint::is_on;
            self.is_untainted |= is_tainted(&before) && !is_tainted(&changed);
        }
        if sub.is_none() {
            changed["status"] = before["status"].clone();
        }
        if changed != before {
            self.put(&request.resource, changed);
        }
        Reply::Json(200, self.etcd.objects[&key].clone())
    }

    fn delete_pod(&mut self, request: &Path, name: &str, options: &Value) -> Reply {
        let key = id(&request.resource, &request.namespace, name);
        let Some(object) = self.etcd.objects.get(&key).cloned() else { return Reply::absent(request, name) };
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return Reply::status(409, "Conflict", "the UID is another one");
        }
        let is_terminal = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        if options["gracePeriodSeconds"] == 0 || is_terminal || object["metadata"]["deletionTimestamp"].is_string() {
            self.delete(&key);
        } else {
            self.change(&key, |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        }
        Reply::Json(200, object)
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

fn matches(resource: &str, namespace: &str, fields: &str, key: &Id, object: &Value) -> bool {
    key.0 == resource
        && (namespace.is_empty() || key.1 == namespace)
        && fields.split(',').filter(|field| !field.is_empty()).all(|field| {
            let (path, value) = field.split_once('=').unwrap_or((field, ""));
            match path {
                "metadata.name" => key.2 == value,
                "spec.nodeName" => object["spec"]["nodeName"] == value,
                "involvedObject.uid" => object["involvedObject"]["uid"] == value,
                _ => false,
            }
        })
}

/// What a path names.
struct Path {
    resource: String,
    namespace: String,
    name: Option<String>,
    sub: Option<String>,
}

impl Path {
    fn of(path: &str) -> Option<Self> {
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
enum Reply {
    Json(u16, Value),
    Text(u16, &'static str),
    Watch(mpsc::UnboundedReceiver<Bytes>),
    Silence,
}

impl Reply {
    fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::Json(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": message, "metadata": {}}),
        )
    }

    fn absent(request: &Path, name: &str) -> Self {
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
