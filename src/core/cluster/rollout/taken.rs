//! A rollout that does not go on though nobody wrote so: nodes that are not coming back by themselves have taken the
//! budget, or too many are away.
//!
//! Owns which those are, and the words. Must not decide who takes a slot.

use super::RolloutPlan;
use super::Standstill;
use super::progress::NodeProgress;
use super::progress::RolloutView;

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
    /// Says that nothing goes on where none of the nodes that are `taking` the budget is on its way: each is not ready, has
    /// failed, is late, or waits for its turn with an old instance that is not available.
    pub(super) fn heed_stuck(&mut self, view: &RolloutView<'_>, taking: &[usize]) {
        let nodes = view.nodes;
        let is_stuck = |i: &usize| !nodes[*i].ready || nodes[*i].failed || nodes[*i].late;
        let is_kept = |i: &usize| {
            let is_given = nodes[*i].replacing || nodes[*i].approval.is_some() || nodes[*i].broken;
            !is_given && view.progress[*i] == NodeProgress::Old(false)
        };
        if taking.is_empty() || !taking.iter().all(|i| is_stuck(i) || is_kept(i)) {
            return;
        }
        let names = taking.iter().map(|i| nodes[*i].name.to_owned()).collect();
        let stuck: Vec<usize> = taking.iter().copied().filter(is_stuck).collect();
        if stuck.is_empty() {
            self.held = Some(Standstill::OldUnavailable(names));
            return;
        }
        self.held = Some(Standstill::Taken(names));
        self.stuck = Some((Stuck::Taken, stuck));
    }
}

/// The first of these names.
pub(in crate::core::cluster) fn names(nodes: &[&str]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(SHOWN));
    let more = if more.is_empty() { "" } else { ", …" };
    format!("{}{more}", shown.join(", "))
}
