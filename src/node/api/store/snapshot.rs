//! The store at one moment: what a pass reads.
//!
//! Owns what may be concluded from it: present, absent or unknown.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::time::Timestamp;
use crate::node::api::error::ApiFailure;
use crate::node::recording::marks;

use super::Definition;
use super::objects::Weights;
use super::tombstones::Tombstone;

/// The scope of one watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Scope {
    /// The DaemonSets of the cluster (of the configured selector).
    DaemonSets,
    /// The own Node.
    Node,
    /// Mirror pods, and pods of DaemonSets, on the own node.
    Pods,
    /// One referenced object.
    Object(ObjectRef),
    /// Unschedulable pods of one DaemonSet for this node.
    Pending(ObjectKey),
    /// The own NodeDaemons, if the cluster has the resource.
    NodeDaemons,
}

impl Scope {
    pub fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Whether the agent needs it whatever the daemons are.
    pub fn is_of_agent(&self) -> bool {
        matches!(self, Self::DaemonSets | Self::Node | Self::Pods | Self::NodeDaemons)
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scope::DaemonSets => f.write_str("daemonsets"),
            Scope::Node => f.write_str("node"),
            Scope::Pods => f.write_str("pods of this node"),
            Scope::Object(reference) => reference.fmt(f),
            Scope::Pending(daemon) => write!(f, "unbound pods of {daemon}"),
            Scope::NodeDaemons => f.write_str("nodedaemons"),
        }
    }
}

/// How much is known of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ScopeState {
    /// Complete lists since the start. 0: absence is unknown.
    pub lists: u64,
    /// The API server says that the cluster does not have the resource.
    pub missing: bool,
    /// The error of its watch, and since when.
    pub error: Option<(ApiFailure, Timestamp)>,
}

/// An object with the store's version of its last change that matters.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// Grows with every change of anything in the store; equal versions are equal objects.
    pub version: u64,
    /// The object without the parts that are not read.
    pub value: Arc<Value>,
}

/// What is known of a DaemonSet that is not selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnselectedDaemonSet {
    /// Its resource version.
    pub(super) version: u64,
    /// Its label `daemonlet.dev/mode`.
    mode: Option<Box<str>>,
    /// Whether it is selected, and more of its namespace are than are read ([`Snapshot::is_beyond`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_beyond: bool,
}

impl UnselectedDaemonSet {
    /// Of `object`, of which the API server's answer was cut short.
    pub(super) fn of(object: &Value, version: u64) -> Self {
        let mode = object.text_at(["metadata", "labels", MODE_LABEL]).map(Box::from);
        Self { version, mode, is_beyond: false }
    }

    /// Of `object`, which is selected, where more of its namespace are than are read.
    pub(super) fn beyond(object: &Value) -> Self {
        Self { is_beyond: true, ..Self::of(object, super::resource_version(object).unwrap_or(0)) }
    }

    /// Whether it is selected, and not read because more of its namespace are than that.
    pub fn is_beyond(&self) -> bool {
        self.is_beyond
    }

    /// Of its labels those that policy reads; the API server itself applies `selector`.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.mode.iter().map(|mode| (MODE_LABEL.to_owned(), mode.to_string())).collect()
    }
}

/// What is known of one DaemonSet in the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// It exists.
    Present(Definition),
    /// It exists, and what it defines has not been read: this node does not select it, or did not until now.
    NotSelected,
    /// A watch reported DELETED, or that it no longer matches the selector; the UID that it had.
    Deleted {
        /// `metadata.uid` of the deleted object.
        uid: String,
        /// Whether its pods were to stay (finalizer `orphan`).
        orphan: bool,
    },
    /// A complete list did not contain it.
    ListedAbsent {
        /// Number of the last complete list.
        list: u64,
    },
    /// No complete list yet.
    Unknown,
}

