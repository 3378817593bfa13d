//! Overlays: what a ConfigMap changes of a DaemonSet's pods on some nodes (`daemonlet.dev/overlays`).
//!
//! Owns which patches apply to a node, their digest and the patched template. The digest is no part of a revision or of
//! an identity: an instance is current when its template is and the digest of what applies to its node. Must not decide
//! when an instance is replaced.

mod apply;
mod difference;
mod list;
mod merge;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::dns;
use crate::core::identity;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::Mode;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::rendering;

pub use difference::Difference;
pub use difference::differences;

/// The key of the ConfigMap with the list.
pub const KEY: &str = "overlays.yaml";
/// Stands for the digest of a ConfigMap that is not known: no instance has it.
const UNKNOWN: &str = "unknown";
/// So many characters of a SHA-256 are a digest.
const DIGEST: usize = 10;

/// The overlays of a DaemonSet as they are on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlays {
    /// The ConfigMap with the list.
    pub config_map: ObjectKey,
    /// How the list is known.
    pub known: KnownList,
    /// The patches that apply here, in their order.
    pub patches: Vec<Patch>,
    /// The digest of the patches; empty if none applies.
    pub digest: String,
    /// The template with the patches; `None` if none applies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub template: Option<Value>,
}

/// One patch of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Its place in the list, from 0.
    pub index: usize,
    /// `{metadata, spec}` as written.
    pub patch: Value,
}

/// How the list of overlays is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KnownList {
    /// From its ConfigMap.
    Read,
    /// What applied when its ConfigMap was last known; why it is not known now.
    Last(String),
    /// No ConfigMap is known, and nothing has run with one; `unheard`: no source has said that it does not exist.
    Missing { unheard: bool },
    /// It cannot be used: the fields.
    Refused(Vec<FieldError>),
}

/// The ConfigMap that `daemon_set` names, if it has overlays.
pub fn config_map(daemon_set: &DaemonSet) -> Option<ObjectRef> {
    let name = daemon_set.annotations.get(OVERLAYS).filter(|name| is_name(name))?;
    Some(ObjectRef::new(Kind::ConfigMap, &daemon_set.key.namespace, name))
}

/// Whether `name` can be a ConfigMap's.
pub fn is_name(name: &str) -> bool {
    dns::subdomain(name).is_none()
}

/// `daemon_set` as policy judges it: as the API server's, if that and no folder has the list that patches a folder's
/// DaemonSet. Who writes it there is no owner of the node.
pub fn as_judged<'d>(daemon_set: &'d DaemonSet, is_folders: impl Fn(&ObjectRef) -> bool) -> Cow<'d, DaemonSet> {
    let is_patched = daemon_set.overlays.as_ref().is_some_and(|overlays| overlays.template.is_some());
    let is_candidate = is_patched && daemon_set.source != Source::Api;
    match is_candidate && config_map(daemon_set).is_some_and(|config_map| !is_folders(&config_map)) {
        true => Cow::Owned(DaemonSet { source: Source::Api, ..daemon_set.clone() }),
        false => Cow::Borrowed(daemon_set),
    }
}

/// What is known of a node for its overlays.
#[derive(Clone, Copy, Debug)]
pub struct OverlayFacts<'a> {
    /// What is known of the ConfigMap.
    pub found: Lookup<'a>,
    /// The labels of the Node.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether these are all of its labels: the Node was read once.
    pub registered: bool,
    /// The overlays of what last ran here.
    pub last: Option<&'a Overlays>,
}

/// `daemon_set` with the overlays that apply to a node; the same where it names none.
pub fn resolve(daemon_set: &Arc<DaemonSet>, facts: &OverlayFacts<'_>) -> Arc<DaemonSet> {
    let Some(reference) = config_map(daemon_set) else { return with(daemon_set, None) };
    let last = facts.last.filter(|last| last.config_map == reference.key);
    let overlays = match (facts.found, last) {
        (_, Some(last)) if !facts.registered => again(last, "the Node has not been read", daemon_set),
        (Lookup::Present(object), _) => read(&reference, object, facts.labels, daemon_set),
        (Lookup::Deleted(object), None) => read(&reference, object, facts.labels, daemon_set),
        (Lookup::Deleted(_) | Lookup::Absent, Some(last)) => again(last, "it does not exist", daemon_set),
        (Lookup::Unknown, Some(last)) => again(last, "it has not been read", daemon_set),
        (found, None) => {
            let known = KnownList::Missing { unheard: found == Lookup::Unknown };
            let digest = UNKNOWN.to_owned();
            Overlays { config_map: reference.key, known, patches: Vec::new(), digest, template: None }
        }
    };
    with(daemon_set, Some(Arc::new(overlays)))
}

/// `daemon_set` with the patches that `other` has, as for another revision of the same DaemonSet.
pub fn as_in(daemon_set: &Arc<DaemonSet>, other: &DaemonSet) -> Arc<DaemonSet> {
    let Some(overlays) = &other.overlays else { return with(daemon_set, None) };
    let own = daemon_set.overlays.as_ref();
    if own.is_some_and(|own| own.digest == overlays.digest && own.known == overlays.known) {
        return Arc::clone(daemon_set);
    }
    let again = match overlays.known {
        KnownList::Read | KnownList::Last(_) => patched(Overlays::clone(overlays), daemon_set),
        KnownList::Missing { .. } | KnownList::Refused(_) => Overlays::clone(overlays),
    };
    with(daemon_set, Some(Arc::new(again)))
}

