//! One object from the API: raw JSON, reduced to what is read.
//!
//! Owns the deserialisation and the reduction, so that an unknown object is still an object, and memory holds only
//! what decisions need.

pub(super) mod pending;

use std::borrow::Cow;
use std::fmt;

use kube::core::DynamicResourceScope;
use kube::core::ObjectMeta;
use kube::discovery::ApiResource;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::IgnoredAny;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::core::cluster::node_daemons;
use crate::core::cluster::released::HALTED;
use crate::core::cluster::released::RELEASED;
use crate::core::convert;
use crate::core::insufficient;
use crate::core::json::Json;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::owners;

/// An object of any kind. `metadata.managedFields` is never stored.
#[derive(Clone)]
pub(super) struct RawObject {
    /// Boxed: it is large, and part of every watch's state.
    meta: Box<ObjectMeta>,
    pub(super) value: Value,
}

impl RawObject {
    /// An object of which only the name is known.
    pub(super) fn named(key: &ObjectKey) -> Self {
        let meta = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectMeta::default()
        };
        let value = json!({"metadata": {"namespace": key.namespace, "name": key.name}});
        Self { meta: Box::new(meta), value }
    }

    /// The object, if it is the one that was asked for by `name`.
    ///
    /// # Errors
    /// It is something else: a proxy that answers in the API server's place, a `Status`. That says nothing of the object.
    pub(super) fn asked_for(self, name: &str) -> Result<Self, kube::Error> {
        match self.meta.name.as_deref() == Some(name) {
            true => Ok(self),
            false => Err(kube::Error::SerdeError(serde::de::Error::custom(format!("the answer is not {name:?}")))),
        }
    }

    /// `metadata.resourceVersion`; empty without one.
    pub(super) fn resource_version(&self) -> &str {
        self.meta.resource_version.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for RawObject {
    /// Only the name: it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawObject({:?}/{:?})", self.meta.namespace, self.meta.name)
    }
}

impl kube::Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = deserializer.deserialize_map(Without { left_out: &[], metadata: true })?;
        if let Some(metadata) = map.get_mut("metadata") {
            convert::drop_last_applied(metadata);
        }
        let text = |name: &str| map.get("metadata")?.get(name)?.as_str().map(String::from);
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { meta: Box::new(meta), value: Value::Object(map) })
    }
}

impl serde::Serialize for RawObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// Builds a map without some of its keys, and without `managedFields` in `metadata`.
struct Without {
    left_out: &'static [&'static str],
    metadata: bool,
}

impl<'de> serde::de::DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self).map(Value::Object)
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if self.left_out.contains(&key.as_str()) {
                access.next_value::<IgnoredAny>()?;
            } else if self.metadata && key == "metadata" {
                let seed = Without { left_out: &["managedFields"], metadata: false };
                map.insert(key, access.next_value_seed(seed)?);
            } else {
                map.insert(key, access.next_value()?);
            }
        }
        Ok(map)
    }
}

/// The API resource of a kind that daemons refer to.
pub(super) fn resource(kind: Kind) -> ApiResource {
    let (group, plural) = match kind {
        Kind::ConfigMap => ("", "configmaps"),
        Kind::Secret => ("", "secrets"),
        Kind::ServiceAccount => ("", "serviceaccounts"),
        Kind::Namespace => ("", "namespaces"),
        Kind::Service => ("", "services"),
        Kind::PriorityClass => ("scheduling.k8s.io", "priorityclasses"),
        Kind::RuntimeClass => ("node.k8s.io", "runtimeclasses"),
        Kind::ControllerRevision => ("apps", "controllerrevisions"),
    };
    api_resource(group, kind.as_str(), plural)
}

/// A resource of version v1.
pub(super) fn api_resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { "v1".to_string() } else { format!("{group}/v1") };
    ApiResource { group: group.into(), version: "v1".into(), api_version, kind: kind.into(), plural: plural.into() }
}

