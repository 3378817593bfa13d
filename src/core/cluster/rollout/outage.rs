//! Whether so many nodes are away that nothing goes on, or that the others do not speak for all.
//!
//! Owns how many that are. Must not decide what follows.

use super::NodeFact;
use super::RolloutRules;
use super::resolve;
use crate::core::cluster::liveness::AgentLiveness;

/// So many unreachable nodes hold no rollout: the floor of upstream's `ComputeZoneState`.
const UNREACHABLE_FLOOR: usize = 2;

/// Whether so many of the nodes are unreachable or have a dead agent that the others do not speak for all.
pub fn is_silence(rules: &RolloutRules, nodes: &[NodeFact<'_>]) -> bool {
    are_many(rules, nodes, |node| node.agent == AgentLiveness::Dead)
}

/// The same with those that cannot take the revision before an object exists: the others do not show that it works.
pub fn is_unproven(rules: &RolloutRules, nodes: &[NodeFact<'_>]) -> bool {
    are_many(rules, nodes, |node| node.agent == AgentLiveness::Dead || node.lacks)
}

/// Whether too many nodes are unreachable, or are such.
fn are_many(rules: &RolloutRules, nodes: &[NodeFact<'_>], is_such: impl Fn(&NodeFact<'_>) -> bool) -> bool {
    let (unreachable, all) = unreachable(nodes);
    let such = nodes.iter().filter(|node| node.should_run && node.reachable && is_such(node)).count();
    let many = unreachable + such;
    many > UNREACHABLE_FLOOR && many >= resolve(&rules.max_unreachable, all)
}

/// Whether so many of the nodes are unreachable that nothing goes on.
pub fn is_outage(rules: &RolloutRules, nodes: &[NodeFact<'_>]) -> bool {
    let (unreachable, all) = unreachable(nodes);
    !rules.exact && unreachable > UNREACHABLE_FLOOR && unreachable >= resolve(&rules.max_unreachable, all)
}

pub(super) fn is_away(node: &NodeFact<'_>) -> bool {
    node.belongs && !node.reachable
}

/// How many nodes are unreachable, and of how many: those that have taints for it count, too.
pub(super) fn unreachable(nodes: &[NodeFact<'_>]) -> (usize, usize) {
    let unreachable = nodes.iter().filter(|node| is_away(node)).count();
    let reachable = nodes.iter().filter(|node| node.should_run && node.reachable).count();
    (unreachable, unreachable + reachable)
}
