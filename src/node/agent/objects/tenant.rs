//! What daemons of namespaces that are not trusted have the agent read and hold: ConfigMaps, Secrets, ControllerRevisions and tokens.
//!
//! Owns which are left out and how that is reported. Must not end anything: an instance keeps the data that it has.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::QuotaUse;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::policy::Policy;
use crate::core::status::Problem;
use crate::node::api::Entry;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::super::definitions::ApiDefinitions;
use super::super::records::Records;
use super::super::remembered_inputs::RememberedInputs;
use super::super::rollback_data::RollbackDataOf;
use super::super::versioned_objects::Versioned;

/// That of the DaemonSets of a namespace more are selected than are read.
pub(in crate::node::agent) fn unread_daemon_sets(api: &Snapshot) -> Vec<Problem> {
    let problem = |(namespace, count): (&str, usize)| Problem {
        object: format!("namespace {namespace}"),
        reason: bounds::too_many_to_know(count),
        hint: Some(format!("delete some, or add {namespace:?} to policy.trusted-namespaces, {}", bounds::FREE)),
    };
    api.beyond().into_iter().map(problem).collect()
}

/// Takes from what daemons need what is beyond the bounds of their namespaces, and notes that and what has no room.
pub(in crate::node::agent) fn bound(api: Option<&Snapshot>, policy: &Policy, plan: &mut Plan) {
    let is_bounded = |daemon: &&DaemonPlan| policy.bounds(&daemon.key.namespace);
    let (first, others): (Vec<&DaemonPlan>, Vec<&DaemonPlan>) =
        plan.daemons.iter().filter(is_bounded).partition(|daemon| comes_first(daemon));
    if first.is_empty() && others.is_empty() {
        return;
    }
    let in_order = || first.iter().chain(&others);
    let bounded = |key: &'_ ObjectKey| policy.bounds(&key.namespace).then_some(());
    let objects = bounds::beyond_in_order(in_order().map(|daemon| &daemon.references), bounds::OBJECTS, |object| {
        bounded(&object.key).filter(|()| bounds::is_bounded(object)).map(|()| object.key.namespace.as_str())
    });
    let tokens = bounds::beyond_in_order(in_order().map(|daemon| &daemon.tokens), bounds::TOKENS, |token| {
        bounded(&token.service_account).map(|()| token.service_account.namespace.as_str())
    });
    let (objects, tokens): (BTreeSet<_>, BTreeSet<_>) =
        (objects.into_iter().cloned().collect(), tokens.into_iter().cloned().collect());
    for daemon in &mut plan.daemons {
        let lacks = |object: &ObjectRef| Some(bounds::no_room_for_object(object, api?.lacks_room(object)?));
        // Only the first object of each cause is reported: there may be hundreds.
        let mut lacking: Vec<FieldError> = daemon.references.iter().find_map(lacks).into_iter().collect();
        lacking.extend(daemon.references.intersection(&objects).next().map(bounds::objects_beyond_error));
        lacking.extend(daemon.tokens.intersection(&tokens).next().map(bounds::tokens_beyond_error));
        daemon.summary.notes.extend(lacking.into_iter().map(Note::Field));
        daemon.references.retain(|object| !objects.contains(object));
        daemon.tokens.retain(|token| !tokens.contains(token));
    }
}

/// Adds those of which something is remembered to the `objects` that daemons need: it is not known of all daemons what
/// these need. Of a namespace that is not trusted no more than daemons may have of it.
pub(in crate::node::agent) fn extend(objects: &mut BTreeSet<ObjectRef>, inputs: &RememberedInputs, policy: &Policy) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let known = objects.clone();
    let remembered = inputs.objects.keys().chain(&inputs.absent);
    let others: BTreeSet<&ObjectRef> = remembered.filter(|object| !known.contains(object)).collect();
    for object in known.iter().chain(others) {
        let number = numbers.entry(&object.key.namespace).or_default();
        *number += 1;
        if *number <= bounds::OBJECTS || !policy.bounds(&object.key.namespace) {
            objects.insert(object.clone());
        }
    }
}

/// Whether a daemon runs, or is the node owner's.
fn comes_first(daemon: &DaemonPlan) -> bool {
    daemon.record.runs() || daemon.summary.source.as_ref().is_some_and(|source| *source != Source::Api)
}

