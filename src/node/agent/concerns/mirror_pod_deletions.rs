//! Reports to the API server that a pod ends: its mirror pod gets a deletion timestamp while it terminates.
//!
//! Owns when that is sent. The kubelet never does it for a static pod, so that EndpointSlices would send traffic to a pod
//! that is being stopped. A kubelet that has not seen the manifest go deletes and re-creates such a mirror pod at once:
//! it is given a moment, and the deletion is sent again if it did. A mirror pod with a terminal phase is left alone: the
//! API server would remove it at once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::evidence;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;

/// How long after a manifest's removal the kubelet has seen it: the file system notifies it.
const KUBELET_SEES: Span = Span::from_millis(150);
/// How long a successor waits for the deletion at most, counted from the removal.
const PATIENCE: Span = Span::from_secs(2);
/// A deletion that failed is sent again after this.
const AGAIN: Span = Span::from_secs(1);
/// How long a deletion is remembered.
const REMEMBERED: Span = Span::from_mins(10);

/// The mirror pods that the agent deleted, by the mirror pod's UID.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct MirrorPodDeletions {
    sent: BTreeMap<String, Deletion>,
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Deletion {
    at: Timestamp,
    answer: Option<DeletionAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum DeletionAnswer {
    Deleted,
    Failed,
}

impl MirrorPodDeletions {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records, log: &mut Log) {
        for reply in &observation.replies {
            let Reply::MirrorPodDeleted { uid, result } = reply else { continue };
            if let Err(failure) = result {
                let is_it = |instance: &Instance| instance.mirror.as_ref().is_some_and(|mirror| mirror.uid == *uid);
                log.warn(format!("mirror pod {uid} is not marked as ending, and still gets traffic: {failure}"))
                    .daemonset_of(records, |record| record.instances.iter().any(is_it));
            }
            let answer = if result.is_ok() { DeletionAnswer::Deleted } else { DeletionAnswer::Failed };
            let deletion = self.sent.entry(uid.clone()).or_insert(Deletion { at: observation.now, answer: None });
            deletion.answer = Some(answer);
        }
        // A clock that was set back makes nothing wait longer.
        self.sent.values_mut().for_each(|deletion| deletion.at = deletion.at.min(observation.now));
        self.sent.retain(|_, deletion| observation.now - deletion.at < REMEMBERED);
    }

    /// Whether the agent itself deleted the mirror pod of that UID.
    pub(in super::super) fn is_own(&self, mirror_uid: &str) -> bool {
        self.sent.contains_key(mirror_uid)
    }

    /// Whether a successor has to wait: the mirror pod of an instance that ends is not marked as ending yet.
    pub(in super::super) fn is_pending(&self, instance: &Instance, mirror: Option<&Value>, now: Timestamp) -> bool {
        let Phase::Ending { since, .. } = instance.phase else { return false };
        let Some(uid) = mirror.and_then(to_delete) else { return false };
        now - since < PATIENCE && self.sent.get(uid).is_none_or(|sent| sent.answer.is_none())
    }

    /// The deletions that are due: of instances whose manifests are gone.
    pub(in super::super) fn requests(&mut self, observation: &Observation, plan: &Plan, node: &str) -> Vec<Request> {
        let Some(api) = observation.snapshot().filter(|_| observation.api_answers()) else { return Vec::new() };
        let now = observation.now;
        let mut requests = Vec::new();
        for (daemon, instance) in plan.ended_manifests() {
            let namespace = &daemon.key.namespace;
            let seen = instance.phase.since().is_some_and(|since| now - since >= KUBELET_SEES);
            let mirror = evidence::mirror(api, namespace, instance, node);
            let Some(uid) = mirror.and_then(to_delete).filter(|uid| seen && self.is_due(uid, now)) else { continue };
            let pod: ObjectKey = evidence::mirror_key(namespace, &instance.pod_name, node);
            let grace = u32::try_from(evidence::grace_period(instance).as_secs().max(1)).unwrap_or(u32::MAX);
            self.sent.insert(uid.to_owned(), Deletion { at: now, answer: None });
            requests.push(Request::DeleteMirrorPod { pod, uid: uid.to_owned(), grace_seconds: grace });
        }
        requests
    }

    fn is_due(&self, uid: &str, now: Timestamp) -> bool {
        self.sent.get(uid).is_none_or(|sent| sent.answer == Some(DeletionAnswer::Failed) && now - sent.at >= AGAIN)
    }
}

/// The UID of a mirror pod that is to be deleted: it is not being deleted, and its phase is not terminal.
fn to_delete(mirror: &Value) -> Option<&str> {
    let phase = mirror.pointer("/status/phase").and_then(Value::as_str);
    let spared =
        mirror.pointer("/metadata/deletionTimestamp").is_some() || matches!(phase, Some("Failed" | "Succeeded"));
    if spared { None } else { mirror.pointer("/metadata/uid").and_then(Value::as_str) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::time::at;

    use super::*;

    fn mirror(uid: &str) -> Value {
        json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}})
    }

    fn ending() -> Instance {
        let phase = Phase::ending(at(1_000), "");
        Instance { phase, ..Instance::new("u", "p", 0, "", at(0)) }
    }

    fn sent(millis: i64, answer: Option<DeletionAnswer>) -> MirrorPodDeletions {
        let mut deletions = MirrorPodDeletions::default();
        deletions.sent.insert("m".to_owned(), Deletion { at: at(millis), answer });
        deletions
    }

    #[test]
    fn a_successor_waits_for_the_answer_and_no_longer() {
        let pending = |d: &MirrorPodDeletions, mirror: Option<&Value>, now| d.is_pending(&ending(), mirror, at(now));
        assert!(pending(&MirrorPodDeletions::default(), Some(&mirror("m")), 1_100), "it has not been sent");
        assert!(pending(&sent(1_150, None), Some(&mirror("m")), 1_200), "it has not been answered");
        assert!(!pending(&sent(1_150, None), Some(&mirror("m")), 1_000 + PATIENCE.as_millis()));
        let deleted = sent(1_150, Some(DeletionAnswer::Deleted));
        assert!(!pending(&deleted, Some(&mirror("m")), 1_200));
        assert!(pending(&deleted, Some(&mirror("m2")), 1_200), "the kubelet re-created it");
        assert!(!pending(&deleted, None, 1_200));
    }

    #[test]
    fn what_is_deleted_or_terminal_is_spared() {
        assert_eq!(to_delete(&mirror("m")), Some("m"));
        for phase in ["Failed", "Succeeded"] {
            assert_eq!(to_delete(&json!({"metadata": {"uid": "m"}, "status": {"phase": phase}})), None);
        }
        assert_eq!(to_delete(&json!({"metadata": {"uid": "m", "deletionTimestamp": "t"}})), None);
    }

    #[test]
    fn a_deletion_that_failed_is_sent_again() {
        let again = AGAIN.as_millis();
        assert!(MirrorPodDeletions::default().is_due("m", at(0)));
        assert!(!sent(0, None).is_due("m", at(again)));
        let failed = sent(0, Some(DeletionAnswer::Failed));
        assert!(!failed.is_due("m", at(again - 1)) && failed.is_due("m", at(again)));
        assert!(!sent(0, Some(DeletionAnswer::Deleted)).is_due("m", at(again)), "it is on its way");
    }
}
