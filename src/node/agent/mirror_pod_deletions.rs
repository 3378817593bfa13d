//! Telling the API that a pod ends: its mirror pod gets a deletion timestamp while it terminates.
//!
//! Owns when that is said. The kubelet never says it for a static pod, so that EndpointSlices would
//! send traffic to a pod that is being stopped. A kubelet that has not seen the manifest go deletes
//! and re-creates such a mirror pod at once: it is given a moment, and told again if it did. One with a
//! terminal phase is left alone: the API server would remove it at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Snapshot;

use super::Agent;
use super::evidence;
use super::inbox::Inbox;
use super::now;

/// How long after a manifest's removal the kubelet has seen it: it is told of it by the file system.
const SEEN: Span = Span::from_millis(150);
/// How long a successor waits for this at most, counted from the removal.
const PATIENCE: Span = Span::from_secs(2);
/// A deletion that failed is tried again after this.
const AGAIN: Span = Span::from_secs(1);
/// How long a deletion is remembered.
const REMEMBERED: Span = Span::from_mins(10);

/// What was deleted by us, by the mirror pod's UID.
#[derive(Default)]
pub(super) struct MirrorPodDeletions {
    sent: BTreeMap<String, Sent>,
    inbox: Inbox<(String, Result<(), String>)>,
}

struct Sent {
    at: Timestamp,
    answer: Option<Result<(), String>>,
}

impl MirrorPodDeletions {
    /// Whether the agent itself deleted the mirror pod of that UID.
    pub(super) fn is_own(&self, mirror_uid: &str) -> bool {
        self.sent.contains_key(mirror_uid)
    }

    /// Whether a successor has to wait: the mirror pod of an instance that ends has not been told yet.
    pub(super) fn is_pending(&self, instance: &Instance, mirror: Option<&Value>, at: Timestamp) -> bool {
        let Phase::Ending { since, .. } = instance.phase else { return false };
        let Some(uid) = mirror.and_then(to_tell) else { return false };
        at - since < PATIENCE && self.sent.get(uid).is_none_or(|sent| sent.answer.is_none())
    }

    fn is_due(&self, uid: &str, at: Timestamp) -> bool {
        self.sent.get(uid).is_none_or(|sent| matches!(sent.answer, Some(Err(_))) && at - sent.at >= AGAIN)
    }
}

/// The UID of a mirror pod that is to be told: it is not being deleted, and its phase is not terminal.
fn to_tell(mirror: &Value) -> Option<&str> {
    let phase = mirror.pointer("/status/phase").and_then(Value::as_str);
    let spared =
        mirror.pointer("/metadata/deletionTimestamp").is_some() || matches!(phase, Some("Failed" | "Succeeded"));
    if spared { None } else { mirror.pointer("/metadata/uid").and_then(Value::as_str) }
}

