//! From what happened to mirror pods to orders for a restart.
//!
//! Owns the questions that have to be answered first. Must not judge: `crate::core::orders` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::json::at;
use crate::core::json::text_at;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::orders;
use crate::core::orders::ObjectState;
use crate::core::orders::RestartVerdict;
use crate::core::orders::Survey;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Mirror;
use crate::core::record::Phase;
use crate::core::record::Seen;
use crate::core::time::Timestamp;
use crate::node::api::GetResult;
use crate::node::api::Snapshot;

use super::Agent;
use super::evidence;
use super::inbox::Inbox;
use super::now;

/// Questions that are out, and answers that came.
#[derive(Default)]
pub(super) struct Orders {
    /// When the objects behind a mirror pod were last asked for, by its UID.
    asked: BTreeMap<String, Timestamp>,
    inbox: Inbox<(String, Survey)>,
    next: Option<Timestamp>,
}

impl Orders {
    /// When to ask again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }
}

impl Agent {
    /// Notes what happened to mirror pods.
    pub(super) fn note_mirrors(&mut self, records: &mut BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) {
        let Some(api) = api else { return };
        let at = now();
        let sightings = self.api.as_ref().map(|api| api.store().take_sightings()).unwrap_or_default();
        for sighting in sightings {
            for record in records.values_mut() {
                record.note(&sighting.static_uid, &sighting.mirror_uid, sighting.seen.clone(), at);
            }
        }
        for record in records.values_mut() {
            let live: Vec<Instance> = record.live().cloned().collect();
            for instance in live {
                let namespace = &record.key.namespace;
                let Some(pod) = evidence::mirror(api, namespace, &instance, &self.config.node_name) else { continue };
                if let Some(mirror) = read_mirror(pod, api).filter(|m| instance.mirror.as_ref() != Some(m)) {
                    record.follow_mirror(&instance.uid, mirror, at);
                }
            }
        }
    }

    /// Judges what was noted and direct questions have been answered about; asks the others.
    pub(super) fn judge_mirrors(&mut self, records: &mut BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) {
        let Some(api) = api else { return };
        let at = now();
        let answers: BTreeMap<String, Survey> = self.orders.inbox.take().into_iter().collect();
        self.orders.next = None;
        let mut open = BTreeMap::new();
        for record in records.values_mut() {
            let live: Vec<Instance> =
                record.instances.iter().filter(|i| i.phase == Phase::Live && i.noted.is_some()).cloned().collect();
            for instance in live {
                let Some(noted) = instance.noted.clone() else { continue };
                let uid = noted.mirror_uid.clone();
                let own = self.mirror_pod_deletions.is_own(&uid);
                let mut verdict = answers.get(&uid).map(|survey| {
                    let ended = self.has_ended(api, &record.key.namespace, &instance);
                    orders::judge(&noted, own, &Survey { ended, ..survey.clone() }, at)
                });
                if instance.orphaned {
                    verdict = Some(RestartVerdict::Dismiss("its DaemonSet is gone and its pods are kept".to_owned()));
                }
                let (daemonset, pod, what) = (record.key.to_string(), &instance.pod_name, words(&noted.seen));
                match verdict {
                    Some(RestartVerdict::Order(cause)) => {
                        tracing::info!(daemonset, pod, "mirror pod of {pod} {what}: a new instance takes its place");
                        let surroundings = self.acceptance.surroundings();
                        record.order_restart(&instance.uid, cause, at, surroundings);
                        forget(record, &instance.uid);
                        continue;
                    }
                    Some(RestartVerdict::Dismiss(why)) => {
                        tracing::info!(daemonset, pod, "mirror pod of {pod} {what}, and that restarts nothing: {why}");
                        forget(record, &instance.uid);
                        continue;
                    }
                    Some(RestartVerdict::Later(why)) => {
                        tracing::debug!(daemonset, pod, "mirror pod of {pod} {what}: not decided yet: {why}");
                    }
                    None => {}
                }
                let due = self
                    .orders
                    .asked
                    .get(&uid)
                    .map_or(at, |asked| (*asked + orders::ASK_AGAIN).min(at + orders::ASK_AGAIN));
                if due <= at {
                    self.survey(&record.key, &instance, record.api_uid.clone(), &uid);
                    open.insert(uid, at);
                } else {
                    open.insert(uid, due - orders::ASK_AGAIN);
                    self.orders.next = Some(self.orders.next.map_or(due, |next| next.min(due)));
                }
            }
        }
        if let Some(latest) = open.values().max() {
            let due = *latest + orders::ASK_AGAIN;
            self.orders.next = Some(self.orders.next.map_or(due, |next| next.min(due)));
        }
        self.orders.asked = open;
    }

