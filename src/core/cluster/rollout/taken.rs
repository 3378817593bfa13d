//! A rollout that does not go on though nobody wrote so: nodes that are not coming back by themselves have taken the
//! budget, or too many are away.
//!
//! Owns which those are, and the words. Must not decide who takes a slot.

use super::NodeFact;
use super::RolloutPlan;
use super::Standstill;

/// Nodes that a reason names at most.
const SHOWN: usize = 5;

/// What keeps a rollout from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Nodes that are not ready, on which it failed, or which are late, take the budget.
    Taken,
    /// Too many nodes are unreachable.
    Outage,
}

impl Stuck {
    /// In words that are the same for all nodes and at all times.
    pub fn words(self) -> &'static str {
        match self {
            Self::Taken => "the budget is taken by nodes on which it failed or does not become available",
            Self::Outage => "too many nodes are unreachable for the rollout to go on",
        }
    }
}

impl RolloutPlan {
    /// Says that nothing goes on where each of the nodes that are `taking` the budget is not ready, has failed or is late: others
    /// are on their way.
    pub(super) fn heed_stuck(&mut self, nodes: &[NodeFact<'_>], taking: Vec<usize>) {
        if taking.is_empty() || !taking.iter().all(|i| !nodes[*i].ready || nodes[*i].failed || nodes[*i].late) {
            return;
        }
        self.held = Some(Standstill::Taken(taking.iter().map(|i| nodes[*i].name.to_owned()).collect()));
        self.stuck = Some((Stuck::Taken, taking));
    }
}

/// The first of these names.
pub(in crate::core::cluster) fn names(nodes: &[&str]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(SHOWN));
    let more = if more.is_empty() { "" } else { ", …" };
    format!("{}{more}", shown.join(", "))
}