impl Agent {
    /// Deletes the mirror pods of instances whose manifests are gone.
    pub(super) fn delete_mirror_pods(&mut self, snapshot: &Snapshot) {
        let at = now();
        for (uid, answer) in self.mirror_pod_deletions.inbox.take() {
            if let Err(why) = &answer {
                tracing::warn!("a mirror pod is not told that its pod ends, and still gets traffic: {why}");
            }
            self.mirror_pod_deletions.sent.entry(uid).or_insert(Sent { at, answer: None }).answer = Some(answer);
        }
        self.mirror_pod_deletions.sent.retain(|_, sent| at - sent.at < REMEMBERED);
        let Some(api) = self.api.clone().filter(|_| self.api_answers(Some(snapshot))) else { return };
        let records = self.disk.records.values().filter(|r| !self.failures.contains_key(&r.key));
        let ending: Vec<(&DaemonRecord, &Instance)> = records.flat_map(|r| r.ending().map(move |i| (r, i))).collect();
        for (record, instance) in ending {
            let seen = instance.phase.since().is_some_and(|since| at - since >= SEEN);
            let namespace = &record.key.namespace;
            let mirror = evidence::mirror(snapshot, namespace, instance, &self.config.node_name);
            let Some(uid) = mirror.and_then(to_tell).filter(|uid| seen && self.mirror_pod_deletions.is_due(uid, at))
            else {
                continue;
            };
            let key = evidence::mirror_key(namespace, &instance.pod_name, &self.config.node_name);
            let grace = u32::try_from(evidence::grace(instance).as_secs().max(1)).unwrap_or(u32::MAX);
            let (api, uid, wake) = (api.clone(), uid.to_owned(), Arc::clone(&self.wake));
            let inbox = self.mirror_pod_deletions.inbox.clone();
            self.mirror_pod_deletions.sent.insert(uid.clone(), Sent { at, answer: None });
            tokio::spawn(async move {
                let answer = api.delete_pod(&key, &uid, grace).await;
                inbox.put((uid, answer.map_err(|failure| failure.to_string())), &wake);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;
    use crate::core::time::ms;
    use serde_json::json;

    use super::*;

    fn mirror(uid: &str) -> Value {
        json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}})
    }

    fn ending() -> Instance {
        let phase = Phase::Ending { since: at(1_000), reason: String::new() };
        Instance { phase, ..Instance::new("u", "p", 0, "", at(0)) }
    }

    #[test]
    fn a_successor_waits_for_the_answer_and_no_longer() {
        let mut mirror_pod_deletions = MirrorPodDeletions::default();
        let pending = |f: &MirrorPodDeletions, mirror: Option<&Value>, at| f.is_pending(&ending(), mirror, at);
        assert!(pending(&mirror_pod_deletions, Some(&mirror("m")), at(1_100)), "it has not been sent");
        mirror_pod_deletions.sent.insert("m".to_owned(), Sent { at: at(1_150), answer: None });
        assert!(pending(&mirror_pod_deletions, Some(&mirror("m")), at(1_200)), "it has not been answered");
        assert!(!pending(&mirror_pod_deletions, Some(&mirror("m")), at(1_000) + PATIENCE));
        mirror_pod_deletions.sent.insert("m".to_owned(), Sent { at: at(1_150), answer: Some(Ok(())) });
        assert!(!pending(&mirror_pod_deletions, Some(&mirror("m")), at(1_200)));
        assert!(pending(&mirror_pod_deletions, Some(&mirror("m2")), at(1_200)), "the kubelet re-created it");
        assert!(!pending(&mirror_pod_deletions, None, at(1_200)));
    }

    #[test]
    fn what_is_deleted_or_terminal_is_spared() {
        assert_eq!(to_tell(&mirror("m")), Some("m"));
        for phase in ["Failed", "Succeeded"] {
            assert_eq!(to_tell(&json!({"metadata": {"uid": "m"}, "status": {"phase": phase}})), None);
        }
        assert_eq!(to_tell(&json!({"metadata": {"uid": "m", "deletionTimestamp": "t"}})), None);
    }

    #[test]
    fn a_deletion_that_failed_is_sent_again() {
        let mut mirror_pod_deletions = MirrorPodDeletions::default();
        assert!(mirror_pod_deletions.is_due("m", at(0)));
        mirror_pod_deletions.sent.insert("m".to_owned(), Sent { at: at(0), answer: None });
        assert!(!mirror_pod_deletions.is_due("m", at(0) + AGAIN));
        mirror_pod_deletions.sent.insert("m".to_owned(), Sent { at: at(0), answer: Some(Err(String::new())) });
        assert!(
            !mirror_pod_deletions.is_due("m", at(0) + AGAIN - ms(1)) && mirror_pod_deletions.is_due("m", at(0) + AGAIN)
        );
        mirror_pod_deletions.sent.insert("m".to_owned(), Sent { at: at(0), answer: Some(Ok(())) });
        assert!(!mirror_pod_deletions.is_due("m", at(0) + AGAIN), "it is on its way");
    }
}
