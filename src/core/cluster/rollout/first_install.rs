//! The first instances of a DaemonSet that was never released: so many nodes at a time.
//!
//! Owns how many of them start. Must not decide whether a rollout is held.

use super::NodeFact;
use super::NodeProgress;
use super::RolloutRules;
use super::counts;
use super::is_in_doubt;
use super::order;
use super::resolve;

/// The nodes without an instance that may start one now; where there are some and none may, those that they wait for. What
/// was given to more of them than are allowed by now is withdrawn.
pub(super) fn plan(
    rules: &RolloutRules,
    nodes: &[NodeFact<'_>],
    stands: &[NodeProgress],
    desired: usize,
    withdraw: &mut Vec<usize>,
) -> (Vec<usize>, Vec<usize>) {
    let Some(most) = rules.first_install.as_ref().map(|most| resolve(most, desired).max(1)) else {
        return Default::default();
    };
    let begun = |index: &usize| {
        let (node, stand) = (&nodes[*index], stands[*index]);
        counts(node, stand) && is_begun(node, stand)
    };
    let number = (0..nodes.len()).filter(begun).count();
    let in_doubt = (0..nodes.len()).filter(|i| begun(i) && is_in_doubt(&nodes[*i], stands[*i])).count();
    let is_idle = |index: &usize| {
        let node = &nodes[*index];
        let is_given = stands[*index] == NodeProgress::Missing && node.approval.is_some() && !node.replacing;
        is_given && !withdraw.contains(index)
    };
    let surplus: Vec<usize> =
        (0..nodes.len()).rev().filter(is_idle).take((number - in_doubt).saturating_sub(most)).collect();
    withdraw.extend(surplus);
    let may = |index: &usize| {
        let node = &nodes[*index];
        let is_free = node.approval.is_none() && !node.replacing && stands[*index] == NodeProgress::Missing;
        is_free && node.should_run && node.reachable && node.able && node.is_heard() && !node.failed
    };
    let mut candidates: Vec<usize> = (0..nodes.len()).filter(may).collect();
    order::within_zone(nodes, stands, &mut candidates);
    order::sort(nodes, stands, &mut candidates);
    let is_blocked = !candidates.is_empty() && number >= most;
    candidates.truncate(most.saturating_sub(number));
    (candidates, if is_blocked { (0..nodes.len()).filter(begun).collect() } else { Vec::new() })
}

/// Whether a node is one of those that are counted: it has been given the word, or what it has is not available.
fn is_begun(node: &NodeFact<'_>, stand: NodeProgress) -> bool {
    let is_on_the_way = node.approval.is_some() || node.replacing || node.broken;
    match stand {
        NodeProgress::Missing | NodeProgress::Old(true) => is_on_the_way,
        NodeProgress::Old(false) => is_on_the_way || node.reachable,
        NodeProgress::New { released, .. } => !released || node.replacing,
        NodeProgress::Both(_) => true,
    }
}
