//! The data of good revisions, kept for a roll-back: it is there with no API and no network.
//!
//! Owns what is kept and how a rendering sees it. Tokens and the cluster's certificate are never kept:
//! they have to be today's.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::plan::Action;
use crate::core::rendering::RenderResult;
use crate::node::api::Snapshot;

use super::Agent;
use super::objects::Objects;
use super::objects::Versioned;

/// The ConfigMap with the cluster's certificate, which every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Kept objects by daemon.
pub(super) type RollbackDataOf = BTreeMap<ObjectKey, RollbackData>;

/// What is kept of one daemon.
#[derive(Clone)]
pub(super) struct RollbackData {
    /// The revision that was good with it.
    pub(super) revision: String,
    /// The objects as they were then.
    pub(super) objects: Versioned,
}

/// Whether the kept state of an object counts before today's.
pub(super) fn is_pinned(reference: &ObjectRef) -> bool {
    matches!(reference.kind.as_str(), "ConfigMap" | "Secret") && reference.key.name != ROOT_CA
}

impl Agent {
    /// Keeps the data that the plan asks to keep, on disk before anything changes.
    pub(super) fn keep_data(&mut self, api: Option<&Snapshot>) {
        let rollback_data: Vec<(ObjectKey, RollbackData)> = {
            let remembered = &self.remembered_inputs.objects;
            let objects = Objects { api, folders: self.folders.objects(), remembered, rollback_data: None, live: true };
            let asked = |action: &Action| match action {
                Action::Keep { rendering } => Some(copy(rendering, &objects)),
                _ => None,
            };
            let of = |d: &crate::core::plan::DaemonPlan| Some((d.key.clone(), d.actions.iter().find_map(asked)?));
            self.plan.daemons.iter().filter_map(of).collect()
        };
        if !rollback_data.is_empty() {
            self.remembered_inputs.rollback_data.extend(rollback_data);
            self.save_inputs();
        }
        let holds: BTreeSet<&ObjectKey> = self
            .plan
            .daemons
            .iter()
            .filter(|d| d.record.good.as_ref().is_some_and(|g| g.has_rollback_data))
            .map(|d| &d.key)
            .collect();
        self.remembered_inputs.rollback_data.retain(|key, _| holds.contains(key));
    }
}

/// What `rendering` was rendered from.
fn copy(rendering: &RenderResult, objects: &Objects<'_>) -> RollbackData {
    let of = |reference: &ObjectRef| Some((reference.clone(), objects.entry(reference)?.clone()));
    let references = rendering.result.iter().flat_map(|rendered| &rendered.pod.references);
    RollbackData { revision: rendering.revision.clone(), objects: references.filter_map(of).collect() }
}
