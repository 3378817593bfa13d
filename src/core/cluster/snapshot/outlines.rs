//! DaemonSets of which no more is known than that they exist: no label gives them to the agents.
//!
//! Owns which of them are to be read whole all the same: what an agent says it runs in place of the DaemonSet controller
//! (`default-mode = "static"`, or a folder), and what still has conditions of ours in its status.

use serde_json::Value;

use crate::core::cluster::conditions;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;

use super::ClusterSnapshot;
use super::WatchedKind;
use super::objects;

/// A DaemonSet that is not read whole.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    uid: String,
    version: u64,
}

impl ClusterSnapshot {
    /// What is to be read whole: DaemonSets, then ControllerRevisions.
    pub fn unread(&self) -> impl Iterator<Item = &(WatchedKind, ObjectKey)> {
        self.unread.iter()
    }

    /// Takes an outline. False: no decision depends on it.
    pub(super) fn put_outline(&mut self, object: &Value) -> bool {
        let key = objects::key(object);
        let uid = object.str_at(["metadata", "uid"]).to_owned();
        let live = object.list_at(["status", "conditions"]);
        let has_ours = conditions::without_ours(live).len() < live.len();
        let is_news = has_ours || self.is_claimed(&key, &uid);
        if is_news {
            self.unread.insert((WatchedKind::DaemonSets, key.clone()));
        }
        let was_whole = self.remove_daemon(&key);
        self.outlines.insert(key, Outline { uid, version: objects::version(object) });
        is_news || was_whole
    }

    /// Takes the answer to a GET, unless a later state of the DaemonSet has been seen.
    pub(super) fn take_read(&mut self, object: Value) {
        let known = self.outlines.get(&objects::key(&object));
        if known.is_some_and(|known| objects::version(&object) >= known.version) {
            self.put_daemon(object);
        }
    }

    pub(super) fn remove_outline(&mut self, key: &ObjectKey) {
        self.outlines.remove(key);
        self.unread.remove(&(WatchedKind::DaemonSets, key.clone()));
    }

    /// What an agent says it runs is read whole.
    pub(super) fn note_claims(&mut self, said_of: &[DaemonReport]) {
        for told in said_of.iter().filter(|told| told.mode == Some(Mode::Static)) {
            let key = ObjectKey::new(&told.namespace, &told.name);
            if self.outlines.get(&key).is_some_and(|outline| outline.uid == told.uid) {
                self.unread.insert((WatchedKind::DaemonSets, key));
            }
        }
    }

    /// Whether an agent has said that it runs this DaemonSet in place of the DaemonSet controller.
    fn is_claimed(&self, key: &ObjectKey, uid: &str) -> bool {
        let (Some(key), Some(uid)) = (self.names.find(&key.to_string()), self.names.find(uid)) else { return false };
        let reports = self.nodes.values().filter_map(|entry| entry.report.as_ref());
        reports.filter_map(|report| report.told(key)).any(|told| told.is_static && told.uid == Some(uid))
    }
}