    /// Asks the API server itself about everything that the mirror pod `about` goes with.
    fn survey(&self, key: &ObjectKey, instance: &Instance, api_uid: Option<String>, about: &str) {
        let Some(api) = self.api.clone() else { return };
        let from_api = instance.daemon_set.as_ref().is_none_or(|d| d.source == Source::Api) && api_uid.is_some();
        let (key, node, about) = (key.clone(), self.config.node_name.clone(), about.to_owned());
        let (inbox, wake) = (self.orders.inbox.clone(), Arc::clone(&self.wake));
        let known = self.remembered_inputs.cluster_uid.clone();
        tokio::spawn(async move {
            let cluster = api.cluster_uid().await;
            let other = match cluster {
                Err(failure) => Some(failure.to_string()),
                Ok(uid) if known.as_ref().is_some_and(|known| *known != uid) => {
                    Some("another cluster answers".to_owned())
                }
                Ok(_) => None,
            };
            let (node, namespace) = tokio::join!(api.get_node(&node), api.get_namespace(&key.namespace));
            let daemon_set =
                if from_api { Some((object_state(&api.get_daemon_set(&key).await), api_uid)) } else { None };
            let condition = |node: &GetResult| match node {
                GetResult::Object(node) => ready_condition(node),
                _ => (false, false),
            };
            let (node_ready, shutting_down) = condition(&node);
            let node = other.map_or_else(|| object_state(&node), ObjectState::Unknown);
            let namespace = match object_state(&namespace) {
                ObjectState::There { uid, going } => {
                    ObjectState::There { uid, going: going || is_terminating(&namespace) }
                }
                other => other,
            };
            let survey = Survey { daemon_set, node, shutting_down, node_ready, namespace, ended: true };
            inbox.put((about, survey), &wake);
        });
    }

    /// Whether the mirror pod of an instance shows a terminal phase.
    fn has_ended(&self, api: &Snapshot, namespace: &str, instance: &Instance) -> bool {
        let pod = evidence::mirror(api, namespace, instance, &self.config.node_name);
        let phase = pod.and_then(|pod| pod.pointer("/status/phase")).and_then(Value::as_str);
        matches!(phase, Some("Failed" | "Succeeded"))
    }
}

fn forget(record: &mut DaemonRecord, uid: &str) {
    for instance in record.instances.iter_mut().filter(|i| i.uid == uid) {
        instance.noted = None;
    }
}

fn words(seen: &Seen) -> String {
    match seen {
        Seen::Deleting | Seen::Gone { .. } => "was deleted".to_owned(),
        Seen::Failed { reason, .. } => format!("failed ({reason})"),
        Seen::Succeeded => "succeeded".to_owned(),
    }
}

/// A mirror pod, and the Node that it belongs to: by its owner, else the one that is there.
fn read_mirror(pod: &Value, api: &Snapshot) -> Option<Mirror> {
    let uid = text_at(pod, &["metadata", "uid"])?.to_owned();
    let version = text_at(pod, &["metadata", "resourceVersion"]).and_then(|v| v.parse().ok());
    let owners = at(pod, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    let node = owners.into_iter().flatten().find(|o| o.get("kind").is_some_and(|kind| kind == "Node"));
    let there = || api.node.as_ref().and_then(|node| at(&node.value, &["metadata", "uid"]));
    let node_uid = node.and_then(|owner| owner.get("uid")).or_else(there).and_then(Value::as_str);
    Some(Mirror { uid, node_uid: node_uid.map(str::to_owned), version: version.unwrap_or(0) })
}

/// The answer to a GET as it is judged.
fn object_state(live: &GetResult) -> ObjectState {
    match live {
        GetResult::Object(object) => ObjectState::There {
            uid: object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
            going: object.pointer("/metadata/deletionTimestamp").is_some(),
        },
        GetResult::NotFound => ObjectState::Gone,
        GetResult::Error(failure) => ObjectState::Unknown(failure.to_string()),
    }
}

fn is_terminating(namespace: &GetResult) -> bool {
    matches!(namespace, GetResult::Object(object) if object.pointer("/status/phase").is_some_and(|p| p == "Terminating"))
}

/// Whether a Node is Ready, and whether it says that it shuts down (the kubelet's
/// `nodeshutdown.ShutdownStatus` in the condition's message).
fn ready_condition(node: &Value) -> (bool, bool) {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|c| c.get("type").is_some_and(|t| t == "Ready"));
    let Some(ready) = ready else { return (false, false) };
    let message = ready.get("message").and_then(Value::as_str).unwrap_or_default();
    (ready.get("status").is_some_and(|s| s == "True"), message.contains("node is shutting down"))
}
