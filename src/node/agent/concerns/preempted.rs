//! Pods that the kubelet ended to make room for a daemon.
//!
//! Owns whom they made room for, as far as that can be told: the daemon whose instance came last. The
//! kubelet says only that it did it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::state::Records;

/// An instance that is older did not cause a preemption that shows now: the status of a pod that is
/// ended shows when its grace period is over.
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
            let recent = |record: &DaemonRecord| record.live().map(|i| i.created).max().filter(|c| now - *c < RECENT);
            let came = records.values().filter_map(|r| Some((recent(r)?, &r.key))).max();
            if let Some((_, daemon)) = came {
                log.warn(format!("the kubelet ended pod {pod} to make room for {daemon}")).daemonset(daemon);
                self.by_daemon.entry(daemon.clone()).or_default().push((pod.clone(), now));
            }
        }
        self.known = here;
        for pods in self.by_daemon.values_mut() {
            pods.retain(|(_, since)| now - *since < SHOWN);
        }
        self.by_daemon.retain(|_, pods| !pods.is_empty());
    }

    /// What to say of a daemon.
    pub(in super::super) fn note(&self, daemon: &ObjectKey) -> Option<String> {
        let pods: Vec<String> = self.by_daemon.get(daemon)?.iter().map(|(pod, _)| pod.to_string()).collect();
        Some(format!("the kubelet preempted {} to make room for it", pods.join(", ")))
    }
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
}
