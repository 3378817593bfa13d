//! Events on mirror pods, in order, until the agent takes them.
//!
//! Owns events that the latest state does not show: the kubelet undoes a deletion within milliseconds. Must not judge.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::owners::MIRROR_ANNOTATION;
use crate::core::record::NotedEvent;

use super::resource_version;

/// More than the mirror pods of any node; the oldest are dropped first.
const MOST: usize = 4_096;

/// An event on a mirror pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sighting {
    /// UID of its static pod.
    pub static_uid: String,
    /// Its own UID.
    pub mirror_uid: String,
    pub pod: ObjectKey,
    /// The UID of the Node that owns it; `None`: another object does.
    #[serde(default)]
    pub node_uid: Option<String>,
    /// The UID of the DaemonSet that owns it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set_uid: Option<String>,
    pub seen: NotedEvent,
}

/// The events that have not been taken yet.
#[derive(Debug, Default)]
pub(super) struct Sightings(Vec<Sighting>);

impl Sightings {
    /// A pod changed from `old` to `new`.
    pub(super) fn applied(&mut self, old: Option<&Value>, new: &Value) {
        let same = old.filter(|old| old.text_at(UID) == new.text_at(UID));
        if old.is_some() && same.is_none() {
            // A restored backup lacks the old one, and the kubelet has made another.
            let set_back = old.and_then(resource_version) > resource_version(new);
            self.gone(old, set_back);
        }
        if is_deleting(new) && !same.is_some_and(is_deleting) {
            self.push(new, NotedEvent::Deleting);
        }
        if let Some(seen) = end(new).filter(|_| same.is_none_or(|old| end(old).is_none())) {
            self.push(new, seen);
        }
    }

    /// A pod last seen as `old` is gone.
    pub(super) fn deleted(&mut self, old: Option<&Value>) {
        self.gone(old, false);
    }

    fn gone(&mut self, old: Option<&Value>, set_back: bool) {
        // Its deletion has been reported already.
        if let Some(old) = old.filter(|old| !is_deleting(old)) {
            self.push(old, NotedEvent::Gone { set_back });
        }
    }

    /// Takes everything so far.
    pub(super) fn take(&mut self) -> Vec<Sighting> {
        std::mem::take(&mut self.0)
    }

    fn push(&mut self, pod: &Value, seen: NotedEvent) {
        let (Some(hash), Some(uid)) = (pod.text_at(HASH), pod.text_at(UID)) else { return };
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        let pod_key = ObjectKey::new(pod.str_at(["metadata", "namespace"]), pod.str_at(["metadata", "name"]));
        let (static_uid, mirror_uid) = (hash.to_owned(), uid.to_owned());
        let (node_uid, daemon_set_uid) = (node_owner(pod), owner(pod, "DaemonSet"));
        let (node_uid, daemon_set_uid) = (node_uid.map(str::to_owned), daemon_set_uid.map(str::to_owned));
        self.0.push(Sighting { static_uid, mirror_uid, pod: pod_key, node_uid, daemon_set_uid, seen });
    }
}

/// The UID of the Node that owns `pod`.
pub fn node_owner(pod: &Value) -> Option<&str> {
    owner(pod, "Node")
}

fn owner<'p>(pod: &'p Value, kind: &str) -> Option<&'p str> {
    let owners = pod.at(["metadata", "ownerReferences"])?.as_array()?;
    owners.iter().find(|owner| owner.str_at("kind") == kind)?.text_at("uid")
}

const HASH: [&str; 3] = ["metadata", "annotations", MIRROR_ANNOTATION];
const UID: [&str; 2] = ["metadata", "uid"];

fn is_deleting(pod: &Value) -> bool {
    pod.at(["metadata", "deletionTimestamp"]).is_some()
}

/// How a pod ended, if it has.
fn end(pod: &Value) -> Option<NotedEvent> {
    let words = |field: &str| pod.str_at(["status", field]).to_owned();
    match pod.text_at(["status", "phase"]) {
        Some("Failed") => Some(NotedEvent::Failed { reason: words("reason"), message: words("message") }),
        Some("Succeeded") => Some(NotedEvent::Succeeded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, deleting: bool, phase: &str) -> Value {
        let mut pod = json!({
            "metadata": {"uid": uid, "annotations": {"kubernetes.io/config.mirror": "u"}},
            "status": {"phase": phase, "reason": "R", "message": "m"},
        });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        pod
    }

    /// What is recorded of a pod that goes through `states`; `None`: it is deleted.
    fn seen(states: &[Option<Value>]) -> Vec<(String, NotedEvent)> {
        let (mut sightings, mut last) = (Sightings::default(), None);
        for state in states {
            match state {
                Some(new) => sightings.applied(last.as_ref(), new),
                None => sightings.deleted(last.as_ref()),
            }
            last.clone_from(state);
        }
        sightings.take().into_iter().map(|s| (s.mirror_uid, s.seen)).collect()
    }

    #[test]
    fn what_the_kubelet_undoes_at_once_is_recorded_once() {
        let running = || Some(pod("m", false, "Running"));
        let again = || Some(pod("n", false, "Pending"));
        let gone = || NotedEvent::Gone { set_back: false };
        assert_eq!(seen(&[running(), running()]), []);
        let deleted = [running(), Some(pod("m", true, "Running")), Some(pod("m", true, "Running")), None, again()];
        assert_eq!(seen(&deleted), [("m".to_owned(), NotedEvent::Deleting)]);
        assert_eq!(seen(&[running(), None, again()]), [("m".to_owned(), gone())], "by force");
        assert_eq!(seen(&[running(), again()]), [("m".to_owned(), gone())], "by force, between two lists");
        let failed = NotedEvent::Failed { reason: "R".to_owned(), message: "m".to_owned() };
        let marked = [running(), Some(pod("m", false, "Failed")), Some(pod("m", false, "Failed")), running()];
        assert_eq!(seen(&marked), [("m".to_owned(), failed)]);
        assert_eq!(
            seen(&[Some(pod("m", false, "Succeeded"))]),
            [("m".to_owned(), NotedEvent::Succeeded)],
            "when it began"
        );
    }

    #[test]
    fn one_that_a_restored_backup_lacks_was_not_deleted() {
        let at = |uid: &str, version: &str| {
            let mut pod = pod(uid, false, "Running");
            pod["metadata"]["resourceVersion"] = version.into();
            Some(pod)
        };
        let gone = |set_back| [("m".to_owned(), NotedEvent::Gone { set_back })];
        assert_eq!(seen(&[at("m", "100"), at("n", "20")]), gone(true));
        assert_eq!(seen(&[at("m", "100"), at("n", "101")]), gone(false));
    }

    #[test]
    fn the_owners_of_a_pod_that_came_and_went_are_recorded() {
        let mut owned = pod("m", false, "Running");
        owned["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "uid": "d"}, {"kind": "Node", "uid": "n"}]);
        let mut sightings = Sightings::default();
        sightings.applied(None, &owned);
        sightings.deleted(Some(&owned));
        let found = sightings.take();
        let owners = found.iter().map(|s| (s.node_uid.as_deref(), s.daemon_set_uid.as_deref()));
        assert_eq!(owners.collect::<Vec<_>>(), [(Some("n"), Some("d"))]);
    }

    #[test]
    fn other_pods_are_not_recorded() {
        let mut other = pod("m", true, "Failed");
        other["metadata"]["annotations"] = json!({});
        assert_eq!(seen(&[Some(other), None]), []);
    }
}
