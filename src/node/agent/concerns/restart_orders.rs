//! From what happened to mirror pods to orders for a restart.
//!
//! Owns the questions that have to be answered first. `crate::core::orders` decides what follows from the answers.

use crate::core::orders::NoRestart;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::text_at;
use crate::core::model::Source;
use crate::core::orders;
use crate::core::orders::RestartVerdict;
use crate::core::orders::Survey;
use crate::core::record::DaemonRecord;
use crate::core::record::Fingerprint;
use crate::core::record::Instance;
use crate::core::record::Mirror;
use crate::core::record::Noted;
use crate::core::record::NotedEvent;
use crate::core::record::Phase;
use crate::core::time::Timestamp;
use crate::node::api::Sighting;
use crate::node::api::Snapshot;
use crate::node::api::node_owner;

use super::super::evidence;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;

/// Questions that are under way.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct RestartOrders {
    /// When the objects behind a mirror pod were last asked for, by its UID.
    asked: BTreeMap<String, Timestamp>,
    /// The questions that are due.
    questions: Vec<Request>,
    next: Option<Timestamp>,
}

/// What else a verdict depends on.
pub(in super::super) struct Surroundings<'a> {
    pub(in super::super) node: &'a str,
    /// The cluster that is remembered.
    pub(in super::super) cluster: Option<&'a String>,
    /// Whether the agent itself deleted the mirror pod of that UID.
    pub(in super::super) is_own: &'a dyn Fn(&str) -> bool,
    /// A fingerprint of what the kubelet's admission depends on beside the pod.
    pub(in super::super) fingerprint: &'a Fingerprint,
}

/// Notes in the records what happened to mirror pods.
pub(in super::super) fn note_mirrors(observation: &Observation, records: &mut Records, node: &str) {
    let Some(api) = &observation.api else { return };
    for sighting in &api.sightings {
        for record in records.values_mut() {
            // Whoever may create a pod may set the annotation: only the name identifies the mirror pod.
            let is_its_mirror = |instance: &Instance| {
                instance.uid == sighting.static_uid
                    && sighting.pod == evidence::mirror_key(&record.key.namespace, &instance.pod_name, node)
            };
            if record.instances.iter().any(is_its_mirror) {
                let Sighting { static_uid, mirror_uid, pod: _, node_uid, daemon_set_uid, seen } = sighting.clone();
                record.note(&static_uid, Noted { mirror_uid, node_uid, daemon_set_uid, seen, at: observation.now });
            }
        }
    }
    for record in records.values_mut() {
        let namespace = record.key.namespace.clone();
        let mirror = |i: &Instance| {
            let pod = evidence::mirror(&api.snapshot, &namespace, i, node)?;
            let mirror = read_mirror(pod, &api.snapshot).filter(|m| i.mirror.as_ref() != Some(m))?;
            Some((i.uid.clone(), mirror))
        };
        let changed: Vec<(String, Mirror)> = record.live().filter_map(mirror).collect();
        for (uid, mirror) in changed {
            record.follow_mirror(&uid, mirror, observation.now);
        }
    }
}

impl RestartOrders {
    /// Judges what was noted and has been answered; the rest is asked about.
    pub(in super::super) fn observe(
        &mut self,
        observation: &Observation,
        records: &mut Records,
        surroundings: &Surroundings<'_>,
        log: &mut Log,
    ) {
        self.questions.clear();
        let Some(api) = observation.snapshot() else { return };
        let now = observation.now;
        let mut answers: BTreeMap<&str, &Survey> = BTreeMap::new();
        for reply in &observation.replies {
            if let Reply::Surveyed { mirror_uid, survey } = reply {
                answers.insert(mirror_uid, survey);
            }
        }
        self.next = None;
        let mut open = BTreeMap::new();
        for record in records.values_mut() {
            let noted: Vec<Instance> =
                record.instances.iter().filter(|i| i.phase == Phase::Live && i.noted.is_some()).cloned().collect();
            for instance in noted {
                let Some(noted) = &instance.noted else { continue };
                let uid = noted.mirror_uid.clone();
                let mut verdict = answers.get(uid.as_str()).map(|survey| {
                    let ended = has_ended(api, &record.key.namespace, &instance, surroundings.node);
                    orders::judge(noted, (surroundings.is_own)(&uid), &Survey { ended, ..(*survey).clone() }, now)
                });
                if instance.orphaned {
                    verdict = Some(RestartVerdict::Dismiss(NoRestart::Orphaned));
                }
                let (pod, what) = (&instance.pod_name, words(&noted.seen));
                match verdict {
                    Some(RestartVerdict::Order(cause)) => {
                        let line = format!("mirror pod of {pod} {what}: a new instance takes its place");
                        log.info(line).daemonset(&record.key).pod(pod);
                        record.order_restart(&instance.uid, cause, now, surroundings.fingerprint);
                        record.judged(&instance.uid);
                        continue;
                    }
                    Some(RestartVerdict::Dismiss(why)) => {
                        let line = format!("mirror pod of {pod} {what}; no restart: {why}");
                        log.info(line).daemonset(&record.key).pod(pod);
                        record.judged(&instance.uid);
                        continue;
                    }
                    Some(RestartVerdict::Later(why)) => {
                        log.debug(format!("mirror pod of {pod} {what}: not decided yet: {why}")).daemonset(&record.key);
                    }
                    None => {}
                }
                let due =
                    self.asked.get(&uid).map_or(now, |asked| (*asked + orders::ASK_AGAIN).min(now + orders::ASK_AGAIN));
                if due <= now {
                    self.questions.push(question(record, &instance, noted, surroundings.cluster));
                    open.insert(uid, now);
                } else {
                    open.insert(uid, due - orders::ASK_AGAIN);
                }
            }
        }
        self.next = open.values().map(|asked| *asked + orders::ASK_AGAIN).min();
        self.asked = open;
    }

