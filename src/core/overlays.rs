//! Overlays: what a ConfigMap changes of a DaemonSet's pods on some nodes (`daemonlet.dev/overlays`).
//!
//! Owns which patches apply to a node, their digest and the patched template. The digest is no part of a revision or of
//! an identity: an instance is current when its template is and the digest of what applies to its node. Must not decide
//! when an instance is replaced.

mod apply;
mod difference;
mod list;
mod merge;
mod resolve;

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::bounds;
use crate::core::bounds::Bound;
use crate::core::bounds::EVERYONE;
use crate::core::dns;
use crate::core::identity;
use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::Mode;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::policy::PodRules;
use crate::core::rendering;

pub use difference::TemplateDifference;
pub use difference::differences;
pub use list::LastList;
pub use resolve::OverlayFacts;
pub use resolve::resolve;
pub use resolve::resolve_after;

/// The key of the ConfigMap with the list.
pub const KEY: &str = "overlays.yaml";
/// Stands for the digest of a ConfigMap that is not known: no instance has it.
const UNKNOWN: &str = "unknown";
/// How many characters of a SHA-256 make a digest.
const DIGEST: usize = 10;
/// How many errors of a list are kept.
const MOST_KEPT: usize = 12;

/// The overlays of a DaemonSet as they are on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlays {
    /// The ConfigMap with the list.
    pub config_map: ObjectKey,
    pub known: KnownList,
    /// Where the list that the patches are from was read.
    #[serde(default)]
    pub list: ListSource,
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
    /// `{metadata, spec}` as written; those of one list share it.
    pub patch: Arc<Value>,
}

/// Where a list of overlays was read. A writer in the API is no owner of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListSource {
    #[default]
    Api,
    Folder,
}

/// Why a list of overlays cannot be read or used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListGap {
    #[error("the Node does not have all its labels yet")]
    NodeLabels,
    #[error("it does not exist")]
    Absent,
    #[error("it has not been read")]
    NotRead,
    #[error("it is refused: {}{}", .first.with_hint(), if *.has_more { " (and more errors)" } else { "" })]
    Refused { first: FieldError, has_more: bool },
}

/// How the list of overlays is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KnownList {
    /// From its ConfigMap.
    Read,
    /// What applied when its ConfigMap was last known and could be used; why not now.
    Last(#[serde(deserialize_with = "gap_or_words")] ListGap),
    /// No ConfigMap is known, and nothing has run with one; `unconfirmed`: no source has confirmed that it does not exist.
    Missing { unconfirmed: bool },
    /// It cannot be used: the fields.
    Refused(Vec<FieldError>),
}

/// A gap, or the words that another version of the agent may have recorded of one.
fn gap_or_words<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ListGap, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum GapOrWords {
        Gap(ListGap),
        Words(String),
    }
    let known = [ListGap::NodeLabels, ListGap::Absent];
    Ok(match GapOrWords::deserialize(deserializer)? {
        GapOrWords::Gap(gap) => gap,
        GapOrWords::Words(recorded) => {
            known.into_iter().find(|gap| gap.to_string() == recorded).unwrap_or(ListGap::NotRead)
        }
    })
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

/// `daemon_set` with the patches that `other` has, as for another revision of the same DaemonSet.
pub fn as_in(daemon_set: &Arc<DaemonSet>, other: &DaemonSet) -> Arc<DaemonSet> {
    let Some(overlays) = &other.overlays else { return with(daemon_set, None) };
    let own = daemon_set.overlays.as_ref();
    if own.is_some_and(|own| (&own.digest, &own.known, own.list) == (&overlays.digest, &overlays.known, overlays.list))
    {
        return Arc::clone(daemon_set);
    }
    let again = match overlays.known {
        KnownList::Read | KnownList::Last(_) => patched(Overlays::clone(overlays), &EVERYONE, daemon_set),
        KnownList::Missing { .. } | KnownList::Refused(_) => Overlays::clone(overlays),
    };
    with(daemon_set, Some(Arc::new(again)))
}