/// An immutable copy for one pass.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// The store's version.
    pub version: u64,
    /// The version with which its content last changed: a list that brings nothing new raises `version` alone.
    pub content: u64,
    pub daemon_sets: BTreeMap<ObjectKey, Definition>,
    /// DaemonSets of which no more is known than that they exist.
    #[serde(default)]
    pub(super) not_selected: Arc<BTreeMap<ObjectKey, UnselectedDaemonSet>>,
    /// Those of them that are to be read whole ([`Snapshot::to_read`]).
    #[serde(default)]
    pub(super) to_read: BTreeSet<ObjectKey>,
    /// The own Node.
    pub node: Option<Entry>,
    /// Pods of this node (see [`Scope::Pods`]).
    pub pods: BTreeMap<ObjectKey, Entry>,
    /// Unschedulable pods for this node, by their DaemonSet and their name.
    pub pending: BTreeMap<(ObjectKey, ObjectKey), Entry>,
    /// Referenced objects.
    #[serde(with = "marks::objects")]
    pub objects: BTreeMap<ObjectRef, Entry>,
    /// Referenced objects that exist and are not kept, with what they would take ([`Snapshot::lacks_room`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) no_room: BTreeMap<ObjectRef, usize>,
    /// What those take that are kept, where that is bounded.
    #[serde(skip)]
    pub(super) weights: Weights<ObjectRef>,
    /// What the pods take, where that is bounded.
    #[serde(skip)]
    pub(super) pod_weights: Weights<ObjectKey>,
    /// The own NodeDaemons.
    pub node_daemons: Option<Entry>,
    /// The scopes that are watched.
    pub scopes: BTreeMap<Scope, ScopeState>,
    /// The highest resource version of the DaemonSets' watch, and whether it fell.
    pub etcd_rollback_detection: EtcdRollbackDetection,
    pub(super) deleted: BTreeMap<ObjectKey, Tombstone>,
}

/// How far the API server's resource versions have grown. They fall only when etcd is restored from a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EtcdRollbackDetection {
    /// The highest known resource version; 0: none.
    pub reached: u64,
    /// The highest known one when the last complete list ended: events of its watch may arrive before the notice that
    /// it continues.
    pub at_list: u64,
    /// Whether the last complete list's own version is known; only then a fall before that list is detected.
    pub is_known: bool,
    /// The last fall of the resource versions.
    pub rollback: Option<EtcdRollback>,
    /// So many complete lists of the DaemonSets are of the time before that fall: a watch that continues one of them says nothing
    /// of the restored history.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beyond: u64,
}

fn is_zero(lists: &u64) -> bool {
    *lists == 0
}

impl EtcdRollbackDetection {
    /// Resource versions fell.
    pub(super) fn note_fall(&mut self, from: u64, to: u64) {
        let number = self.rollback.map_or(0, |rollback| rollback.number) + 1;
        self.rollback = Some(EtcdRollback { number, from, to });
    }

    /// The watch that follows one of `lists` complete lists continues at `version`. Gives whether it is the first after that list.
    pub(super) fn continues_at(&mut self, version: u64, lists: u64) -> bool {
        if lists <= self.beyond {
            return false;
        }
        let first = !std::mem::replace(&mut self.is_known, true);
        if first && version > 0 && version < self.at_list {
            self.note_fall(self.at_list, version);
            self.reached = version;
        }
        self.reached = self.reached.max(version);
        first
    }
}

/// Resource versions fell: etcd was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EtcdRollback {
    /// How many falls there have been.
    pub number: u64,
    /// The resource version that had been reached.
    pub from: u64,
    /// The lower one that was found.
    pub to: u64,
}

impl Snapshot {
    /// Its content has changed.
    pub(super) fn changed(&mut self) {
        self.version += 1;
        self.content = self.version;
    }

    /// Complete lists of a scope so far; 0 if nothing is known of it, or no more than that it exists.
    pub fn lists(&self, scope: &Scope) -> u64 {
        if matches!(scope, Scope::Object(reference) if self.lacks_room(reference).is_some()) {
            return 0;
        }
        self.scopes.get(scope).map_or(0, |state| state.lists)
    }

    /// Whether a scope has been listed, and its watch works: what is not in it does not exist.
    pub fn is_current(&self, scope: &Scope) -> bool {
        self.scopes.get(scope).is_some_and(|state| state.lists > 0 && state.error.is_none())
    }

