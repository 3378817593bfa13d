//! The data of good revisions, kept for a roll-back: it is there with no API and no network.
//!
//! Owns what is kept and how a rendering sees it. Tokens and the cluster's certificate are never kept:
//! they have to be today's.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::policy::Policy;
use crate::core::rendering::RenderResult;
use crate::node::recording::marks;

use super::objects::Objects;
use super::objects::Versioned;
use super::objects::tenant;
use super::observation::Observation;
use super::remembered_inputs::RememberedInputs;
use super::state::Records;

/// The ConfigMap with the cluster's certificate, which every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Kept objects by daemon.
pub(super) type RollbackDataOf = BTreeMap<ObjectKey, RollbackData>;

/// What is kept of one daemon.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct RollbackData {
    /// The revision that was good with it.
    pub(super) revision: String,
    /// The objects as they were then.
    #[serde(with = "marks::objects")]
    pub(super) objects: Versioned,
}

/// The revision whose data is kept of a daemon.
pub(super) fn revision(records: &Records, daemon: &ObjectKey) -> Option<String> {
    let good = records.get(daemon)?.good.as_ref().filter(|good| good.has_rollback_data)?;
    Some(good.revision.clone())
}

/// Whether the kept state of an object counts before today's.
pub(super) fn is_pinned(reference: &ObjectRef) -> bool {
    matches!(reference.kind.as_str(), "ConfigMap" | "Secret") && reference.key.name != ROOT_CA
}

/// Keeps the data that `plan` asks to keep, and forgets what no record needs. Gives whether there is more than before.
pub(super) fn keep(observation: &Observation, inputs: &mut RememberedInputs, policy: &Policy, plan: &Plan) -> bool {
    let objects = Objects { live: true, has_run: true, ..Objects::today(observation, inputs, policy) };
    let asked = |action: &Action| match action {
        Action::Keep { rendering } => Some(copy(rendering, &objects)),
        _ => None,
    };
    let of = |d: &DaemonPlan| Some((d.key.clone(), d.actions.iter().find_map(asked)?));
    let kept: Vec<(ObjectKey, RollbackData)> = plan.daemons.iter().filter_map(of).collect();
    let is_more = !kept.is_empty();
    inputs.rollback_data.extend(kept);
    let needs = |d: &&DaemonPlan| d.record.good.as_ref().is_some_and(|good| good.has_rollback_data);
    let needed: BTreeSet<&ObjectKey> = plan.daemons.iter().filter(needs).map(|d| &d.key).collect();
    inputs.rollback_data.retain(|key, _| needed.contains(key));
    tenant::forget_kept(&mut inputs.rollback_data, &inputs.objects, policy);
    is_more
}

/// What `rendering` was rendered from.
fn copy(rendering: &RenderResult, objects: &Objects<'_>) -> RollbackData {
    let of = |reference: &ObjectRef| Some((reference.clone(), objects.entry(reference)?.clone()));
    let references = rendering.result.iter().flat_map(|rendered| &rendered.pod.references);
    RollbackData { revision: rendering.revision.clone(), objects: references.filter_map(of).collect() }
}