/// `daemon_set` with each patch of its list on top of all before it, and with each alone that can be, whatever nodes that
/// is for: together they refer to everything that its pods may refer to. Nothing where the list is not known.
///
/// # Errors
/// What is refused of the list, or of its patches together.
pub fn each(daemon_set: &Arc<DaemonSet>, found: Lookup<'_>) -> Result<Vec<Arc<DaemonSet>>, Vec<FieldError>> {
    let Some(name) = daemon_set.annotations.get(OVERLAYS) else { return Ok(Vec::new()) };
    let reference = config_map(daemon_set).ok_or_else(|| vec![not_a_name(name)])?;
    let Lookup::Present(object) = found else { return Ok(Vec::new()) };
    let entries = list::read(&reference, object, &EVERYONE)?;
    let patches: Vec<Patch> = entries.into_iter().map(|entry| entry.patch).collect();
    let applied = |patches: &[Patch]| {
        let (config_map, digest, patches) = (reference.key.clone(), digest(patches), patches.to_vec());
        let (known, list) = (KnownList::Read, ListSource::Folder);
        patched(Overlays { config_map, known, list, patches, digest, template: None }, &EVERYONE, daemon_set)
    };
    let mut all = Vec::new();
    for index in 0..patches.len() {
        let [together, alone] = [applied(&patches[..=index]), applied(&patches[index..=index])];
        if let KnownList::Refused(errors) = together.known {
            return Err(errors);
        }
        all.push(together);
        all.extend(Some(alone).filter(|alone| alone.refused().is_empty()));
    }
    Ok(all.into_iter().map(|overlays| with(daemon_set, Some(Arc::new(overlays)))).collect())
}

/// `daemon_set` with `overlays` in place of what it has.
pub fn with(daemon_set: &Arc<DaemonSet>, overlays: Option<Arc<Overlays>>) -> Arc<DaemonSet> {
    match daemon_set.overlays == overlays {
        true => Arc::clone(daemon_set),
        false => Arc::new(DaemonSet { overlays, ..DaemonSet::clone(daemon_set) }),
    }
}

/// What a list and a template that it patches may have at most.
fn bound(daemon_set: &DaemonSet, list: ListSource, rules: &PodRules) -> &'static Bound {
    bounds::of(&daemon_set.key.namespace, Author::of(&daemon_set.source, list), rules)
}

/// With the patched template, or what is wrong with it: then without the patches, which are as large as they like, and
/// with which nothing starts.
fn patched(overlays: Overlays, bound: &Bound, daemon_set: &DaemonSet) -> Overlays {
    let mut errors = Vec::new();
    if daemon_set.mode_label() == Some(Mode::Bootstrap) {
        errors.push(bootstrap());
    }
    let (template, wrong) = apply::apply(&daemon_set.template, &overlays, bound);
    errors.extend(wrong);
    if errors.is_empty() {
        return Overlays { template, ..overlays };
    }
    Overlays { known: refused(errors), patches: Vec::new(), template: None, ..overlays }
}

/// That a list cannot be used. If it has too many errors, the last kept one says how many more.
fn refused(errors: Vec<FieldError>) -> KnownList {
    let more = errors.len().saturating_sub(MOST_KEPT);
    let mut kept: Vec<FieldError> = errors.into_iter().take(MOST_KEPT).map(FieldError::shortened).collect();
    kept.extend((more > 0).then(|| FieldError {
        field: KEY.to_owned(),
        reason: format!("has {more} more errors"),
        hint: None,
    }));
    KnownList::Refused(kept)
}

fn not_a_name(name: &str) -> FieldError {
    FieldError {
        field: format!("metadata.annotations[{OVERLAYS}]"),
        reason: format!("{name:?} is not the name of a ConfigMap"),
        hint: Some("correct it, or remove the annotation: then no overlays apply".to_owned()),
    }
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
    let text = Value::from_iter(patches.iter().map(|patch| Value::clone(&patch.patch))).to_string();
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

    /// Which patches apply and what each changes, as people read it.
    pub fn applied(&self) -> String {
        let sources: Vec<String> =
            self.sources().iter().map(|(source, changes)| format!("{source} changes {}", changes.join(", "))).collect();
        if sources.is_empty() { self.to_string() } else { sources.join("; ") }
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
