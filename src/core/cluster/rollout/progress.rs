//! How far each node is on the way to the wanted revision, and what that takes of the budget.
//!
//! Owns which node takes a slot, and which nodes a rollout counts. Must not choose nodes.

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::ApprovalFact;
use super::HOLD;
use super::InstanceFact;
use super::NodeFact;
use super::RolloutRules;
use super::available;
use super::may_be_available;
use super::resolve;

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeProgress {
    /// Nothing runs: a first install, or between old and new.
    Missing,
    /// The old one; whether it is available.
    Old(bool),
    /// The new one; whether it is available, and whether its slot is free again.
    New { available: bool, released: bool },
    /// Both: a surge; whether the new one is available.
    Both(bool),
}

/// The nodes of one DaemonSet as its rollout sees them at one moment.
pub(super) struct RolloutView<'a> {
    /// What the rollout obeys.
    pub(super) rules: &'a RolloutRules,
    /// The nodes, by index.
    pub(super) nodes: &'a [NodeFact<'a>],
    /// How far each of them is.
    pub(super) progress: Vec<NodeProgress>,
    /// `minReadySeconds` of the DaemonSet.
    pub(super) min_ready: Span,
    /// The time of that moment.
    pub(super) now: Timestamp,
    /// On how many nodes the daemon should run.
    pub(super) desired: usize,
    /// Whether a new instance starts beside the old one.
    pub(super) surges: bool,
    /// How many slots there are.
    pub(super) budget: usize,
}

impl<'a> RolloutView<'a> {
    pub(super) fn new(rules: &'a RolloutRules, min_ready: Span, nodes: &'a [NodeFact<'a>], now: Timestamp) -> Self {
        let desired = nodes.iter().filter(|n| n.should_run).count();
        let surge = resolve(&rules.max_surge, desired);
        let surges = surge > 0;
        let budget = if surges { surge } else { resolve(&rules.max_unavailable, desired).max(1) };
        let progress = nodes.iter().map(|n| of(n, rules, min_ready, now)).collect();
        Self { rules, nodes, progress, min_ready, now, desired, surges, budget }
    }

    /// The indices of the nodes for which this holds.
    pub(super) fn all<'b>(&'b self, holds: impl Fn(usize) -> bool + 'b) -> impl Iterator<Item = usize> + 'b {
        (0..self.nodes.len()).filter(move |index| holds(*index))
    }

    /// How many nodes run the wanted revision, available.
    pub(super) fn updated(&self) -> usize {
        self.all(|i| matches!(self.progress[i], NodeProgress::New { available: true, .. })).count()
    }

    /// Whether the old revision alone runs on a node.
    pub(super) fn is_old(&self, index: usize) -> bool {
        matches!(self.progress[index], NodeProgress::Old(_))
    }

    /// Whether a node goes back to the released revision from another one.
    pub(super) fn returns(&self, index: usize) -> bool {
        let newest = self.nodes[index].newest();
        self.rules.is_released
            && self.is_old(index)
            && newest.is_some_and(|newest| newest.revision != self.rules.wanted)
    }

    /// Whether what runs on a node is old and may be available though it does not count as that: it takes a slot, and to end
    /// it costs one.
    pub(super) fn is_doubtful(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        self.progress[index] == NodeProgress::Old(false) && node.ready && node.live().any(|instance| instance.is_found)
    }

    /// Whether the wanted revision runs on a node.
    pub(super) fn is_new(&self, index: usize) -> bool {
        is_new(self.progress[index])
    }

    /// Whether the wanted revision runs on a node, is restarted there, or has failed there. Neither a restart nor a node that
    /// went back by itself gives its place in a step, or beside a partition, to another node.
    pub(super) fn has_had(&self, index: usize) -> bool {
        self.is_new(index) || self.nodes[index].failed || self.nodes[index].restarts(self.rules)
    }

    /// Whether a node is kept on the old revision: nothing takes it back to the released one, and the wanted one has not
    /// failed there.
    pub(super) fn is_kept(&self, index: usize) -> bool {
        self.is_old(index) && !self.returns(index) && !self.nodes[index].failed
    }

    /// Whether a node has ended the old one, and has yet to start the new one.
    pub(super) fn is_between(&self, index: usize) -> bool {
        self.nodes[index].replacing && self.progress[index] == NodeProgress::Missing
    }

    /// Whether the wanted revision runs on a node and is not available.
    pub(super) fn is_starting(&self, index: usize) -> bool {
        matches!(self.progress[index], NodeProgress::New { available: false, .. } | NodeProgress::Both(false))
    }

    /// Whether a node is on its way to the wanted revision, and neither failed nor late with it.
    pub(super) fn is_moving(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let is_given = self.is_given_slot(index) && !self.is_new(index);
        let is_on_its_way = is_given || node.replacing || self.is_starting(index);
        is_on_its_way && node.ready && !node.failed && !node.late
    }

    /// Whether the rollout counts a node: the daemon should run there, or did when the rollout came to it. A node that
    /// breaks under the new revision gets taints, which the daemon may not tolerate. So does one on which a surge is not over.
    pub(super) fn counts(&self, index: usize) -> bool {
        let is_begun = self.is_touched(index) || self.has_surplus(index);
        self.nodes[index].should_run || self.nodes[index].belongs && is_begun
    }

    /// Whether the rollout has come to a node: it replaces, or has the wanted revision, or had it before its report was
    /// lost.
    pub(super) fn is_touched(&self, index: usize) -> bool {
        self.nodes[index].replacing || self.nodes[index].broken || self.is_new(index)
    }

    /// Whether a node is one of those that a step allows: the wanted revision is given to it or runs there, or may run
    /// there because its agent has not reported yet.
    pub(super) fn may_have_begun(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        self.has_had(index) || node.is_under_way() || node.broken || node.unreported_until.is_some()
    }

    /// Whether a node keeps its slot only because its agent's liveness is unknown, or may do so.
    pub(super) fn is_in_doubt(&self, index: usize) -> bool {
        !self.nodes[index].is_liveness_known() && matches!(self.progress[index], NodeProgress::New { .. })
    }

    /// Whether a node takes a slot of the budget.
    pub(super) fn takes_slot(&self, index: usize) -> bool {
        let (node, rules) = (&self.nodes[index], self.rules);
        let is_known = node.reachable && (node.able || node.unreported_until.is_some());
        match self.progress[index] {
            // Upstream counts the nodes on which the surge is not available yet, and nothing else.
            NodeProgress::New { .. } if rules.exact && self.surges => false,
            NodeProgress::Both(available) if rules.exact && self.surges => !available,
            // It may be on its way to another revision, which was wanted before.
            NodeProgress::New { released, .. } => {
                let may_leave = |given: ApprovalFact| !node.wants(rules, given.pair()) && given.takes_slot(rules);
                !released || node.replacing || node.approval.is_some_and(may_leave)
            }
            NodeProgress::Both(_) => true,
            NodeProgress::Old(_) if self.has_surplus(index) => true,
            _ if node.replacing || node.broken || self.is_given_slot(index) => true,
            // It waits for this very rollout, which would wait for it.
            NodeProgress::Missing if node.awaits_it() => false,
            NodeProgress::Missing | NodeProgress::Old(false) => (is_known || rules.exact) && !self.surges,
            NodeProgress::Old(true) => false,
        }
    }

    /// Whether a surge to another revision is not over on a node: to replace what it began starts nothing more.
    pub(super) fn has_surplus(&self, index: usize) -> bool {
        self.surges && self.is_old(index) && self.nodes[index].live().count() > 1
    }

    /// Whether a node has an approval that takes a slot before it is claimed.
    pub(super) fn is_given_slot(&self, index: usize) -> bool {
        self.nodes[index].approval.is_some_and(|approval| approval.takes_slot(self.rules))
    }

    /// The next moment at which an instance is available or gives its slot back though nothing happens, or a doubt ends.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let changes = self.nodes.iter().flat_map(|node| {
            let newest = node.newest();
            let ready = node.live().filter_map(|instance| instance.ready_since).map(|since| since + self.min_ready);
            let ready = ready.filter(|at| *at > self.now).min();
            let held = newest
                .filter(|newest| is_new_alone(node, self.rules, newest))
                .and_then(|newest| (!self.rules.exact && node.approval.is_some()).then(|| newest.created + HOLD));
            let refused = node.refused_until;
            [ready, held, refused].into_iter().flatten().filter(|at| *at > self.now).chain(node.unreported_until)
        });
        changes.min()
    }
}

