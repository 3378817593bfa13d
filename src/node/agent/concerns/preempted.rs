//! Pods that the kubelet ended to make room for a daemon.
//!
//! Owns for which daemon they made room, as far as that can be known: not their own, but the one whose instance came
//! last before the preemption. The kubelet reports only that it preempted a pod, and when.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::record::DaemonRecord;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;

/// An instance that is older did not cause a preemption. Where the kubelet does not say when that was, it is taken for
/// the time at which it shows, which is when the grace period of the pod is over.
const RECENT: Span = Span::from_mins(10);
/// How long it is shown.
const SHOWN: Span = Span::from_mins(60);

/// Pods that made room.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Preempted {
    /// UIDs that have been attributed.
    known: BTreeSet<String>,
    /// By daemon: the pod, and when that was seen.
    by_daemon: BTreeMap<ObjectKey, Vec<(ObjectKey, Timestamp)>>,
}

impl Preempted {
    /// Looks for pods that were ended to make room.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records, log: &mut Log) {
        let Some(api) = observation.snapshot() else { return };
        let now = observation.now;
        let mut here = BTreeSet::new();
        for (pod, entry) in &api.pods {
            let text = |pointer: &str| entry.value.pointer(pointer).and_then(Value::as_str);
            let (Some("Preempting"), Some(uid)) = (text("/status/reason"), text("/metadata/uid")) else { continue };
            here.insert(uid.to_owned());
            if self.known.contains(uid) {
                continue;
            }
            let at = preempted_at(&entry.value).unwrap_or(now);
            let came = records.values().filter(|record| !is_of(&entry.value, record));
            let came = came.filter_map(|record| Some((came_before(record, at)?, &record.key))).max();
            if let Some((_, daemon)) = came {
                log.warn(format!("the kubelet ended pod {pod} to make room for it")).daemonset(daemon);
                self.by_daemon.entry(daemon.clone()).or_default().push((pod.clone(), now));
            }
        }
        self.known = here;
        for pods in self.by_daemon.values_mut() {
            pods.retain(|(_, since)| now - *since < SHOWN);
        }
        self.by_daemon.retain(|_, pods| !pods.is_empty());
    }

    /// What to report about a daemon.
    pub(in super::super) fn note(&self, daemon: &ObjectKey) -> Option<String> {
        let pods: Vec<String> = self.by_daemon.get(daemon)?.iter().map(|(pod, _)| pod.to_string()).collect();
        Some(format!("the kubelet preempted {} to make room for it", pods.join(", ")))
    }
}

/// When the kubelet ended a pod; `None`: it does not report that.
fn preempted_at(pod: &Value) -> Option<Timestamp> {
    let conditions = pod.list_at(["status", "conditions"]);
    let condition = conditions.iter().find(|condition| condition.str_at("type") == owners::DISRUPTION)?;
    condition.str_at("lastTransitionTime").parse().ok()
}

/// Whether a pod is an instance's of that daemon: what started in its place did not cause its end.
fn is_of(pod: &Value, record: &DaemonRecord) -> bool {
    let uid = pod.text_at(["metadata", "annotations", owners::MIRROR_ANNOTATION]);
    record.instances.iter().any(|instance| Some(instance.uid.as_str()) == uid)
}

/// When the last instance came that can have caused a preemption at `at`. The API's times have no fractions.
fn came_before(record: &DaemonRecord, at: Timestamp) -> Option<Timestamp> {
    let came = record.live().map(|instance| instance.created);
    came.filter(|created| *created < at + Span::from_secs(1) && at - *created < RECENT).max()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use crate::core::knowledge::Knowledge;
    use crate::core::record::Instance;
    use crate::core::time::at;
    use crate::node::api::Entry;
    use crate::node::api::Snapshot;

    use super::*;

    #[test]
    fn a_preemption_is_shown_at_the_daemon_that_came_last() {
        let record = |name: &str, created| {
            let mut record = DaemonRecord::new(ObjectKey::new("a", name), 0);
            record.instances.push(Instance::new(name, name, 0, "r", created));
            (record.key.clone(), record)
        };
        let records = Records::from([record("old", at(1_000)), record("new", at(2_000))]);
        let pod = |reason: &str| Entry {
            version: 1,
            value: Arc::new(json!({"metadata": {"uid": "p"}, "status": {"reason": reason}})),
        };
        let mut preempted = Preempted::default();
        let see = |preempted: &mut Preempted, reason: &str, now: Timestamp| {
            let mut api = Snapshot::default();
            api.pods.insert(ObjectKey::new("default", "web"), pod(reason));
            let observation = Observation { now, ..Observation::of(Some(api), Knowledge::NeverHeard, 0) };
            preempted.observe(&observation, &records, &mut Log::default());
        };
        see(&mut preempted, "Evicted", at(3_000));
        assert_eq!(preempted.note(&ObjectKey::new("a", "new")), None, "another reason");
        see(&mut preempted, "Preempting", at(3_000));
        see(&mut preempted, "Preempting", at(4_000));
        let note = preempted.note(&ObjectKey::new("a", "new"));
        assert_eq!(note.as_deref(), Some("the kubelet preempted default/web to make room for it"));
        assert_eq!(preempted.note(&ObjectKey::new("a", "old")), None);
        see(&mut preempted, "Preempting", at(3_000) + SHOWN);
        assert_eq!(preempted.note(&ObjectKey::new("a", "new")), None, "long ago");
    }

    #[test]
    fn a_daemon_that_another_preempted_did_not_make_room_for_itself_nor_for_what_came_later() {
        let record = |name: &str, instances: &[(&str, Timestamp)]| {
            let mut record = DaemonRecord::new(ObjectKey::new("a", name), 0);
            let instance = |(uid, created): &(&str, Timestamp)| Instance::new(uid, uid, 0, "r", *created);
            record.instances = instances.iter().map(instance).collect();
            (record.key.clone(), record)
        };
        // The one that made room has another instance by now.
        let records = Records::from([
            record("critical", &[("critical", Timestamp::from_secs(2_000))]),
            record("later", &[("later", Timestamp::from_secs(2_003))]),
            record("room", &[("room", Timestamp::from_secs(1_900)), ("room-again", Timestamp::from_secs(2_010))]),
        ]);
        let condition =
            json!({"type": "DisruptionTarget", "lastTransitionTime": Timestamp::from_secs(2_001).to_string()});
        for (conditions, expected) in [(json!([condition]), "critical"), (json!([]), "later")] {
            let metadata = json!({"uid": "m", "annotations": {"kubernetes.io/config.mirror": "room"}});
            let pod = json!({"metadata": metadata, "status": {"reason": "Preempting", "conditions": conditions}});
            let mut api = Snapshot::default();
            api.pods.insert(ObjectKey::new("a", "room-n1"), Entry { version: 1, value: Arc::new(pod) });
            let observation = Observation {
                now: Timestamp::from_secs(2_031),
                ..Observation::of(Some(api), Knowledge::NeverHeard, 0)
            };
            let mut preempted = Preempted::default();
            preempted.observe(&observation, &records, &mut Log::default());
            let named = |name: &&&str| preempted.note(&ObjectKey::new("a", **name)).is_some();
            let noted: Vec<&str> = ["critical", "later", "room"].iter().filter(named).copied().collect();
            assert_eq!(noted, [expected]);
        }
    }
}
