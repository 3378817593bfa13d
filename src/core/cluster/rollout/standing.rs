//! Approvals that wait for a trigger on their node, without time limit and without a slot until they are claimed; and how
//! far a rollout reaches now.
//!
//! Owns which approvals are withdrawn because the rollout does not reach so far any more. Must not give any.

use super::ApprovalFact;
use super::NodeFact;
use super::NodeProgress;
use super::RolloutRules;
use super::counts;
use super::order;

impl ApprovalFact {
    /// Whether it waits for a trigger on its node.
    pub(super) fn is_standing(&self) -> bool {
        self.when.is_some()
    }

    /// Whether it takes a slot before it is claimed.
    pub(super) fn takes_slot(&self, rules: &RolloutRules) -> bool {
        !self.is_standing() && rules.when.is_none()
    }
}

impl NodeFact<'_> {
    /// Whether it has an approval that stands until its trigger comes, and has not begun to replace.
    pub(super) fn waits_for_trigger(&self) -> bool {
        !self.replacing && self.approval.is_some_and(|approval| approval.is_standing())
    }

    /// Whether a replacement has been given to it, or will be made at its next boot.
    pub(super) fn is_under_way(&self) -> bool {
        self.approval.is_some() || self.replacing || self.staged
    }
}

/// How far a rollout goes now.
pub(super) struct Reach {
    /// How many nodes stay on the old revision.
    pub(super) kept: usize,
    /// Whether the canary nodes alone have it.
    pub(super) is_canary: bool,
}

/// Withdraws unclaimed approvals beyond that reach: steps, partition, zones and canary nodes may have changed since they
/// were given. Nor does one that waits for a trigger stand on a node whose agent cannot take the revision any more.
pub(super) fn withdraw_surplus(
    rules: &RolloutRules,
    reach: &Reach,
    nodes: &[NodeFact<'_>],
    stands: &[NodeProgress],
    withdraw: &mut Vec<usize>,
) {
    let is_old = |index: usize| matches!(stands[index], NodeProgress::Old(_));
    let waits = |index: &usize| {
        let node = &nodes[*index];
        node.approval.is_some() && !node.replacing && is_old(*index) && !withdraw.contains(index)
    };
    let waiting: Vec<usize> = (0..nodes.len()).filter(waits).collect();
    let zone = if reach.is_canary { None } else { order::within_zone(nodes, stands, &mut Vec::new()) };
    let is_out = |index: &usize| {
        let node = &nodes[*index];
        let is_elsewhere = zone.is_some() && node.zone != zone;
        is_elsewhere || reach.is_canary && !node.canary || node.waits_for_trigger() && node.reachable && !node.able
    };
    let (out, rest): (Vec<usize>, Vec<usize>) = waiting.into_iter().partition(is_out);
    withdraw.extend(&out);
    let begun = (0..nodes.len()).filter(|index| {
        let (node, stand) = (&nodes[*index], stands[*index]);
        let has_it = matches!(stand, NodeProgress::New { .. } | NodeProgress::Both(_));
        counts(node, stand) && (has_it || node.is_under_way()) && !out.contains(index)
    });
    let surplus = match &rules.step {
        Some(step) => begun.count().saturating_sub(step.nodes),
        None => {
            let old = (0..nodes.len()).filter(|index| nodes[*index].should_run && is_old(*index));
            let under_way = (0..nodes.len()).filter(|i| is_old(*i) && nodes[*i].is_under_way() && !out.contains(i));
            reach.kept.saturating_sub(old.count().saturating_sub(under_way.count()))
        }
    };
    withdraw.extend(rest.into_iter().rev().take(surplus));
}
