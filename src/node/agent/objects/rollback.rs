//! What is kept for a roll-back when a revision is good.
//!
//! Owns what of today's objects is copied and when it is forgotten. Must not keep what no record needs.

use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::policy::Policy;
use crate::core::rendering::RenderResult;

use super::super::observation::Observation;
use super::super::remembered_inputs::RememberedInputs;
use super::super::rollback_data::RollbackData;
use super::Objects;
use super::tenant;

/// Keeps the data that `plan` asks to keep, and forgets what no record needs. Gives whether there is more than before.
pub(in crate::node::agent) fn keep(
    observation: &Observation,
    inputs: &mut RememberedInputs,
    policy: &Policy,
    plan: &Plan,
) -> bool {
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
