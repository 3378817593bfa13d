//! A rollout that does not go on: nodes that do not recover by themselves have taken the budget, too many are away, or
//! the nodes that are left cannot take it, wait, or are held.
//!
//! Owns which nodes those are, and the texts. Must not decide who takes a slot.

use super::NodeFact;
use super::RolloutHold;
use super::RolloutPlan;
use super::Standstill;
use super::progress::NodeProgress;
use super::progress::RolloutView;
use super::withdraw::Reach;
use super::withdraw::indices;

/// Nodes that a reason names at most.
const SHOWN: usize = 5;

/// What keeps a rollout from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stuck {
    /// Nodes that are not ready, on which it failed, or which are late, take the budget.
    Taken,
    /// Too many nodes are unreachable.
    Outage,
}

impl Stuck {
    /// A text that is the same for all nodes and at all times.
    pub fn text(self) -> &'static str {
        match self {
            Self::Taken => "the budget is taken by nodes on which it failed or does not become available",
            Self::Outage => "too many nodes are unreachable for the rollout to go on",
        }
    }
}

impl RolloutPlan {
    /// Says what holds it, where nodes are left that it is not given to.
    pub(super) fn heed_hold(&mut self, view: &RolloutView<'_>, hold: &RolloutHold) {
        if self.held.is_none() && view.all(|i| view.is_left(i)).next().is_some() {
            self.held = Some(Standstill::Hold(hold.clone()));
        }
    }

    /// Says that the step or the partition ends here, where all that is left waits for the rollout to be open.
    pub(super) fn heed_limit(&mut self, view: &RolloutView<'_>, reach: &Reach) {
        let left: Vec<usize> = view.all(|i| view.is_left(i)).collect();
        if self.held.is_some() || left.is_empty() || !left.iter().all(|i| view.nodes[*i].awaits_it()) {
            return;
        }
        self.held = match &view.rules.step {
            Some(step) if !reach.is_whole => Some(Standstill::Step(step.status.clone())),
            None if reach.kept > 0 => Some(Standstill::Partition(reach.kept.min(left.len()))),
            _ => None,
        };
    }

    /// Says how many of the nodes that are left cannot take it, where nothing is on the way.
    pub(super) fn heed_unable(&mut self, view: &RolloutView<'_>) {
        let can = |i: usize| view.nodes[i].able && view.nodes[i].reachable && !view.nodes[i].failed;
        let unable = view.all(|i| view.is_left(i) && !can(i)).count();
        let starts =
            view.all(|i| can(i) && view.is_left(i) && view.progress[i] == NodeProgress::Missing).next().is_some();
        let goes_on = view.all(|i| view.counts(i) && view.takes_slot(i) && !is_stuck(&view.nodes[i]));
        if unable > 0 && goes_on.count() == 0 && !starts {
            self.held = Some(Standstill::Unable(unable));
        }
    }

    /// Says that other zones wait for this one, where nothing of it is on its way, nor waits for its trigger.
    pub(super) fn heed_zone(&mut self, view: &RolloutView<'_>, zone: &str) {
        let withdrawn = indices(&self.withdraw);
        let waits = |i: usize| view.nodes[i].zone == Some(zone) && view.is_old(i) && view.nodes[i].is_under_way();
        if view.all(|i| waits(i) && !withdrawn.contains(&i) && !is_stuck(&view.nodes[i])).next().is_some() {
            return;
        }
        let takes = |i: usize| view.counts(i) && view.takes_slot(i);
        let taking: Vec<usize> = view.all(|i| takes(i) && view.nodes[i].zone == Some(zone)).collect();
        if !taking.iter().all(|i| is_stuck(&view.nodes[*i])) || taking.is_empty() && self.slots > 0 {
            return;
        }
        self.held = Some(Standstill::Zone(zone.to_owned()));
        if !taking.is_empty() {
            self.stuck = Some((Stuck::Taken, taking));
        }
    }

    /// Says that nothing goes on where none of the nodes that are `taking` the budget is on its way: each is not ready, has
    /// failed, is late, or waits for its turn or its trigger with an old instance that is not available.
    pub(super) fn heed_stuck(&mut self, view: &RolloutView<'_>, taking: &[usize]) {
        let nodes = view.nodes;
        let is_stuck = |i: &usize| is_stuck(&nodes[*i]);
        let is_kept = |i: &usize| {
            let is_given = nodes[*i].replacing || view.is_given_slot(*i) || nodes[*i].broken;
            // What may be available soon is so by time alone.
            !is_given && view.progress[*i] == NodeProgress::Old(false) && !view.is_doubtful(*i)
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

/// Whether what a node has taken of the budget does not come back by itself.
pub(super) fn is_stuck(node: &NodeFact<'_>) -> bool {
    // Where nothing runs, the time before its approval counts as well. One that is not claimed in time is withdrawn.
    let is_given = node.approval.is_some() && !node.replacing && node.instances.is_empty();
    !node.ready || node.failed || node.late && !is_given || node.ends_late
}

/// The first of these names.
pub(in crate::core::cluster) fn names(nodes: &[&str]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(SHOWN));
    let more = if more.is_empty() { "" } else { ", …" };
    format!("{}{more}", shown.join(", "))
}
