//! Which overlays apply to a node, by its list as it is known now and by what applied last.
//!
//! Must not forget what applied while the list is not known, or cannot be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Lookup;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::policy::PodRules;
use crate::core::rendering;

use super::DIGEST;
use super::KnownList;
use super::ListGap;
use super::ListSource;
use super::Overlays;
use super::Patch;
use super::UNKNOWN;
use super::bound;
use super::config_map;
use super::digest;
use super::list;
use super::list::LastList;
use super::not_a_name;
use super::patched;
use super::refused;
use super::with;

/// What is known of a node for its overlays.
#[derive(Clone, Copy, Debug)]
pub struct OverlayFacts<'a> {
    /// What is known of the ConfigMap.
    pub found: Lookup<'a>,
    /// Where it was read.
    pub list: ListSource,
    /// What they bound: the list, the template and the patched template.
    pub rules: &'a PodRules,
    /// The labels of the Node.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether these are all of its labels ([`crate::core::node::has_its_labels`]).
    pub registered: bool,
    /// The overlays of what last ran here.
    pub last: Option<&'a Overlays>,
}

/// `daemon_set` with the overlays that apply to a node; the same where it names none.
pub fn resolve(daemon_set: &Arc<DaemonSet>, facts: &OverlayFacts<'_>) -> Arc<DaemonSet> {
    resolve_after(daemon_set, facts, &LastList::default())
}

/// As [`resolve`], after another one with the same `last_list`; that changes speed and memory only.
pub fn resolve_after(daemon_set: &Arc<DaemonSet>, facts: &OverlayFacts<'_>, last_list: &LastList) -> Arc<DaemonSet> {
    let overlays = daemon_set.annotations.get(OVERLAYS).map(|name| match config_map(daemon_set) {
        Some(reference) => by_list(&reference, facts, daemon_set, last_list),
        None => mistyped(name, facts, daemon_set),
    });
    with(daemon_set, overlays.map(Arc::new))
}

fn by_list(reference: &ObjectRef, facts: &OverlayFacts<'_>, daemon_set: &DaemonSet, last_list: &LastList) -> Overlays {
    let read = |object| read(last_list, reference, object, facts, daemon_set);
    let last = facts.last.filter(|last| last.config_map == reference.key);
    let again = |last, why| again(last, why, facts.rules, daemon_set);
    match (facts.found, last) {
        (Lookup::Present(object), Some(last)) => {
            let new = match read(object) {
                new if facts.registered || !new.refused().is_empty() => new,
                _ => again(last, ListGap::NodeLabels),
            };
            unless_refused(new, last, |why| again(last, why))
        }
        (_, Some(last)) if !facts.registered => again(last, ListGap::NodeLabels),
        (Lookup::Present(object) | Lookup::Deleted(object), None) => read(object),
        (Lookup::Deleted(_) | Lookup::Absent, Some(last)) => again(last, ListGap::Absent),
        (Lookup::Unknown, Some(last)) => again(last, ListGap::NotRead),
        (Lookup::Absent | Lookup::Unknown, None) => Overlays {
            config_map: reference.key.clone(),
            known: KnownList::Missing { unconfirmed: facts.found == Lookup::Unknown },
            list: facts.list,
            patches: Vec::new(),
            digest: UNKNOWN.to_owned(),
            template: None,
        },
    }
}

/// What applies where the annotation names no ConfigMap: a typing error takes no patch away.
fn mistyped(name: &str, facts: &OverlayFacts<'_>, daemon_set: &DaemonSet) -> Overlays {
    let new = Overlays {
        config_map: ObjectKey::new(&daemon_set.key.namespace, name),
        known: KnownList::Refused(vec![not_a_name(name)]),
        list: facts.list,
        patches: Vec::new(),
        digest: UNKNOWN.to_owned(),
        template: None,
    };
    match facts.last {
        Some(last) => unless_refused(new, last, |why| again(last, why, facts.rules, daemon_set)),
        None => new,
    }
}

/// `new`, unless it is refused and what applied `last` can be applied to the template of today.
fn unless_refused(new: Overlays, last: &Overlays, again: impl Fn(ListGap) -> Overlays) -> Overlays {
    let Some((first, others)) = new.refused().split_first() else { return new };
    let why = ListGap::Refused { first: first.clone(), has_more: !others.is_empty() };
    let last = last.refused().is_empty().then(|| again(why));
    last.filter(|last| last.refused().is_empty()).unwrap_or(new)
}

fn read(
    last_list: &LastList,
    reference: &ObjectRef,
    object: &Value,
    facts: &OverlayFacts<'_>,
    daemon_set: &DaemonSet,
) -> Overlays {
    let (config_map, list) = (reference.key.clone(), facts.list);
    let bound = bound(daemon_set, list, facts.rules);
    match &*last_list.read(reference, object, bound) {
        Ok(entries) => {
            let applying = entries.iter().filter_map(|entry| entry.applying_to(facts.labels));
            let patches: Vec<Patch> = applying.collect();
            let (known, digest) = (KnownList::Read, digest(&patches));
            if let Some(error) = list::too_much_to_keep(reference, &patches, bound) {
                let (known, patches) = (refused(vec![error]), Vec::new());
                return Overlays { config_map, known, list, patches, digest, template: None };
            }
            patched(Overlays { config_map, known, list, patches, digest, template: None }, bound, daemon_set)
        }
        Err(errors) => {
            // Another text is another attempt.
            let text = object.get("data").map(Value::to_string).unwrap_or_default();
            let digest = rendering::digest(text.as_bytes()).chars().take(DIGEST).collect();
            let (known, patches) = (refused(errors.clone()), Vec::new());
            Overlays { config_map, known, list, patches, digest, template: None }
        }
    }
}

/// What applied last, for the template of today.
fn again(last: &Overlays, why: ListGap, rules: &PodRules, daemon_set: &DaemonSet) -> Overlays {
    let known = match &last.known {
        KnownList::Read | KnownList::Last(_) => KnownList::Last(why),
        other => other.clone(),
    };
    patched(Overlays { known, template: None, ..last.clone() }, bound(daemon_set, last.list, rules), daemon_set)
}
