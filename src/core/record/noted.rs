//! Events on an instance's mirror pod that have not been judged yet.
//!
//! Owns the values only; `core::orders` judges. They are on disk, because the kubelet undoes a deletion within seconds
//! and an agent that crashes meanwhile must not forget it.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;

use super::DaemonRecord;
use super::Phase;

/// The events that may order a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "camelCase")]
pub enum NotedEvent {
    /// It got a deletion timestamp.
    Deleting,
    /// It was deleted, or another one has its name.
    Gone {
        /// Whether the API server has an older state: restored from a backup.
        #[serde(default, rename = "setBack")]
        set_back: bool,
    },
    /// Its phase became Failed.
    Failed {
        /// The reason, such as `Terminated`.
        reason: String,
        message: String,
    },
    /// Its phase became Succeeded.
    Succeeded,
}

impl NotedEvent {
    fn is_deletion(&self) -> bool {
        matches!(self, NotedEvent::Deleting | NotedEvent::Gone { .. })
    }
}

/// An event on one mirror pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Noted {
    /// The mirror pod's own UID.
    pub mirror_uid: String,
    /// UID of the Node that it belonged to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// UID of the DaemonSet that it belonged to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set_uid: Option<String>,
    #[serde(flatten)]
    pub seen: NotedEvent,
    /// When.
    pub at: Timestamp,
}

/// The mirror pod of an instance as it was first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mirror {
    /// Its own UID.
    pub uid: String,
    /// UID of the Node that it belongs to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// Its resource version when it was first seen: a later mirror pod with a lower one comes from an API server that
    /// was restored from a backup.
    #[serde(default)]
    pub version: u64,
    /// Whether its deletion has been judged: it is not noted again when the next mirror pod shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_judged: bool,
}

impl DaemonRecord {
    /// Notes an event on a mirror pod of the live instance `uid`. The first event on a mirror pod is kept, except that a
    /// deletion overrides a phase; one that has been judged is not noted again. A Node or DaemonSet that the event does
    /// not name is the one that is known.
    pub fn note(&mut self, uid: &str, event: Noted) {
        let live = |i: &&mut super::Instance| i.uid == uid && i.phase == Phase::Live && i.restart.is_none();
        let Some(instance) = self.instances.iter_mut().find(live) else { return };
        let known = instance.mirror.as_ref().filter(|m| m.uid == event.mirror_uid);
        if event.seen.is_deletion() && known.is_some_and(|m| m.is_judged) {
            return;
        }
        let overtakes = |noted: &Noted| {
            noted.mirror_uid != event.mirror_uid || (!noted.seen.is_deletion() && event.seen.is_deletion())
        };
        if instance.noted.as_ref().is_none_or(overtakes) {
            let node_uid = known.and_then(|m| m.node_uid.clone()).or(event.node_uid);
            let daemon_set_uid = event.daemon_set_uid.or_else(|| self.api_uid.clone());
            instance.noted = Some(Noted { node_uid, daemon_set_uid, ..event });
        }
    }

    /// Forgets the event on the mirror pod of the instance `uid`, which has been judged. What is so later says nothing of a
    /// deletion.
    pub fn judged(&mut self, uid: &str) {
        for instance in self.instances.iter_mut().filter(|i| i.uid == uid) {
            let Some(noted) = instance.noted.take().filter(|noted| noted.seen.is_deletion()) else { continue };
            let deleted = instance.mirror.iter_mut().filter(|mirror| mirror.uid == noted.mirror_uid);
            deleted.for_each(|mirror| mirror.is_judged = true);
        }
    }

    /// Notes the mirror pod of the live instance `uid`: if it replaces another one, that one was deleted.
    pub fn follow_mirror(&mut self, uid: &str, mirror: Mirror, now: Timestamp) {
        let Some(instance) = self.instances.iter().find(|i| i.uid == uid) else { return };
        let Some(before) = instance.mirror.clone() else { return self.keep_mirror(uid, mirror) };
        if before.uid != mirror.uid {
            let set_back = mirror.version < before.version;
            let seen = NotedEvent::Gone { set_back };
            let event = Noted { mirror_uid: before.uid, node_uid: None, daemon_set_uid: None, seen, at: now };
            self.note(uid, event);
            self.keep_mirror(uid, mirror);
        }
    }

