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
use crate::node::api::Snapshot;

/// An instance that is older did not cause a preemption that shows now: the status of a pod that is
/// ended shows when its grace period is over.
const RECENT: Span = Span::from_mins(10);
/// How long it is told.
const TOLD: Span = Span::from_mins(60);

/// Pods that made room.
#[derive(Default)]
pub(super) struct Preempted {
    /// UIDs that have been attributed.
    known: BTreeSet<String>,
    /// By daemon: the pod, and when that was seen.
    by_daemon: BTreeMap<ObjectKey, Vec<(ObjectKey, Timestamp)>>,
}

impl Preempted {
    /// Looks for pods that were ended to make room.
    pub(super) fn follow(&mut self, api: &Snapshot, records: &BTreeMap<ObjectKey, DaemonRecord>, at: Timestamp) {
        let mut here = BTreeSet::new();
        for (pod, entry) in &api.pods {
            let text = |pointer: &str| entry.value.pointer(pointer).and_then(Value::as_str);
            let (Some("Preempting"), Some(uid)) = (text("/status/reason"), text("/metadata/uid")) else { continue };
            here.insert(uid.to_owned());
            if self.known.contains(uid) {
                continue;
            }
            let recent = |record: &DaemonRecord| record.live().map(|i| i.created).max().filter(|c| at - *c < RECENT);
            let came = records.values().filter_map(|r| Some((recent(r)?, &r.key))).max();
            if let Some((_, daemon)) = came {
                tracing::warn!(daemonset = %daemon, pod = %pod, "the kubelet ended pod {pod} to make room for {daemon}");
                self.by_daemon.entry(daemon.clone()).or_default().push((pod.clone(), at));
            }
        }
        self.known = here;
        for pods in self.by_daemon.values_mut() {
            pods.retain(|(_, since)| at - *since < TOLD);
        }
        self.by_daemon.retain(|_, pods| !pods.is_empty());
    }

    /// What to say of a daemon.
    pub(super) fn note(&self, daemon: &ObjectKey) -> Option<String> {
        let pods: Vec<String> = self.by_daemon.get(daemon)?.iter().map(|(pod, _)| pod.to_string()).collect();
        Some(format!("the kubelet preempted {} to make room for it", pods.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use std::sync::Arc;

    use serde_json::json;

    use crate::core::record::Instance;
    use crate::node::api::Entry;

    use super::*;

    #[test]
    fn the_daemon_that_came_last_is_told() {
        let record = |name: &str, created| {
            let mut record = DaemonRecord::new(ObjectKey::new("a", name), 0);
            record.instances.push(Instance::new(name, name, 0, "r", created));
            (record.key.clone(), record)
        };
        let records = BTreeMap::from([record("old", at(1_000)), record("new", at(2_000))]);
        let pod = |reason: &str| Entry {
            version: 1,
            value: Arc::new(json!({"metadata": {"uid": "p"}, "status": {"reason": reason}})),
        };
        let mut api = Snapshot::default();
        api.pods.insert(ObjectKey::new("default", "web"), pod("Evicted"));
        let mut preempted = Preempted::default();
        preempted.follow(&api, &records, at(3_000));
        assert_eq!(preempted.note(&ObjectKey::new("a", "new")), None, "another reason");
        api.pods.insert(ObjectKey::new("default", "web"), pod("Preempting"));
        preempted.follow(&api, &records, at(3_000));
        preempted.follow(&api, &records, at(4_000));
        let note = preempted.note(&ObjectKey::new("a", "new"));
        assert_eq!(note.as_deref(), Some("the kubelet preempted default/web to make room for it"));
        assert_eq!(preempted.note(&ObjectKey::new("a", "old")), None);
        preempted.follow(&api, &records, at(3_000) + TOLD);
        assert_eq!(preempted.note(&ObjectKey::new("a", "new")), None, "long ago");
    }
}
