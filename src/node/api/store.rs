//! The API server's objects, kept until it reports otherwise.
//!
//! Owns the last good objects and, for each watched scope, how complete the knowledge is. An error never removes
//! anything; only a DELETED event or the end of a complete list does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde_json::Value;
use tokio::sync::watch;

use crate::core::bounds;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::outline::is_outline;
use crate::node::api::selection::Selection;

mod definition;
mod difference;
mod objects;
mod pending;
mod pods;
mod room;
mod scopes;
mod sightings;
mod snapshot;
mod tombstones;

pub use definition::Converted;
pub use definition::Definition;
pub use definition::Unusable;
pub use definition::convert;
use definition::is_orphaning;
use difference::put;
use difference::put_one;
pub use sightings::Sighting;
use sightings::Sightings;
pub use sightings::node_owner;
pub use snapshot::Entry;
pub use snapshot::EtcdRollback;
pub use snapshot::EtcdRollbackDetection;
pub use snapshot::Presence;
pub use snapshot::Scope;
pub use snapshot::ScopeState;
pub use snapshot::Snapshot;
pub use snapshot::UnselectedDaemonSet;

/// The store; clones share it.
#[derive(Clone)]
pub struct Store {
    /// Copied on write while a reader holds it.
    inner: Arc<Mutex<Arc<Snapshot>>>,
    sightings: Arc<Mutex<Sightings>>,
    changed: watch::Sender<u64>,
    selection: Selection,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Selection::default())
    }
}

impl Store {
    /// An empty store. What is read whole once is of the `selection` for as long as it exists.
    pub(super) fn new(selection: Selection) -> Self {
        Self { inner: Arc::default(), sightings: Arc::default(), changed: watch::Sender::new(0), selection }
    }

