//! The history of a DaemonSet: ControllerRevisions as upstream's controller keeps them.
//!
//! Owns data, names, numbers and what is to be written; follows `constructHistory`, `snapshot`,
//! `dedupCurHistories` and `cleanupHistory` of upstream's DaemonSet controller. The name alone differs:
//! upstream hashes Go's memory layout, so here it is the hash of the canonical template. Look-up is by data.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::core::canonical;
use crate::core::identity;
use crate::core::json::Json;
use crate::core::model::HASH_LABEL;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::broken::BrokenNodes;
use super::released::ALL_RETRIED;
use super::released::Halted;
use super::steps::StepState;

/// Duplicates are merged once the younger is this old: its writer may be about to look at both.
const MERGE_AFTER: Span = Span::from_secs(30);

/// The value of `data` for a template as the API gave it: `getPatch` of upstream.
pub fn data(template: &Value) -> Value {
    let mut template = template.as_object().cloned().unwrap_or_default();
    template.insert("$patch".to_owned(), json!("replace"));
    json!({"spec": {"template": template}})
}

/// JSON as Go's `encoding/json` writes it: keys sorted, no white space, `<`, `>`, `&` and the two line
/// separators escaped. Two revisions are the same when these bytes are.
pub fn bytes(data: &Value) -> String {
    let mut text = data.to_string();
    for (character, escape) in
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")]
    {
        if text.contains(character) {
            text = text.replace(character, escape);
        }
    }
    text
}

/// The digest of [`bytes`]: two revisions are the same when it is.
pub fn digest(data: &Value) -> [u8; 32] {
    Sha256::digest(bytes(data)).into()
}

/// The template that a revision's data holds, if it holds one.
pub fn template(data: &Value) -> Option<Value> {
    let mut template = data.at(["spec", "template"])?.as_object()?.clone();
    template.remove("$patch");
    Some(Value::Object(template))
}

/// The template of a DaemonSet as text: as values it takes many times as much memory.
#[derive(Clone, Debug, Default)]
pub struct Template {
    json: Box<str>,
    /// The [`digest`] of the data of its revision.
    digest: [u8; 32],
}

impl Template {
    /// Of `template` as the API gave it.
    pub fn of(template: &Value) -> Self {
        Self { json: template.to_string().into(), digest: digest(&data(template)) }
    }

    /// As the API gave it; null if there is none.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// What it takes in memory, in bytes.
    pub fn weight(&self) -> usize {
        self.json.len()
    }
}

/// A ControllerRevision as far as decisions look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionFact {
    pub name: String,
    pub number: i64,
    /// The [`digest`] of its data.
    pub data: [u8; 32],
    /// The hash that agents give instances of its template.
    pub hash: String,
    /// Its label `controller-revision-hash`; none if it lacks one.
    pub label: Option<String>,
    /// Whether its controller is this DaemonSet; otherwise it is an orphan whose labels match the selector.
    pub owned: bool,
    /// When it was created.
    pub created: Timestamp,
    /// Why its rollout is halted, if it is.
    pub halted: Option<Halted>,
    /// Nodes whose failures of it count no more.
    pub retried: BTreeSet<String>,
    /// Nodes that have taken it and are not well.
    pub broken: BrokenNodes,
    /// The annotation with the step that its rollout is in, if it has one.
    pub step: Option<String>,
    /// When it was released last: a generation of its DaemonSet. None if that was another object.
    pub released: Option<i64>,
    /// The same of another object: it may be adopted from a former DaemonSet.
    pub released_before: Option<i64>,
}

impl RevisionFact {
    /// The step that its rollout is in, where it has this number.
    pub fn step(&self, number: i64) -> Option<StepState> {
        StepState::of(self.step.as_deref(), number)
    }

    /// Whether failures of it on a node count no more.
    pub fn is_retried(&self, node: &str) -> bool {
        self.retried.contains(node) || self.retried.contains(ALL_RETRIED)
    }