    fn keep_mirror(&mut self, uid: &str, mirror: Mirror) {
        for instance in self.instances.iter_mut().filter(|i| i.uid == uid) {
            instance.mirror = Some(mirror.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectKey;
    use crate::core::record::Fingerprint;
    use crate::core::record::Instance;
    use crate::core::record::Phase;
    use crate::core::record::RestartCause;
    use crate::core::time::at;

    use super::*;

    fn record() -> DaemonRecord {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances = vec![Instance::new("u", "p", 0, "r", at(0))];
        record
    }

    fn mirror(uid: &str, version: u64) -> Mirror {
        Mirror { uid: uid.to_owned(), node_uid: Some("n1".to_owned()), version, is_judged: false }
    }

    fn event(mirror_uid: &str, seen: NotedEvent, now: Timestamp) -> Noted {
        Noted { mirror_uid: mirror_uid.to_owned(), node_uid: None, daemon_set_uid: None, seen, at: now }
    }

    #[test]
    fn another_mirror_pod_says_that_the_first_was_deleted() {
        let mut record = record();
        record.follow_mirror("u", mirror("m1", 10), at(1));
        assert_eq!(record.instances[0].noted, None, "the first one says nothing");
        record.follow_mirror("u", mirror("m1", 12), at(2));
        assert_eq!(record.instances[0].mirror, Some(mirror("m1", 10)), "its first version is kept");
        record.follow_mirror("u", mirror("m2", 20), at(3));
        let noted = record.instances[0].noted.clone().unwrap();
        assert_eq!((noted.mirror_uid.as_str(), noted.node_uid.as_deref(), noted.at), ("m1", Some("n1"), at(3)));
        assert_eq!(noted.seen, NotedEvent::Gone { set_back: false });
        assert_eq!(record.instances[0].mirror, Some(mirror("m2", 20)));
    }

    #[test]
    fn a_pod_that_no_pass_saw_has_the_node_of_the_event() {
        let mut record = record();
        record.follow_mirror("u", mirror("m2", 20), at(1));
        record.note("u", Noted { node_uid: Some("n0".to_owned()), ..event("m1", NotedEvent::Deleting, at(1)) });
        assert_eq!(record.instances[0].noted.clone().unwrap().node_uid.as_deref(), Some("n0"));
    }

    #[test]
    fn the_daemon_set_is_the_one_that_owned_the_pod_else_the_one_at_that_time() {
        let mut record = record();
        record.api_uid = Some("d1".to_owned());
        record.follow_mirror("u", mirror("m1", 10), at(1));
        record.note("u", event("m1", NotedEvent::Deleting, at(2)));
        record.api_uid = Some("d2".to_owned());
        let noted = |record: &DaemonRecord| record.instances[0].noted.clone().unwrap().daemon_set_uid;
        assert_eq!(noted(&record).as_deref(), Some("d1"));
        record.note("u", Noted { daemon_set_uid: Some("d0".to_owned()), ..event("m0", NotedEvent::Deleting, at(3)) });
        assert_eq!(noted(&record).as_deref(), Some("d0"));
    }

    #[test]
    fn a_deletion_is_judged_once_and_a_phase_says_nothing_of_a_deletion() {
        let mut record = record();
        record.follow_mirror("u", mirror("m1", 10), at(1));
        record.note("u", event("m1", NotedEvent::Succeeded, at(2)));
        record.judged("u");
        record.note("u", event("m1", NotedEvent::Deleting, at(3)));
        assert_eq!(record.instances[0].noted.as_ref().unwrap().seen, NotedEvent::Deleting);
        record.judged("u");
        record.note("u", event("m1", NotedEvent::Gone { set_back: false }, at(4)));
        record.follow_mirror("u", mirror("m2", 20), at(5));
        assert_eq!(record.instances[0].noted, None);
        record.follow_mirror("u", mirror("m3", 30), at(6));
        assert_eq!(record.instances[0].noted.as_ref().unwrap().mirror_uid, "m2", "another deletion");
    }

    #[test]
    fn an_older_version_is_of_a_restored_api_server() {
        let mut record = record();
        record.follow_mirror("u", mirror("m1", 10), at(1));
        record.follow_mirror("u", mirror("m2", 9), at(2));
        assert_eq!(record.instances[0].noted.clone().unwrap().seen, NotedEvent::Gone { set_back: true });
    }

    #[test]
    fn the_first_note_stands_and_a_deletion_overtakes_a_phase() {
        let mut record = record();
        record.note("u", event("m", NotedEvent::Succeeded, at(1)));
        record.note("u", event("m", NotedEvent::Failed { reason: String::new(), message: String::new() }, at(2)));
        assert_eq!(record.instances[0].noted.clone().unwrap().seen, NotedEvent::Succeeded);
        record.note("u", event("m", NotedEvent::Deleting, at(3)));
        record.note("u", event("m", NotedEvent::Gone { set_back: false }, at(4)));
        let noted = record.instances[0].noted.clone().unwrap();
        assert_eq!((noted.seen, noted.at), (NotedEvent::Deleting, at(3)));
    }

    #[test]
    fn what_ends_or_is_ordered_anyway_is_not_noted() {
        let mut record = record();
        record.order_restart("u", RestartCause::ByHand, at(1), &Fingerprint::Unknown);
        record.note("u", event("m", NotedEvent::Deleting, at(2)));
        assert_eq!(record.instances[0].noted, None);
        record.instances[0].restart = None;
        record.end("u", &Phase::ending(at(3), ""));
        record.note("u", event("m", NotedEvent::Deleting, at(4)));
        assert_eq!(record.instances[0].noted, None);
    }
}
