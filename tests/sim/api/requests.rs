//! What the API server does with a request.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc;

use super::Id;
use super::Refusal;
use super::Server;
use super::THEIR_TOKEN;
use super::Watcher;
use super::has_labels;
use super::http::Path;
use super::http::Reply;
use super::id;
use super::matches;
use super::merge;

impl Server {
    pub(super) fn respond(&mut self, method: &str, path: &str, query: &BTreeMap<String, String>, body: &[u8]) -> Reply {
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
                if request.resource == "nodes" && !crate::node_conditions::is_allowed(&value) =>
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
        let labels = query.get("labelSelector").cloned().unwrap_or_default();
        let of = |(key, object): &(&Id, &Value)| {
            matches(&request.resource, &request.namespace, &fields, key, object) && has_labels(&labels, object)
        };
        let items: Vec<&Value> = self.etcd.objects.iter().filter(of).map(|(_, object)| object).collect();
        let version = self.etcd.version.to_string();
        Reply::Json(
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    pub(super) fn watch(&mut self, request: &Path, query: &BTreeMap<String, String>) -> Reply {
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
        let labels = query.get("labelSelector").cloned().unwrap_or_default();
        let fields = query.get("fieldSelector").cloned().unwrap_or_default();
        for (version, event, key, object) in &self.history {
            let is_of = matches(&request.resource, &request.namespace, &fields, key, object);
            if *version > since && is_of && has_labels(&labels, object) {
                let _ = events.send(format!("{}\n", json!({"type": event, "object": object})).into());
            }
        }
        let (resource, namespace) = (request.resource.clone(), request.namespace.clone());
        self.watchers.push(Watcher { since, resource, namespace, fields, labels, events });
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
        self.watchers.push(Watcher {
            since: self.etcd.version,
            resource,
            namespace,
            fields,
            labels: String::new(),
            events,
        });
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
            Some("status") if request.resource == "nodes" => crate::node_conditions::merge(&mut changed, patch),
            _ => merge(&mut changed, patch),
        }
        if request.resource == "nodes" {
            let is_tainted = crate::startup_taint::is_on;
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