    /// Whether DaemonSets, Node, pods and every referenced object have each been listed completely at least once. A
    /// cluster need not have NodeDaemons.
    pub fn is_complete(&self) -> bool {
        self.has_listed_own() && self.scopes.iter().all(|(scope, state)| state.lists > 0 || scope.is_of_agent())
    }

    /// The same of what the agent itself needs.
    pub fn has_listed_own(&self) -> bool {
        [Scope::DaemonSets, Scope::Node, Scope::Pods].iter().all(|scope| self.lists(scope) > 0)
    }

    /// The objects that the API server does not let the agent read, each with the API server's message.
    pub fn refused(&self) -> BTreeMap<&ObjectRef, &str> {
        let failing = self.scopes.iter().filter_map(|(scope, state)| Some((scope, &state.error.as_ref()?.0)));
        let refused = failing.filter(|(_, failure)| !failure.is_link());
        refused.filter_map(|(scope, failure)| Some((scope.object()?, failure.message.as_str()))).collect()
    }

    /// Whether all DaemonSets, and all watched objects of `kind`, have been listed.
    pub fn has_listed_all(&self, kind: Kind) -> bool {
        let is_it = |scope: &Scope| matches!(scope, Scope::Object(object) if object.kind == kind);
        self.lists(&Scope::DaemonSets) > 0 && self.scopes.iter().all(|(scope, state)| state.lists > 0 || !is_it(scope))
    }

    /// Removes what is known of a DaemonSet that is not selected. Whether there was anything.
    pub(super) fn remove_outline(&mut self, key: &ObjectKey) -> bool {
        self.not_selected.contains_key(key) && Arc::make_mut(&mut self.not_selected).remove(key).is_some()
    }

    /// What is known of a DaemonSet that is not selected, if that is all.
    pub fn outline(&self, key: &ObjectKey) -> Option<&UnselectedDaemonSet> {
        self.not_selected.get(key)
    }

    /// The DaemonSets that are not selected.
    pub fn outlines(&self) -> impl Iterator<Item = (&ObjectKey, &UnselectedDaemonSet)> {
        self.not_selected.iter()
    }

    /// The DaemonSets that are read whole, and whose mode label has an unknown value.
    pub fn mistyped(&self) -> impl Iterator<Item = &ObjectKey> {
        self.daemon_sets.iter().filter(|(_, definition)| definition.is_mistyped).map(|(key, _)| key)
    }

    /// Whether it is one of them.
    pub fn is_mistyped(&self, key: &ObjectKey) -> bool {
        self.daemon_sets.get(key).is_some_and(|definition| definition.is_mistyped)
    }

    /// Whether a DaemonSet is known to exist, and no more of it.
    pub fn is_unread(&self, key: &ObjectKey) -> bool {
        self.not_selected.contains_key(key)
    }

    /// Forgets the DaemonSets that are not selected, but for those of `kept`. Copies nothing if it knows no others.
    pub(crate) fn retain_outlines(self: &mut Arc<Self>, kept: impl Fn(&ObjectKey) -> bool) {
        if self.not_selected.keys().any(|key| !kept(key)) {
            Arc::make_mut(&mut Arc::make_mut(self).not_selected).retain(|key, _| kept(key));
        }
    }

    /// What is known of one DaemonSet.
    pub fn presence(&self, key: &ObjectKey) -> Presence {
        if let Some(entry) = self.daemon_sets.get(key) {
            return Presence::Present(entry.clone());
        }
        if self.not_selected.contains_key(key) {
            return Presence::NotSelected;
        }
        if let Some(Tombstone { uid, orphan, .. }) = self.deleted.get(key) {
            return Presence::Deleted { uid: uid.clone(), orphan: *orphan };
        }
        match self.lists(&Scope::DaemonSets) {
            0 => Presence::Unknown,
            list => Presence::ListedAbsent { list },
        }
    }
}

impl ObjectSource for Snapshot {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        match self.objects.get(reference) {
            Some(entry) => Lookup::Present(&entry.value),
            None if self.lists(&Scope::Object(reference.clone())) > 0 => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    fn may_have_had(&self, _: &ObjectRef) -> bool {
        false
    }
}