pub(super) fn node_daemons() -> ApiResource {
    let (group, version) = (node_daemons::GROUP, node_daemons::VERSION);
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: node_daemons::KIND.into(),
        plural: node_daemons::PLURAL.into(),
    }
}

/// A DaemonSet; of its status, which controllers write all the time, what it says of rollouts.
pub(super) fn keep_daemon_set(mut value: Value) -> Option<Value> {
    let object = value.as_object_mut()?;
    let status = object.remove("status").unwrap_or_default();
    let is_kept = |c: &Value| matches!(c.get("type").and_then(Value::as_str), Some(RELEASED | HALTED));
    let part =
        |c: &Value| json!({"type": c["type"], "status": c["status"], "reason": c["reason"], "message": c["message"]});
    let kept: Vec<Value> = status.list_at("conditions").iter().filter(|c| is_kept(c)).map(part).collect();
    if !kept.is_empty() {
        object.insert("status".into(), json!({"conditions": kept}));
    }
    Some(value)
}

/// A Node: what placement, admission and the kubelet's version need, without heartbeats, images and annotations.
pub(super) fn keep_node(value: Value) -> Option<Value> {
    let mut value = value;
    let object = value.as_object_mut()?;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("annotations");
    }
    let status = object.remove("status").unwrap_or_default();
    let mut kept = Map::new();
    if let Some(info) = status.get("nodeInfo") {
        kept.insert("nodeInfo".into(), info.clone());
    }
    if let Some(allocatable) = status.get("allocatable") {
        kept.insert("allocatable".into(), allocatable.clone());
    }
    kept.insert("conditions".into(), conditions(&status, &["lastHeartbeatTime"]));
    object.insert("status".into(), Value::Object(kept));
    Some(value)
}

/// What is read of a pod's metadata.
const POD_METADATA: [&str; 8] =
    ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "ownerReferences", "annotations", "labels"];

/// What is read of a container's status.
const CONTAINER_STATUS: [&str; 7] = ["name", "containerID", "ready", "started", "restartCount", "state", "lastState"];

/// A pod of this node. Mirror pods and pods of DaemonSets keep metadata and what `status` shows; others only that they
/// exist, whether they have ended, and whether they were preempted. Each keeps its host ports and the sum of its requests.
pub(super) fn keep_pod(value: Value) -> Option<Value> {
    let mut value = value;
    let metadata = value.get("metadata")?;
    let is_mirror = owners::is_mirror_pod(&value);
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let of_daemon_set = owners
        .is_some_and(|owners| owners.iter().any(|owner| owner.get("kind").is_some_and(|kind| kind == "DaemonSet")));
    if !is_mirror && !of_daemon_set {
        return Some(keep_other_pod(&value));
    }
    let spec = insufficient::kept_spec(&value);
    let object = value.as_object_mut()?;
    let status = object.remove("status").unwrap_or_default();
    object.retain(|field, _| field == "metadata");
    object.extend(spec.map(|spec| ("spec".to_owned(), spec)));
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|field, _| POD_METADATA.contains(&field.as_str()));
        // Other annotations are not read.
        retain(metadata, "annotations", &[owners::MIRROR_ANNOTATION]);
        retain(metadata, "labels", &[HASH_LABEL, GENERATION_LABEL]);
    }
    let mut kept = Map::new();
    for field in ["phase", "reason", "message", "qosClass"] {
        if let Some(value) = status.get(field) {
            kept.insert(field.into(), value.clone());
        }
    }
    let mut ready = conditions(&status, &["lastProbeTime"]);
    if let Some(conditions) = ready.as_array_mut() {
        let read = |t: &Value| t == "Ready" || t == "PodReadyToStartContainers" || t == owners::DISRUPTION;
        conditions.retain(|condition| condition.get("type").is_some_and(read));
    }
    kept.insert("conditions".into(), ready);
    for field in ["initContainerStatuses", "containerStatuses"] {
        let Some(list) = status.get(field).and_then(Value::as_array) else { continue };
        let list = list.iter().map(container_status);
        kept.insert(field.into(), list.collect());
    }
    object.insert("status".into(), Value::Object(kept));
    Some(value)
}