    /// The hash that agents use for the template in `data`; empty if there is none.
    pub fn hash_of(data: &Value) -> String {
        template(data).map(|t| identity::revision_hash(&canonical::template(&t).to_string())).unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum RevisionWrite {
    /// Create the revision of the current template.
    Create {
        /// Its name; taken by other data: `collision` is to be counted up first.
        name: String,
        /// The value of its label `controller-revision-hash`.
        label: String,
        number: i64,
        data: Value,
        /// Why its rollout is halted, if it is.
        halted: Option<Halted>,
    },
    /// Another revision has the name that the current template would get: count `collisionCount` up.
    Collision,
    /// Take over an orphan whose labels match.
    Adopt { name: String },
    /// Let a revision go whose labels do not match any more, as upstream's `ReleaseControllerRevision`.
    Release { name: String },
    /// Give a revision the label that it lacks: its name.
    Label { name: String },
    /// Give the current revision the highest number.
    Renumber { name: String, number: i64 },
    /// Delete a duplicate of the current revision, or an old one beyond the limit.
    Delete { name: String },
    /// Note that its rollout is halted.
    Halt { name: String, halted: Halted },
    /// Note the step that its rollout is in.
    Step { name: String, state: StepState },
    /// Note which nodes have taken it and are not well.
    Broken { name: String, broken: BrokenNodes },
    /// Note that it is the released one.
    Released {
        name: String,
        /// At which generation of the DaemonSet.
        generation: i64,
    },
    /// Note whose failures of it count no more.
    Retried { name: String, nodes: BTreeSet<String> },
}

/// What a pass over the history of one DaemonSet finds.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionPlan {
    /// The name of the current revision, if it is there.
    pub current: Option<String>,
    /// What is to be written, in order.
    pub writes: Vec<RevisionWrite>,
    /// When to look again though nothing happens: duplicates that are too young to be merged.
    pub look_again: Option<Timestamp>,
    /// The name that the current revision is to have, while a ControllerRevision of a former DaemonSet still has it.
    pub waits_for: Option<String>,
}

impl RevisionPlan {
    /// A revision that is made is `halted` at once, if it is.
    pub fn halt(&mut self, halted: Option<&Halted>) {
        for write in &mut self.writes {
            if let RevisionWrite::Create { halted: with, .. } = write {
                *with = halted.cloned();
            }
        }
    }
}

/// Whose revision it is, if not the DaemonSet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionHolder {
    /// A DaemonSet of the same name that is gone: the garbage collector takes its revisions.
    Former,
    /// Another owner, or none.
    Other,
}

/// What the history of a DaemonSet is to be.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The DaemonSet's name.
    pub name: &'a str,
    /// Its template as the API gave it.
    pub template: &'a Template,
    /// `status.collisionCount`.
    pub collisions: Option<i32>,
    /// `spec.revisionHistoryLimit`.
    pub limit: usize,
    /// The revisions of others in its namespace, by name.
    pub others: &'a BTreeMap<&'a str, RevisionHolder>,
    /// Hashes of instances that are on some node: their revisions stay.
    pub in_use: &'a BTreeSet<String>,
    /// The time.
    pub now: Timestamp,
}

/// Bytes of the name of a DaemonSet with which those of its revisions begin: `ControllerRevisionName` of upstream.
const PREFIX: usize = 223;

/// How the names of the revisions of a DaemonSet begin, before the hash.
pub fn prefix(name: &str) -> &str {
    name.get(..PREFIX).unwrap_or(name)
}

