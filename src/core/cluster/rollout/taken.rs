//! A rollout that does not go on though nobody wrote so: nodes that are not coming back by themselves have taken the
//! budget, or too many are away.
//!
//! Owns which those are, and the words. Must not decide who takes a slot.

use super::NodeFact;

/// Nodes that a reason names at most.
const SHOWN: usize = 5;

/// What keeps a rollout from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Nodes that are not ready, or on which it failed, take the budget.
    Taken,
    /// Too many nodes are unreachable.
    Outage,
}

impl Stuck {
    /// In words that are the same for all nodes and at all times.
    pub fn words(self) -> &'static str {
        match self {
            Self::Taken => "the budget is taken by nodes that are not ready, or on which it failed",
            Self::Outage => "too many nodes are unreachable for the rollout to go on",
        }
    }
}

/// Whether each of the nodes that take the budget is not ready, or has failed: others are on their way.
pub(super) fn is_stuck(taking: &[&NodeFact<'_>]) -> bool {
    !taking.is_empty() && taking.iter().all(|node| !node.ready || node.failed)
}

/// Why nothing goes on: such nodes take the budget.
pub(super) fn words(taking: &[&NodeFact<'_>]) -> String {
    let nodes: Vec<&str> = taking.iter().map(|node| node.name).collect();
    format!("{}: {}", Stuck::Taken.words(), names(&nodes))
}

/// The first of these names.
pub(super) fn names(nodes: &[&str]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(SHOWN));
    let more = if more.is_empty() { "" } else { ", …" };
    format!("{}{more}", shown.join(", "))
}