/// What is kept of a container's status; of a running one only that it runs.
fn container_status(status: &Value) -> Value {
    let mut status = pick(status, &CONTAINER_STATUS);
    if let Some(running) = status.get_mut("state").and_then(|state| state.get_mut("running")) {
        *running = Value::Object(Map::new());
    }
    status
}

/// How deep a referenced object is kept: a checkpoint nests it a few levels deeper and can be read back to 127.
/// Nothing that is read lies below the eighth level.
const MAX_LEVELS: usize = 64;

/// What is kept of a pod that belongs to no daemon.
fn keep_other_pod(value: &Value) -> Value {
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    let mut status = pick(value.get("status").unwrap_or(&Value::Null), &["phase", "reason"]);
    if let Some(status) = status.as_object_mut() {
        // Irrelevant changes must not look like changes.
        status.retain(|_, text| matches!(text.as_str(), Some("Failed" | "Succeeded" | "Preempting")));
        if status.get("reason").is_some_and(|reason| reason == "Preempting") {
            let conditions = value.list_at(["status", "conditions"]).iter();
            let disruption = conditions.filter(|condition| condition.str_at("type") == owners::DISRUPTION);
            let kept = disruption.map(|condition| pick(condition, &["type", "lastTransitionTime"]));
            status.insert("conditions".to_owned(), kept.collect());
        }
    }
    let mut kept = serde_json::json!({"metadata": pick(metadata, &["name", "namespace", "uid"]), "status": status});
    // What has ended holds nothing.
    let has_ended = matches!(value.str_at(["status", "phase"]), "Failed" | "Succeeded");
    if let Some(spec) = insufficient::kept_spec(value).filter(|_| !has_ended) {
        kept["spec"] = spec;
    }
    kept
}

/// A referenced object: complete, as deep as a checkpoint can store it.
pub(super) fn keep_all(mut value: Value) -> Option<Value> {
    prune(&mut value, MAX_LEVELS);
    Some(value)
}

/// Sets maps and lists below `levels` to null.
fn prune(value: &mut Value, levels: usize) {
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => *value = Value::Null,
        Value::Object(map) => map.values_mut().for_each(|value| prune(value, levels - 1)),
        Value::Array(list) => list.iter_mut().for_each(|value| prune(value, levels - 1)),
        _ => {}
    }
}

/// The same value in minimal memory: maps and lists over-allocate while they are read, and the store keeps the object.
pub(super) fn compact(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut small = Map::with_capacity(map.len());
            small.extend(map.into_iter().map(|(key, value)| (key, compact(value))));
            Value::Object(small)
        }
        Value::Array(list) => {
            let mut small = Vec::with_capacity(list.len());
            small.extend(list.into_iter().map(compact));
            Value::Array(small)
        }
        other => other,
    }
}

fn conditions(status: &Value, without: &[&str]) -> Value {
    let list = status.list_at("conditions").iter();
    list.map(|condition| {
        let mut condition = condition.clone();
        if let Some(condition) = condition.as_object_mut() {
            condition.retain(|key, _| !without.contains(&key.as_str()));
        }
        condition
    })
    .collect()
}

/// Keeps only these keys of the map in `field`.
fn retain(map: &mut Map<String, Value>, field: &str, kept: &[&str]) {
    if let Some(Value::Object(map)) = map.get_mut(field) {
        map.retain(|key, _| kept.contains(&key.as_str()));
    }
}

fn pick(value: &Value, fields: &[&str]) -> Value {
    let fields = fields.iter().filter_map(|field| Some((field.to_string(), value.get(*field)?.clone())));
    Value::Object(fields.collect())
}

#[cfg(test)]
mod tests;
