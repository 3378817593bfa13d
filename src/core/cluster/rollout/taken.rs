//! A budget that nodes have taken which are not coming back by themselves.
//!
//! Owns which those are, and the words. Must not decide who takes a slot.

use super::NodeFact;

/// Nodes that a reason names at most.
const SHOWN: usize = 5;

/// Why nothing goes on, if each of the nodes that take the budget is not ready, or has failed: others are on their way.
pub(super) fn words(taking: &[&NodeFact<'_>]) -> Option<String> {
    let is_stuck = taking.iter().all(|node| !node.ready || node.failed);
    let nodes: Vec<&str> = taking.iter().map(|node| node.name).collect();
    (is_stuck && !nodes.is_empty())
        .then(|| format!("the budget is taken by nodes that are not ready, or on which it failed: {}", names(&nodes)))
}

/// The first of these names.
pub(super) fn names(nodes: &[&str]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(SHOWN));
    let more = if more.is_empty() { "" } else { ", …" };
    format!("{}{more}", shown.join(", "))
}