/// Plans the history. `known`: those that the DaemonSet owns, and orphans that match its selector.
pub fn plan(wanted: &Wanted<'_>, known: &[RevisionFact]) -> RevisionPlan {
    let mut writes: Vec<RevisionWrite> = Vec::new();
    writes.extend(known.iter().filter(|r| !r.owned).map(|r| RevisionWrite::Adopt { name: r.name.clone() }));
    writes.extend(known.iter().filter(|r| r.label.is_none()).map(|r| RevisionWrite::Label { name: r.name.clone() }));
    let (mut current, old): (Vec<&RevisionFact>, Vec<&RevisionFact>) =
        known.iter().partition(|r| r.data == wanted.template.digest);
    let highest = old.iter().map(|r| r.number).max().unwrap_or_default();
    // The one with the highest number is kept; upstream's order.
    current.sort_by(|a, b| b.number.cmp(&a.number).then_with(|| a.name.cmp(&b.name)));
    let (mut look_again, mut waits_for) = (None, None);
    let name = match current.split_first() {
        Some((kept, duplicates)) => {
            let youngest = current.iter().map(|r| r.created).max().unwrap_or_default();
            if !duplicates.is_empty() && wanted.now < youngest + MERGE_AFTER {
                look_again = Some(youngest + MERGE_AFTER);
            } else {
                writes.extend(duplicates.iter().map(|r| RevisionWrite::Delete { name: r.name.clone() }));
            }
            if kept.number <= highest {
                writes.push(RevisionWrite::Renumber { name: kept.name.clone(), number: highest + 1 });
            }
            Some(kept.name.clone())
        }
        None => {
            let template = wanted.template.value();
            // Pods have the label, too, and agents do not count collisions.
            let (hash, label, data) = (hash(&template, wanted.collisions), hash(&template, None), data(&template));
            let name = format!("{}-{hash}", prefix(wanted.name));
            let own = known.iter().any(|r| r.name == name).then_some(RevisionHolder::Other);
            writes.extend(match own.or_else(|| wanted.others.get(name.as_str()).copied()) {
                Some(RevisionHolder::Other) => Some(RevisionWrite::Collision),
                // That one is about to be deleted, and a name with a collision count would stay for ever.
                Some(RevisionHolder::Former) => {
                    waits_for = Some(name);
                    None
                }
                None => Some(RevisionWrite::Create { name, label, number: highest + 1, data, halted: None }),
            });
            None
        }
    };
    // While the new number is not written, the deletion of the revision with the highest one could make the old number
    // valid again, with what was noted of it in an earlier rollout.
    let is_renumbered = writes.iter().any(|write| matches!(write, RevisionWrite::Renumber { .. }));
    if name.is_some() && !is_renumbered {
        writes.extend(cleanup(wanted, &old));
    }
    RevisionPlan { current: name, writes, look_again, waits_for }
}

/// Old revisions beyond the limit, lowest numbers first, none that an instance still has.
fn cleanup(wanted: &Wanted<'_>, old: &[&RevisionFact]) -> Vec<RevisionWrite> {
    let mut old = old.to_vec();
    old.sort_by(|a, b| a.number.cmp(&b.number).then_with(|| a.name.cmp(&b.name)));
    let surplus = old.len().saturating_sub(wanted.limit);
    let used = |r: &&&RevisionFact| {
        wanted.in_use.contains(&r.hash) || r.label.as_ref().is_some_and(|label| wanted.in_use.contains(label))
    };
    let deletable = old.iter().filter(|r| !used(r));
    deletable.take(surplus).map(|r| RevisionWrite::Delete { name: r.name.clone() }).collect()
}

/// The hash of a canonical template, with the collision count behind it as upstream's `ComputeHash` appends it (eight
/// bytes, least first). Without that it is the label of a new revision, with it the end of its name.
pub fn hash(template: &Value, collisions: Option<i32>) -> String {
    identity::revision_hash_with(&canonical::template(template).to_string(), collisions)
}

/// The labels of a new revision: the template's, and its hash.
pub fn labels(template: &Value, hash: &str) -> BTreeMap<String, String> {
    let of_template = template.at(["metadata", "labels"]).and_then(Value::as_object);
    let text = |(k, v): (&String, &Value)| Some((k.clone(), v.as_str()?.to_owned()));
    let mut labels: BTreeMap<String, String> = of_template.into_iter().flatten().filter_map(text).collect();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    labels
}

#[cfg(test)]
mod tests;