fn is_new(progress: NodeProgress) -> bool {
    matches!(progress, NodeProgress::New { .. } | NodeProgress::Both(_))
}

/// Whether all that does not end on a node has the wanted revision, as its `newest` instance has.
fn is_new_alone(node: &NodeFact<'_>, rules: &RolloutRules, newest: &InstanceFact) -> bool {
    let updated = |i: &InstanceFact| node.wants(rules, i.pair());
    updated(newest) && node.live().all(updated)
}

fn of(node: &NodeFact<'_>, rules: &RolloutRules, min_ready: Span, now: Timestamp) -> NodeProgress {
    let updated = |i: &InstanceFact| node.wants(rules, i.pair());
    let Some(newest) = node.newest() else { return NodeProgress::Missing };
    // With the wanted revision a node gives its slot back only once that is certain.
    let is_available = node.is_liveness_known() && available(node.ready, newest, min_ready, now);
    if !updated(newest) {
        // Of two, as a surge leaves them, the agent keeps the one that serves. The older one may be what is wanted: the node
        // has yet to leave the newer one.
        return NodeProgress::Old(node.live().any(|i| may_be_available(node.ready, i, min_ready, now)));
    }
    if !node.live().all(updated) {
        return NodeProgress::Both(is_available);
    }
    let held = !rules.exact && node.approval.is_some() && newest.created + HOLD > now;
    // An old instance that still ends holds the slot, too.
    let ends = node.instances.iter().any(|i| i.ending);
    NodeProgress::New { available: is_available, released: is_available && !held && !ends }
}