/// Forgets what is remembered of such objects and is another one now, or none, where that is too much for a namespace. Of
/// what the API server has of the `used` ones it stays known that it has it: a folder's is older.
pub(in crate::node::agent) fn forget(
    inputs: &mut RememberedInputs,
    api: &Snapshot,
    used: &BTreeSet<ObjectRef>,
    policy: &Policy,
) {
    let mut room = TenantRoom::new(policy);
    let mut unread = std::mem::take(&mut inputs.unread);
    let is_unlisted = |object: &ObjectRef| api.lists(&Scope::Object(object.clone())) == 0;
    inputs.objects.retain(|object, entry| {
        // An object that the API server has not listed yet was bounded when it was saved.
        let is_unread = || is_unlisted(object) && api.lacks_room(object).is_none();
        let is_kept = has(&api.objects, object, entry) || room.take_all([(object, &*entry)].into_iter()) || is_unread();
        unread.extend((!is_kept).then(|| object.clone()));
        is_kept
    });
    let is_unread = |object: &&ObjectRef| {
        !inputs.objects.contains_key(object)
            && (api.lacks_room(object).is_some() || unread.contains(object) && is_unlisted(object))
    };
    inputs.unread = used.iter().filter(is_unread).cloned().collect();
}

/// Forgets `remembered` DaemonSets of such namespaces, by name, where that is too much: those of which the API server has
/// something now that cannot be used, and that nothing else refers to. A running instance has its own copy in its record.
pub(in crate::node::agent) fn forget_definitions(
    remembered: &mut BTreeMap<ObjectKey, Arc<DaemonSet>>,
    policy: &Policy,
    (definitions, records): (&ApiDefinitions, &Records),
) {
    let is_held = |daemon_set: &Arc<DaemonSet>| {
        let of_record = records.get(&daemon_set.key).into_iter().flat_map(|record| record.definitions());
        definitions.get(&daemon_set.key).into_iter().chain(of_record).any(|other| Arc::ptr_eq(other, daemon_set))
    };
    let mut taken = QuotaUse::default();
    remembered.retain(|key, daemon_set| {
        if !policy.bounds(&key.namespace) || is_held(daemon_set) {
            return true;
        }
        let weight = bounds::weight(daemon_set);
        let has_room = weight <= taken.left(bounds::KEPT, &key.namespace);
        taken.add(&key.namespace, if has_room { weight } else { 0 });
        has_room
    });
}

/// Forgets what is kept for a roll-back of daemons of such namespaces, by name, where that is too much. They go back with
/// the data of today.
pub(in crate::node::agent) fn forget_kept(kept: &mut RollbackDataOf, remembered: &Versioned, policy: &Policy) {
    let mut room = TenantRoom::new(policy);
    kept.retain(|_, of| room.take_all(of.objects.iter().filter(|(object, entry)| !has(remembered, object, entry))));
}

/// Whether that state of `object` is in memory as one of `others`.
fn has(others: &Versioned, object: &ObjectRef, entry: &Entry) -> bool {
    others.get(object).is_some_and(|other| Arc::ptr_eq(&other.value, &entry.value))
}

/// How much of [`bounds::OBJECTS_KEPT`] is taken.
struct TenantRoom<'a> {
    policy: &'a Policy,
    taken: QuotaUse,
    /// States of objects that are in memory once, however many owners remember them.
    seen: HashSet<*const Value>,
}

impl<'a> TenantRoom<'a> {
    fn new(policy: &'a Policy) -> Self {
        Self { policy, taken: QuotaUse::default(), seen: HashSet::new() }
    }

    /// Whether there is room for those states of `objects` together, which is taken then.
    fn take_all<'o>(&mut self, objects: impl Iterator<Item = (&'o ObjectRef, &'o Entry)>) -> bool {
        let mut taken: Vec<(&str, usize, *const Value)> = Vec::new();
        for (object, entry) in
            objects.filter(|(object, _)| bounds::is_bounded(object) && self.policy.bounds(&object.key.namespace))
        {
            let (namespace, state) = (object.key.namespace.as_str(), Arc::as_ptr(&entry.value));
            if !self.seen.insert(state) {
                continue;
            }
            let weight = bounds::object_weight(&entry.value);
            let has_room = weight <= self.taken.left(bounds::OBJECTS_KEPT, namespace);
            self.taken.add(namespace, weight);
            taken.push((namespace, weight, state));
            if !has_room {
                for (namespace, weight, state) in taken {
                    self.taken.give_back(namespace, weight);
                    self.seen.remove(&state);
                }
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
