//! ConfigMaps and Secrets of namespaces that are not trusted: how many are read, and what of them is remembered.
//!
//! Owns which are left out and what is said of that. Must not end anything: what runs keeps the data that it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::bounds;
use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::policy::Policy;
use crate::node::api::Snapshot;

use super::objects::Versioned;

/// Takes from what daemons refer to what their namespaces may not have read, and notes that and what has no room.
pub(super) fn bound(api: Option<&Snapshot>, policy: &Policy, plan: &mut Plan) {
    let is_bounded = |daemon: &&DaemonPlan| policy.bounds(&daemon.key.namespace);
    let (first, others): (Vec<&DaemonPlan>, Vec<&DaemonPlan>) =
        plan.daemons.iter().filter(is_bounded).partition(|daemon| comes_first(daemon));
    if first.is_empty() && others.is_empty() {
        return;
    }
    let named = first.iter().chain(&others).map(|daemon| &daemon.references);
    let beyond = bounds::objects_beyond(named, |namespace| policy.bounds(namespace));
    for daemon in &mut plan.daemons {
        let lacks = |object: &ObjectRef| Some(bounds::no_room_for_object(object, api?.lacks_room(object)?));
        let notes: Vec<_> = daemon.references.iter().filter_map(lacks).collect();
        daemon.summary.notes.extend(notes.into_iter().map(Note::Field));
        let first = daemon.references.iter().find(|object| beyond.contains(*object)).map(bounds::objects_beyond_error);
        if let Some(error) = first {
            daemon.summary.notes.push(Note::Field(error));
            daemon.references.retain(|object| !beyond.contains(object));
        }
    }
}

/// Whether a daemon runs, or is the node owner's.
fn comes_first(daemon: &DaemonPlan) -> bool {
    daemon.record.runs() || daemon.summary.source.as_ref().is_some_and(|source| *source != Source::Api)
}

/// Forgets what is remembered of such objects and is another one now, or none, where that is too much for a namespace.
pub(super) fn forget(remembered: &mut Versioned, api: &Snapshot, policy: &Policy) {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    remembered.retain(|object, entry| {
        let is_data = matches!(object.kind, Kind::ConfigMap | Kind::Secret);
        let is_kept = || api.objects.get(object).is_some_and(|now| Arc::ptr_eq(&now.value, &entry.value));
        if !is_data || !policy.bounds(&object.key.namespace) || is_kept() {
            return true;
        }
        let weight = bounds::object_weight(&entry.value);
        let taken = taken.entry(object.key.namespace.clone()).or_default();
        let has_room = *taken + weight <= bounds::OBJECTS_REMEMBERED;
        *taken += if has_room { weight } else { 0 };
        has_room
    });
}

#[cfg(test)]
mod tests;