    /// The present knowledge, for one pass.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events on mirror pods since the last call.
    pub fn take_sightings(&self) -> Vec<Sighting> {
        self.sightings.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn sight(&self, f: impl FnOnce(&mut Sightings)) {
        f(&mut self.sightings.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notified when something changed that a pass reads. The value is the version.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Complete lists of a scope so far.
    pub fn lists(&self, scope: &Scope) -> u64 {
        self.snapshot().lists(scope)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Snapshot) -> T) -> T {
        f(Arc::make_mut(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Notifies the waiters if the version has grown.
    pub(super) fn wake(&self) {
        let version = self.snapshot().version;
        self.changed.send_if_modified(|sent| std::mem::replace(sent, version) != version);
    }

    /// Something else changed that a pass reads (a token).
    pub(super) fn poke(&self) {
        self.with(|snapshot| snapshot.version += 1);
        self.wake();
    }

    /// A watch begins: its scope exists, without content.
    pub(super) fn open(&self, scope: &Scope) {
        self.with(|snapshot| {
            snapshot.scopes.entry(scope.clone()).or_default();
        });
    }

    /// A scope is no longer wanted: everything about it is removed.
    pub(super) fn close(&self, scope: &Scope) {
        self.with(|snapshot| {
            match scope {
                Scope::Object(reference) => {
                    snapshot.objects.remove(reference);
                    if snapshot.leave(reference) {
                        snapshot.changed();
                    }
                }
                Scope::Pending(daemon) => snapshot.pending.retain(|(of, _), _| of != daemon),
                Scope::DaemonSets | Scope::Node | Scope::Pods | Scope::NodeDaemons => {}
            }
            snapshot.scopes.remove(scope);
        });
        self.wake();
    }

    /// Every scope is as before its first list.
    pub(super) fn forget(&self) {
        self.sight(|sightings| drop(sightings.take()));
        self.with(|snapshot| {
            let scopes = snapshot.scopes.keys().map(|scope| (scope.clone(), ScopeState::default())).collect();
            // How far its history had come stays: that it went back is seen in the lists that follow.
            let Snapshot { version, content, mut etcd_rollback_detection, .. } = *snapshot;
            (etcd_rollback_detection.is_known, etcd_rollback_detection.beyond) = (false, 0);
            *snapshot = Snapshot { version, content, scopes, etcd_rollback_detection, ..Snapshot::default() };
            snapshot.changed();
        });
        self.wake();
    }

    /// An object has this content.
    pub(super) fn apply(&self, scope: &Scope, value: impl Into<Arc<Value>>) {
        let value = value.into();
        let key = key_of(&value);
        if *scope == Scope::DaemonSets {
            // The copy is given back before anything changes: what is shared would be copied.
            let is_beyond = !is_outline(&value) && self.snapshot().is_beyond(&key, &self.selection);
            return match is_beyond {
                true => self.outline(key, UnselectedDaemonSet::beyond(&value)),
                false => self.define(&value),
            };
        }
        self.with(|snapshot| {
            let version = snapshot.version + 1;
            let entry = Entry { version, value };
            let changed = match scope {
                // Handled above.
                Scope::DaemonSets => false,
                Scope::Pods => {
                    let mut entry = entry;
                    if self.selection.is_bounded(&key.namespace) {
                        entry.value = snapshot.within_room(&key, entry.value);
                    }
                    let old = snapshot.pods.get(&key).map(|old| &*old.value);
                    self.sight(|sightings| sightings.applied(old, &entry.value));
                    put(&mut snapshot.pods, key, entry)
                }
                Scope::Object(reference) if key == reference.key => {
                    let is_bounded =
                        bounds::is_bounded(reference) && self.selection.bounds(&reference.key.namespace).is_some();
                    let is_kept = !is_bounded || snapshot.take(reference, &entry.value);
                    is_kept && put(&mut snapshot.objects, reference.clone(), entry)
                }
                // Only if the API server ignored the field selector, which no API server does.
                Scope::Object(_) => false,
                Scope::Pending(daemon) => put(&mut snapshot.pending, (daemon.clone(), key), entry),
                Scope::Node => put_one(&mut snapshot.node, entry),
                // Its resource version matters too: a claim refers to it.
                Scope::NodeDaemons => {
                    let changed = snapshot.node_daemons.as_ref().is_none_or(|old| old.value != entry.value);
                    if changed {
                        snapshot.node_daemons = Some(entry);
                    }
                    changed
                }
            };
            if changed {
                snapshot.changed();
            }
        });
    }

    /// A DaemonSet has this content.
    fn define(&self, value: &Value) {
        let (key, reached) = (key_of(value), resource_version(value).unwrap_or(0));
        if is_outline(value) {
            return self.outline(key, UnselectedDaemonSet::of(value, reached));
        }
        self.selection.add(&key);
        let fingerprint = definition::fingerprint(value);
        self.with(|snapshot| {
            snapshot.etcd_rollback_detection.reached = snapshot.etcd_rollback_detection.reached.max(reached);
            snapshot.deleted.remove(&key);
            snapshot.remove_outline(&key);
            snapshot.to_read.remove(&key);
            if snapshot.daemon_sets.get(&key).is_some_and(|before| before.fingerprint == fingerprint) {
                return;
            }
            let mut definition = snapshot.definition(&key, value, &self.selection);
            if snapshot.daemon_sets.get(&key).is_none_or(|before| before.differs(&definition)) {
                snapshot.changed();
                definition.version = snapshot.version;
                snapshot.daemon_sets.insert(key, definition);
            } else if let Some(before) = snapshot.daemon_sets.get_mut(&key) {
                before.fingerprint = fingerprint;
            }
        });
    }

    /// A DaemonSet that is not selected exists. Its changes are no news.
    fn outline(&self, key: ObjectKey, outline: UnselectedDaemonSet) {
        self.with(|snapshot| {
            snapshot.etcd_rollback_detection.reached = snapshot.etcd_rollback_detection.reached.max(outline.version);
            snapshot.deleted.remove(&key);
            // If it was added to the selection only now, this may be newer than the whole object that was read.
            let was_whole = snapshot.daemon_sets.remove(&key).is_some();
            let is_new = Arc::make_mut(&mut snapshot.not_selected).insert(key, outline).is_none();
            if was_whole || is_new {
                snapshot.changed();
            }
        });
    }

    /// A GET of a DaemonSet whose outline is known gave this. False: a later state of it has been seen.
    pub(super) fn read(&self, value: &Value) -> bool {
        let seen = self.snapshot().outline(&key_of(value)).map(|outline| outline.version);
        let is_new = seen.is_some_and(|seen| resource_version(value).unwrap_or(0) >= seen);
        if is_new {
            self.define(value);
            self.wake();
        }
        is_new
    }

    /// From now on `key` is read whole.
    pub(super) fn select(&self, key: &ObjectKey) {
        self.selection.add(key);
    }

    /// A DELETED event.
    pub(super) fn delete(&self, scope: &Scope, value: &Value) {
        let key = key_of(value);
        self.with(|snapshot| {
            let gone = match scope {
                // A DaemonSet with neither a file nor a record here needs no evidence.
                Scope::DaemonSets if snapshot.remove_outline(&key) => true,
                Scope::DaemonSets => {
                    self.selection.retain(|named| *named != key);
                    let uid = value.str_at(["metadata", "uid"]);
                    let last = snapshot.daemon_sets.remove(&key);
                    let orphan = is_orphaning(value) || last.as_ref().is_some_and(|last| last.orphans);
                    snapshot.bury(key.clone(), uid, orphan);
                    snapshot.use_room(std::slice::from_ref(&key));
                    last.is_some()
                }
                Scope::Pods => {
                    let last = snapshot.pods.remove(&key);
                    snapshot.leave_pod(&key);
                    self.sight(|sightings| sightings.deleted(last.as_ref().map(|last| &*last.value)));
                    last.is_some()
                }
                Scope::Object(reference) => {
                    let lacked_room = snapshot.lacks_room(reference).is_some();
                    snapshot.leave(reference);
                    snapshot.objects.remove(reference).is_some() || lacked_room
                }
                Scope::Pending(daemon) => snapshot.pending.remove(&(daemon.clone(), key.clone())).is_some(),
                Scope::Node => snapshot.node.take().is_some(),
                Scope::NodeDaemons => snapshot.node_daemons.take().is_some(),
            };
            if gone {
                snapshot.changed();
            }
        });
    }

    /// The resource version that an earlier run had reached, from the checkpoint. Set before anything else.
    pub fn had_reached(&self, version: u64) {
        self.with(|snapshot| {
            snapshot.etcd_rollback_detection.reached = snapshot.etcd_rollback_detection.reached.max(version)
        });
    }

    /// The resource versions of a watch's objects fell. By the next list those of the DaemonSets may have grown beyond what they
    /// had reached: no fall shows there.
    pub(super) fn history_went_back(&self, from: u64, to: u64) {
        self.with(|snapshot| {
            let beyond = snapshot.lists(&Scope::DaemonSets);
            let detection = &mut snapshot.etcd_rollback_detection;
            detection.note_fall(from, to);
            (detection.is_known, detection.beyond) = (false, beyond);
            snapshot.version += 1;
        });
        self.wake();
    }

    /// The watch of DaemonSets continues at a resource version; the first after a list has the list's version.
    pub(super) fn history_continues_at(&self, version: u64) {
        self.with(|snapshot| {
            let lists = snapshot.lists(&Scope::DaemonSets);
            snapshot.version += u64::from(snapshot.etcd_rollback_detection.continues_at(version, lists));
        });
        self.wake();
    }

    /// A complete list has ended; `seen` are its names. An error stays visible until the following watch works too
    /// ([`Store::recovered`]).
    pub(super) fn complete(&self, scope: &Scope, seen: &BTreeSet<ObjectKey>) {
        self.with(|snapshot| {
            let count = |snapshot: &Snapshot| {
                let daemon_sets = snapshot.daemon_sets.len() + snapshot.not_selected.len();
                (daemon_sets, snapshot.pods.len(), snapshot.objects.len() + snapshot.no_room.len())
            };
            let before = count(snapshot);
            let mut gone = false;
            match scope {
                Scope::DaemonSets => {
                    snapshot.etcd_rollback_detection.is_known = false;
                    snapshot.etcd_rollback_detection.at_list = snapshot.etcd_rollback_detection.reached;
                    let gone: Vec<ObjectKey> =
                        snapshot.daemon_sets.keys().filter(|key| !seen.contains(key)).cloned().collect();
                    snapshot.daemon_sets.retain(|key, _| seen.contains(key));
                    if snapshot.not_selected.keys().any(|key| !seen.contains(key)) {
                        Arc::make_mut(&mut snapshot.not_selected).retain(|key, _| seen.contains(key));
                    }
                    self.selection.retain(|key| seen.contains(key));
                    snapshot.use_room(&gone);
                }
                Scope::Pods => {
                    snapshot.pods.retain(|key, _| seen.contains(key));
                    snapshot.weigh_pods_that_are_there();
                }
                Scope::Object(reference) => {
                    if !seen.contains(&reference.key) {
                        snapshot.objects.remove(reference);
                        snapshot.leave(reference);
                    }
                }
                Scope::Pending(daemon) => {
                    snapshot.pending.retain(|(of, key), _| {
                        gone |= of == daemon && !seen.contains(key);
                        of != daemon || seen.contains(key)
                    });
                }
                Scope::Node => gone = seen.is_empty() && snapshot.node.take().is_some(),
                Scope::NodeDaemons => gone = seen.is_empty() && snapshot.node_daemons.take().is_some(),
            }
            gone |= before != count(snapshot);
            let state = snapshot.scopes.entry(scope.clone()).or_default();
            state.lists += 1;
            state.missing = false;
            // The first complete list turns "unknown" into "absent", and a list of DaemonSets may be
            // the one that a pass waits for.
            let is_first = state.lists == 1;
            if gone || is_first {
                snapshot.changed();
            } else if *scope == Scope::DaemonSets {
                snapshot.version += 1;
            }
        });
    }
}

/// An object's resource version; Kubernetes' own API server always returns a number.
fn resource_version(value: &Value) -> Option<u64> {
    value.at(["metadata", "resourceVersion"])?.as_str()?.parse().ok()
}

/// Namespace and name of an object.
pub(super) fn key_of(value: &Value) -> ObjectKey {
    ObjectKey::new(value.str_at(["metadata", "namespace"]), value.str_at(["metadata", "name"]))
}

#[cfg(test)]
mod tests;