/// `daemon_set` once for each patch of its list, whatever nodes that is for: together they refer to everything that its
/// pods may refer to. Nothing where the list is not known.
pub fn each(daemon_set: &Arc<DaemonSet>, found: Lookup<'_>) -> Vec<Arc<DaemonSet>> {
    let (Some(reference), Lookup::Present(object)) = (config_map(daemon_set), found) else { return Vec::new() };
    let entries = list::read(&reference, object).unwrap_or_default().into_iter();
    let alone = entries.map(|entry| {
        let (config_map, digest) = (reference.key.clone(), String::new());
        Overlays { config_map, known: KnownList::Read, patches: vec![entry.patch], digest, template: None }
    });
    alone.map(|overlays| with(daemon_set, Some(Arc::new(patched(overlays, daemon_set))))).collect()
}

/// `daemon_set` with `overlays` in place of what it has.
pub fn with(daemon_set: &Arc<DaemonSet>, overlays: Option<Arc<Overlays>>) -> Arc<DaemonSet> {
    match daemon_set.overlays == overlays {
        true => Arc::clone(daemon_set),
        false => Arc::new(DaemonSet { overlays, ..DaemonSet::clone(daemon_set) }),
    }
}

fn read(reference: &ObjectRef, object: &Value, labels: &BTreeMap<String, String>, daemon_set: &DaemonSet) -> Overlays {
    let (patches, errors) = match list::read(reference, object) {
        Ok(entries) => (entries.into_iter().filter_map(|entry| entry.applying_to(labels)).collect(), Vec::new()),
        Err(errors) => (Vec::new(), errors),
    };
    let config_map = reference.key.clone();
    if errors.is_empty() {
        let digest = digest(&patches);
        return patched(Overlays { config_map, known: KnownList::Read, patches, digest, template: None }, daemon_set);
    }
    // Another text is another attempt.
    let text = object.get("data").map(Value::to_string).unwrap_or_default();
    let digest = rendering::digest(text.as_bytes()).chars().take(DIGEST).collect();
    Overlays { config_map, known: KnownList::Refused(errors), patches, digest, template: None }
}

/// What applied last, for the template of today.
fn again(last: &Overlays, why: &str, daemon_set: &DaemonSet) -> Overlays {
    let known = match &last.known {
        KnownList::Read | KnownList::Last(_) => KnownList::Last(why.to_owned()),
        other => other.clone(),
    };
    patched(Overlays { known, template: None, ..last.clone() }, daemon_set)
}

/// With the patched template, or what is wrong with it.
fn patched(mut overlays: Overlays, daemon_set: &DaemonSet) -> Overlays {
    let mut refused = Vec::new();
    if daemon_set.mode_label() == Some(Mode::Bootstrap) {
        refused.push(bootstrap());
    }
    let (template, errors) = apply::apply(&daemon_set.template, &overlays);
    overlays.template = template;
    refused.extend(errors);
    if !refused.is_empty() {
        overlays.known = KnownList::Refused(refused);
    }
    overlays
}

/// The refusal of overlays in mode `bootstrap`.
pub fn bootstrap() -> FieldError {
    FieldError {
        field: format!("metadata.annotations[{OVERLAYS}]"),
        reason: "mode bootstrap has no overlays: the DaemonSet controller's pod would be another one".to_owned(),
        hint: Some(format!("remove the annotation, or run it in mode static ({})", crate::core::model::MODE_LABEL)),
    }
}

fn digest(patches: &[Patch]) -> String {
    if patches.is_empty() {
        return String::new();
    }
    // Keys are in order in a `Value`.
    let text = Value::from_iter(patches.iter().map(|patch| patch.patch.clone())).to_string();
    rendering::digest(text.as_bytes()).chars().take(DIGEST).collect()
}

impl Overlays {
    /// The fields for which nothing may start with them, if any.
    pub fn refused(&self) -> &[FieldError] {
        match &self.known {
            KnownList::Refused(errors) => errors,
            KnownList::Read | KnownList::Last(_) | KnownList::Missing { .. } => &[],
        }
    }

    /// The digest as it is reported to the cluster; `None` while the list is not known.
    pub fn reported(&self) -> Option<&str> {
        match self.known {
            KnownList::Missing { .. } => None,
            KnownList::Read | KnownList::Last(_) | KnownList::Refused(_) => Some(&self.digest),
        }
    }

    /// What each patch changes, with its source.
    pub fn sources(&self) -> Vec<(String, Vec<String>)> {
        self.patches.iter().map(|patch| (self.source(patch.index), merge::changes(&patch.patch))).collect()
    }

    fn source(&self, index: usize) -> String {
        format!("ConfigMap {}: {KEY}[{index}]", self.config_map)
    }
}

impl fmt::Display for Overlays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config_map = &self.config_map;
        let which: Vec<String> = self.patches.iter().map(|patch| format!("{KEY}[{}]", patch.index)).collect();
        match (&self.known, which.is_empty()) {
            (KnownList::Missing { .. }, _) => write!(f, "ConfigMap {config_map} is not known"),
            (KnownList::Refused(_), _) => write!(f, "ConfigMap {config_map} cannot be used"),
            (_, true) => write!(f, "none of ConfigMap {config_map} applies to this node"),
            (_, false) => write!(f, "{} of ConfigMap {config_map} (digest {})", which.join(", "), self.digest),
        }?;
        match &self.known {
            KnownList::Last(why) => write!(f, ", as last known: {why}"),
            _ => Ok(()),
        }
    }
}

/// The revision of instances of `daemon_set`, whose template has the hash `hash`.
pub fn revision(hash: &str, daemon_set: &DaemonSet) -> String {
    identity::patched_revision(hash, daemon_set.overlays.as_ref().map_or("", |overlays| &overlays.digest))
}

#[cfg(test)]
mod tests;