    /// The questions that are due.
    pub(in super::super) fn requests(&self, observation: &Observation) -> Vec<Request> {
        if observation.api.is_some() { self.questions.clone() } else { Vec::new() }
    }

    /// When to ask again.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next
    }
}

fn question(record: &DaemonRecord, instance: &Instance, noted: &Noted, cluster: Option<&String>) -> Request {
    let from_api = instance.daemon_set.as_ref().is_none_or(|d| d.source == Source::Api);
    Request::Survey {
        mirror_uid: noted.mirror_uid.clone(),
        key: record.key.clone(),
        // It is judged as of then: another DaemonSet may have its name by now.
        daemon_set: noted.daemon_set_uid.as_ref().or(record.api_uid.as_ref()).filter(|_| from_api).cloned(),
        cluster: cluster.cloned(),
    }
}

/// Whether the mirror pod of an instance shows a terminal phase.
fn has_ended(api: &Snapshot, namespace: &str, instance: &Instance, node: &str) -> bool {
    let pod = evidence::mirror(api, namespace, instance, node);
    let phase = pod.and_then(|pod| pod.pointer("/status/phase")).and_then(Value::as_str);
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn words(seen: &NotedEvent) -> String {
    match seen {
        NotedEvent::Deleting | NotedEvent::Gone { .. } => "was deleted".to_owned(),
        NotedEvent::Failed { reason, .. } => format!("failed ({reason})"),
        NotedEvent::Succeeded => "succeeded".to_owned(),
    }
}

/// A mirror pod, and the Node that it belongs to: by its owner, else the one that is there.
fn read_mirror(pod: &Value, api: &Snapshot) -> Option<Mirror> {
    let uid = text_at(pod, &["metadata", "uid"])?.to_owned();
    let version = text_at(pod, &["metadata", "resourceVersion"]).and_then(|v| v.parse().ok());
    let there = || api.node.as_ref().and_then(|node| text_at(&node.value, &["metadata", "uid"]));
    let node_uid = node_owner(pod).or_else(there);
    Some(Mirror { uid, node_uid: node_uid.map(str::to_owned), version: version.unwrap_or(0), is_judged: false })
}

#[cfg(test)]
mod tests {
    use crate::core::orders::ObjectState;
    use crate::core::time::Span;
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::observation;
    use crate::node::agent::decide::tests::state;

    use super::*;

    fn survey() -> Reply {
        let there = |uid: &str| ObjectState::There { uid: uid.to_owned(), going: false };
        let survey = Survey {
            daemon_set: Some((there("d"), Some("d".to_owned()))),
            node: there("n"),
            shutting_down: false,
            node_ready: true,
            namespace: there("s"),
            ended: false,
        };
        Reply::Surveyed { mirror_uid: "m".to_owned(), survey }
    }

    #[test]
    fn what_a_deleted_mirror_pod_goes_with_is_asked_until_it_is_answered_and_then_a_restart_is_ordered() {
        for is_own in [false, true] {
            let (mut orders, mut records) = (RestartOrders::default(), state(&config()).records);
            let mut seen = observation(Some(Snapshot::default()));
            seen.api.as_mut().unwrap().sightings.push(Sighting {
                static_uid: "uid-1".to_owned(),
                mirror_uid: "m".to_owned(),
                pod: evidence::mirror_key(&key().namespace, "net-11111", "n1"),
                node_uid: None,
                daemon_set_uid: None,
                seen: NotedEvent::Deleting,
            });
            note_mirrors(&seen, &mut records, "n1");
            let mut asked = |millis: i64, replies: Vec<Reply>| {
                let now = seen.now + Span::from_millis(millis);
                let seen = Observation { now, replies, ..observation(Some(Snapshot::default())) };
                let is_own = |_: &str| is_own;
                let (node, fingerprint) = ("n1", &Fingerprint::default());
                let surroundings = Surroundings { node, cluster: None, is_own: &is_own, fingerprint };
                orders.observe(&seen, &mut records, &surroundings, &mut Log::default());
                let is_ordered = records[&key()].instances[0].restart.is_some();
                (orders.requests(&seen), orders.due().map(|due| due - seen.now), is_ordered)
            };
            let (mirror_uid, daemon_set) = ("m".to_owned(), Some("d".to_owned()));
            let question = Request::Survey { mirror_uid, key: key(), daemon_set, cluster: None };
            let (wait, moment) = (orders::ASK_AGAIN, Span::from_millis(1));
            assert_eq!(asked(0, vec![]), (vec![question.clone()], Some(wait), false));
            assert_eq!(asked(1, vec![]), (vec![], Some(wait - moment), false), "it was asked");
            assert_eq!(asked(wait.as_millis(), vec![]), (vec![question], Some(wait), false));
            assert_eq!(asked(wait.as_millis() + 1, vec![survey()]), (vec![], None, !is_own));
        }
    }
}
