//! DaemonSets of which no more is known than that they exist: no label gives them to the agents.
//!
//! Owns which of them are to be read whole all the same: those that agents run in place of the DaemonSet controller, as
//! they report (`default-mode = "static"`, or a folder), and those that still have conditions of ours in their status.

use serde_json::Value;

use crate::core::bounds;
use crate::core::cluster::conditions;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;

use super::ClusterSnapshot;
use super::WatchedKind;
use super::objects;
use super::revisions::in_namespace;

/// A DaemonSet that is not read whole.
#[derive(Clone, Debug)]
pub(super) struct DaemonSetOutline {
    uid: String,
    version: u64,
    /// Whether it is one of more DaemonSets than are coordinated in its namespace.
    is_beyond: bool,
}

impl ClusterSnapshot {
    /// What is to be read whole, DaemonSets before ControllerRevisions: first what is of trusted namespaces.
    pub fn unread(&self) -> impl Iterator<Item = &(WatchedKind, ObjectKey)> {
        let (trusted, others): (Vec<_>, Vec<_>) =
            self.unread_namespaces().into_iter().partition(|(_, namespace)| self.trusts(namespace));
        trusted.into_iter().chain(others).flat_map(|(kind, namespace)| self.unread_in(kind, namespace))
    }

    /// Where something is to be read whole: one step for each namespace, however much there is in it.
    fn unread_namespaces(&self) -> Vec<(WatchedKind, &str)> {
        let mut found = Vec::new();
        let mut next = self.unread.first();
        while let Some((kind, key)) = next {
            found.push((*kind, &*key.namespace));
            let after = (*kind, ObjectKey::new(format!("{}\0", key.namespace), ""));
            next = self.unread.range(after..).next();
        }
        found
    }

    /// What of a namespace is to be read whole.
    pub(super) fn unread_in<'a>(
        &'a self,
        kind: WatchedKind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a (WatchedKind, ObjectKey)> {
        let from = (kind, ObjectKey::new(namespace, ""));
        self.unread.range(from..).take_while(move |(of, key)| *of == kind && key.namespace == namespace)
    }

    /// DaemonSets of which only an outline is known and that are to be read whole.
    pub(in crate::core::cluster) fn unread_daemons(&self) -> impl Iterator<Item = &ObjectKey> {
        self.unread.iter().filter(|(kind, _)| *kind == WatchedKind::DaemonSets).map(|(_, key)| key)
    }

    /// Takes an outline. False: no decision depends on it.
    pub(super) fn put_outline(&mut self, object: &Value) -> bool {
        let key = objects::key(object);
        let uid = object.str_at(["metadata", "uid"]).to_owned();
        let live = object.list_at(["status", "conditions"]);
        let has_ours = conditions::without_ours(live).len() < live.len();
        let is_news = has_ours || self.is_claimed(&key, &uid);
        let was_whole = self.remove_daemon(&key);
        if is_news {
            self.unread.insert((WatchedKind::DaemonSets, key.clone()));
        }
        self.outlines.insert(key, DaemonSetOutline { uid, version: objects::version(object), is_beyond: false });
        is_news || was_whole
    }

    /// Takes the answer to a GET, unless a later state of the DaemonSet has been seen.
    pub(super) fn take_read(&mut self, object: Value) {
        let key = objects::key(&object);
        let known = self.outlines.get(&key).map(|outline| outline.version).or_else(|| self.version_without_room(&key));
        if known.is_some_and(|known| objects::version(&object) >= known) {
            self.put_daemon(object);
        }
    }

    /// Whether there is no room for one more DaemonSet in its namespace.
    pub(super) fn is_beyond(&self, key: &ObjectKey) -> bool {
        let is_bounded = !self.trusts(&key.namespace) && !self.daemons.contains_key(key);
        is_bounded && self.daemons_in(&key.namespace).count() >= bounds::DAEMON_SETS
    }

    /// Takes no more of a DaemonSet than that it exists, and that it is one too many.
    pub(super) fn leave_out(&mut self, object: &Value) {
        let (uid, version) = (object.str_at(["metadata", "uid"]).to_owned(), objects::version(object));
        self.outlines.insert(objects::key(object), DaemonSetOutline { uid, version, is_beyond: true });
    }

    /// Where a DaemonSet is gone, the first that was left out is read.
    pub(super) fn let_in(&mut self, namespace: &str) {
        let first = in_namespace(&self.outlines, namespace).find(|(_, outline)| outline.is_beyond);
        self.unread.extend(first.map(|(key, _)| (WatchedKind::DaemonSets, key.clone())));
    }

    /// Of each namespace that has too many DaemonSets: the first that is left out, its UID, and how many are.
    pub(in crate::core::cluster) fn beyond(&self) -> Vec<(&ObjectKey, &str, usize)> {
        let mut found: Vec<(&ObjectKey, &str, usize)> = Vec::new();
        for (key, outline) in self.outlines.iter().filter(|(_, outline)| outline.is_beyond) {
            match found.last_mut().filter(|(first, _, _)| first.namespace == key.namespace) {
                Some((_, _, count)) => *count += 1,
                None => found.push((key, &outline.uid, 1)),
            }
        }
        found
    }

    pub(super) fn remove_outline(&mut self, key: &ObjectKey) {
        self.outlines.remove(key);
        self.unread.remove(&(WatchedKind::DaemonSets, key.clone()));
    }

    /// A DaemonSet that an agent runs in place of the DaemonSet controller is to be read whole.
    pub(super) fn note_claims(&mut self, reports: &[DaemonReport]) {
        for reported in reports.iter().filter(|reported| reported.mode == Some(Mode::Static)) {
            let key = ObjectKey::new(&reported.namespace, &reported.name);
            if self.outlines.get(&key).is_some_and(|outline| outline.uid == reported.uid && !outline.is_beyond) {
                self.unread.insert((WatchedKind::DaemonSets, key));
            }
        }
    }

    /// Whether an agent reports that it runs this DaemonSet in place of the DaemonSet controller.
    fn is_claimed(&self, key: &ObjectKey, uid: &str) -> bool {
        let (Some(key), Some(uid)) = (self.names.find(&key.to_string()), self.names.find(uid)) else { return false };
        let reports = self.nodes.values().filter_map(|entry| entry.report.as_ref());
        reports.filter_map(|report| report.daemon(key)).any(|reported| reported.is_static && reported.uid == Some(uid))
    }
}
