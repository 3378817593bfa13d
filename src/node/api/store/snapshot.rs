//! The store at one moment: what a pass reads.
//!
//! Owns what may be concluded from it: present, absent or unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::time::Timestamp;
use crate::node::api::error::ApiFailure;

use super::Definition;

/// What one watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The DaemonSets of the cluster (of the configured selector).
    DaemonSets,
    /// The own Node.
    Node,
    /// Mirror pods, and pods of DaemonSets, on the own node.
    Pods,
    /// One referenced object.
    Object(ObjectRef),
    /// Pods of one DaemonSet that the scheduler could not bind, for any node.
    Pending(ObjectKey),
    /// The own NodeDaemons, where the cluster has that resource.
    NodeDaemons,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeState {
    /// Complete lists seen since the start. 0: absence cannot be told.
    pub lists: u64,
    /// The API server says that the cluster does not have the resource.
    pub missing: bool,
    /// The error that its watch is in, and since when.
    pub error: Option<(ApiFailure, Timestamp)>,
}

/// An object with the store's version of its last change that matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Grows with every change of anything in the store; equal versions are equal objects.
    pub version: u64,
    /// The object, without what nobody reads.
    pub value: Arc<Value>,
}

/// What is known of one DaemonSet in the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// It exists.
    Present(Definition),
    /// A watch said DELETED (or that it left the selector); the UID that it had.
    Deleted {
        /// `metadata.uid` of the deleted object.
        uid: String,
        /// Whether its pods were to be kept (finalizer `orphan`).
        orphan: bool,
    },
    /// A complete list did not have it. `list` is that list's number.
    ListedAbsent {
        /// Number of the last complete list.
        list: u64,
    },
    /// No complete list yet.
    Unknown,
}

/// An immutable copy for one pass.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The store's version.
    pub version: u64,
    pub daemon_sets: BTreeMap<ObjectKey, Definition>,
    /// The own Node.
    pub node: Option<Entry>,
    /// Pods of this node (see [`Scope::Pods`]).
    pub pods: BTreeMap<ObjectKey, Entry>,
    /// Pods that the scheduler could not bind, by their DaemonSet and their own name.
    pub pending: BTreeMap<(ObjectKey, ObjectKey), Entry>,
    /// Referenced objects.
    pub objects: BTreeMap<ObjectRef, Entry>,
    /// The own NodeDaemons.
    pub node_daemons: Option<Entry>,
    /// The scopes that are watched.
    pub scopes: BTreeMap<Scope, ScopeState>,
    /// How far the API server's history has come, by the DaemonSets' watch.
    pub etcd_rollback_detection: EtcdRollbackDetection,
    pub(super) deleted: BTreeMap<ObjectKey, Tombstone>,
}

/// How far the API server's resource versions have grown. They fall only when etcd is restored from a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdRollbackDetection {
    /// The highest resource version that is known of; 0: none.
    pub reached: u64,
    /// The one that was known of when the last complete list ended: what its watch tells first may come
    /// before the word that it goes on.
    pub at_list: u64,
    /// Whether the last complete list's own is known: it tells whether history went back before it.
    pub is_known: bool,
    /// The last time that history went back.
    pub rollback: Option<EtcdRollback>,
}

/// Resource versions fell: etcd was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdRollback {
    /// How often it has by now.
    pub number: u64,
    /// The resource version that had been reached.
    pub from: u64,
    /// The one that was found then.
    pub to: u64,
}

/// What is remembered of a deleted DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub(super) uid: String,
    /// The garbage collector takes the finalizer `orphan` and with it the object away within
    /// milliseconds: a pass may see neither, so the deletion itself remembers it.
    pub(super) orphan: bool,
}

impl Snapshot {
    /// Complete lists of a scope so far; 0 when it is not known at all.
    pub fn lists(&self, scope: &Scope) -> u64 {
        self.scopes.get(scope).map_or(0, |state| state.lists)
    }

    /// Whether DaemonSets, Node and pods have each been listed completely at least once, and every
    /// referenced object too. A cluster need not have NodeDaemons.
    pub fn is_complete(&self) -> bool {
        let listed = |(scope, state): (&Scope, &ScopeState)| state.lists > 0 || *scope == Scope::NodeDaemons;
        self.lists(&Scope::DaemonSets) > 0 && self.scopes.iter().all(listed)
    }

    /// What is known of one DaemonSet.
    pub fn presence(&self, key: &ObjectKey) -> Presence {
        if let Some(entry) = self.daemon_sets.get(key) {
            return Presence::Present(entry.clone());
        }
        if let Some(Tombstone { uid, orphan }) = self.deleted.get(key) {
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
}
