//! Which nodes may replace their instance now.
//!
//! Owns the budget: upstream's `rollingUpdate` accounting, with two improvements that `exact` switches off: a
//! node that is unreachable on the old revision takes no slot, and a replaced node keeps its slot for at
//! least [`HOLD`]. A node that broke after its update keeps its slot, and so stops the rollout. The same
//! nodes give the same answer: unavailable ones come first, then by name.
//!
//! Its invariant: slots taken by nodes that are unavailable, approved or still replacing never exceed the
//! budget by an approval of an available node.

use crate::core::model::IntOrPercent;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

use super::names::Name;
use super::steps::StepLimit;
use super::steps::StepStatus;
pub use canary::NONE as NO_CANARY;
pub use facts::ApprovalFact;
pub use facts::InstanceFact;
pub use facts::NodeFact;
pub use hold::RolloutHold;
use outage::is_away;
pub use outage::is_outage;
pub use outage::is_silence;
pub use outage::is_unproven;
use outage::unreachable;
use progress::NodeProgress;
use progress::RolloutView;
pub use standstill::Standstill;
pub use taken::Stuck;
pub(super) use taken::names;
use withdraw::Reach;

mod canary;
mod claim;
mod facts;
mod first_install;
mod hold;
mod order;
mod outage;
mod progress;
mod standing;
mod standstill;
mod taken;
mod withdraw;

/// How long a replaced node keeps its slot at least.
pub const HOLD: Span = Span::from_secs(2);
/// An approval that no agent has claimed for this long is withdrawn.
pub const UNCLAIMED: Span = Span::from_secs(60);

/// What a rollout obeys.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutRules {
    /// The revision that is rolled out.
    pub wanted: Name,
    /// How many nodes may be unavailable; of a percentage, rounded up.
    pub max_unavailable: IntOrPercent,
    /// How many nodes may run both; above 0 it is the budget.
    pub max_surge: IntOrPercent,
    /// Why no node is approved, and unclaimed approvals are withdrawn, if that is so.
    pub hold: Option<RolloutHold>,
    /// Nodes that are kept on the old revision.
    pub partition: IntOrPercent,
    /// On how many nodes at a time it starts that never ran it; `None`: they do not ask.
    pub first_install: Option<IntOrPercent>,
    /// How far this step of the rollout goes, if it has steps.
    pub step: Option<StepLimit>,
    /// Whether canary nodes go first; the others follow when all of them are available for this
    /// long.
    pub canary_hold: Option<Span>,
    /// Whether an operator has ended that phase: it does not wait for canary nodes that cannot take the revision.
    pub is_canary_promoted: bool,
    /// Whether the wanted revision is the released one: that works, so neither a partition nor canary nodes keep nodes on
    /// another one. They keep them from other overlays all the same.
    pub is_released: bool,
    /// What nodes with an old instance wait for before they claim their approval.
    pub when: Option<UpdateTrigger>,
    /// While so many nodes are unreachable, and more than two, nothing more is approved.
    pub max_unreachable: IntOrPercent,
    /// Whether the status says that nodes which join take the wanted revision.
    pub was_open: bool,
    /// Upstream's rule to the letter.
    pub exact: bool,
}

/// What is to be approved and withdrawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Indices of nodes that may replace.
    pub approve: Vec<usize>,
    /// Indices of nodes whose approval is withdrawn.
    pub withdraw: Vec<usize>,
    /// Approvals that no agent claimed in time, among those withdrawn.
    pub unclaimed: Vec<usize>,
    /// How many approvals wait for their trigger, among those that stand.
    pub waiting: usize,
    /// Nodes that are done.
    pub updated: usize,
    /// Nodes that are on the way.
    pub slots: usize,
    /// Why nothing is approved though nodes are left, if there is such a reason.
    pub held: Option<Standstill>,
    /// What keeps it from going on although nothing was set to hold it, and the indices of the nodes that do.
    pub stuck: Option<(Stuck, Vec<usize>)>,
    /// Whether a node that joins is to take the wanted revision: nothing keeps nodes on the old one.
    pub is_open: bool,
    /// Whether it is in its last phase: once all nodes have the wanted revision, that is released.
    pub is_through: bool,
    /// When to look again though nothing happens.
    pub look_again: Option<Timestamp>,
}

/// Plans the rollout of one DaemonSet. `min_ready`: its `minReadySeconds`.
pub fn plan(rules: &RolloutRules, min_ready: Span, nodes: &[NodeFact<'_>], now: Timestamp) -> RolloutPlan {
    let view = RolloutView::new(rules, min_ready, nodes, now);
    // An approval that is withdrawn from a node that is left out by now may be claimed before that.
    let slots = view.all(|i| (view.counts(i) || view.is_given_slot(i)) && view.takes_slot(i)).count();
    let look_again = view.next_change();
    let mut plan = RolloutPlan { updated: view.updated(), slots, look_again, ..RolloutPlan::default() };
    withdraw::ended(&view, &mut plan);
    withdraw::over_budget(&view, &mut plan);
    let reach = Reach::of(&view);
    plan.is_through = reach.is_whole;
    plan.is_open = rules.hold.is_none() && (reach.is_whole || view.runs_nowhere());
    withdraw::beyond_reach(&view, &reach, &mut plan.withdraw);
    let withdrawn = withdraw::indices(&plan.withdraw);
    let waits = |i: usize| nodes[i].waits_for_trigger() && view.is_old(i) && !withdrawn.contains(&i);
    plan.waiting = view.all(waits).count();
    let (installs, blocking) = first_install::plan(&view, &mut plan.withdraw);
    let candidates: Vec<usize> = view.all(|i| view.is_old(i) && view.may_be_approved(i)).collect();
    let is_taken_back = rules.hold.is_some() && plan.withdraw.iter().any(|i| view.is_old(*i));
    if candidates.is_empty() && installs.is_empty() && !is_taken_back {
        plan.heed_unable(&view);
        match &rules.hold {
            Some(hold) => plan.heed_hold(&view, hold),
            None => {
                plan.heed_limit(&view, &reach);
                plan.heed_stuck(&view, &blocking);
            }
        }
        return plan;
    }
    if let Some(hold) = &rules.hold {
        plan.held = Some(match canary::is_missing(&view) {
            true => Standstill::NoCanary { also: Some(hold.clone()) },
            false => Standstill::Hold(hold.clone()),
        });
        return plan;
    }
    if is_outage(rules, nodes) {
        let (unreachable, all) = unreachable(nodes);
        plan.held = Some(Standstill::Outage { unreachable, all });
        plan.stuck = Some((Stuck::Outage, view.all(|i| is_away(&nodes[i])).collect()));
        return plan;
    }
    plan.approve.extend(installs);
    if !candidates.is_empty() {
        plan.replace(&view, &reach, candidates);
    }
    plan
}

impl RolloutView<'_> {
    /// Whether nodes wait for the rollout and no node runs anything: no node can be kept on the old revision. Once that opened
    /// it, it stays open while no node runs another one, for the nodes that are slower.
    fn runs_nowhere(&self) -> bool {
        let is_free = |i: usize| {
            let is_new = self.rules.was_open && self.is_new(i) && !self.nodes[i].replacing;
            self.nodes[i].unreported_until.is_none() && (is_new || self.progress[i] == NodeProgress::Missing)
        };
        self.nodes.iter().any(NodeFact::awaits_it) && self.all(|i| self.counts(i)).all(is_free)
    }

    /// Whether a node is to have the wanted revision and has nothing of it.
    fn is_left(&self, index: usize) -> bool {
        self.nodes[index].should_run && matches!(self.progress[index], NodeProgress::Old(_) | NodeProgress::Missing)
    }

    /// Whether a node may be given an approval: nothing stands against it, and it has none.
    fn may_be_approved(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let is_free = node.approval.is_none() && !node.replacing;
        is_free && node.should_run && node.reachable && node.able && node.is_liveness_known() && !node.failed
    }
}

impl RolloutPlan {
    /// Approves as many of the `candidates` as the canary phase, zones, steps, partition and budget allow; where that is
    /// none, says why.
    fn replace(&mut self, view: &RolloutView<'_>, reach: &Reach, mut candidates: Vec<usize>) {
        canary::limit(view, reach, &mut candidates, self);
        if candidates.is_empty() {
            return;
        }
        let zone = if reach.is_canary { None } else { order::within_zone(view, &mut candidates) };
        if let Some(zone) = zone.filter(|_| candidates.is_empty()) {
            self.heed_zone(view, zone);
        }
        order::sort(view, &mut candidates);
        let allowed = self.allowed(view, reach, candidates.iter().any(|index| view.returns(*index)));
        let waits_for_trigger = view.rules.when.is_some();
        let mut left = allowed;
        for index in candidates {
            let is_bounded = !view.returns(index);
            if is_bounded && left == 0 {
                continue;
            }
            // What is unavailable already costs nothing to replace, and what waits for a trigger does not before that.
            let is_doubtful = view.is_doubtful(index);
            let is_unavailable = view.progress[index] == NodeProgress::Old(false) && !is_doubtful;
            let is_free = is_unavailable || view.has_surplus(index) || waits_for_trigger;
            // What may be available has its own slot already.
            let others = self.slots - usize::from(is_doubtful && view.takes_slot(index));
            if is_free || others < view.budget {
                left -= usize::from(is_bounded);
                self.slots += usize::from(!view.takes_slot(index) && !waits_for_trigger);
                self.waiting += usize::from(waits_for_trigger);
                self.approve.push(index);
            }
        }
        if self.held.is_none() && self.approve.is_empty() && self.slots >= view.budget {
            let taking: Vec<usize> = view.all(|i| view.counts(i) && view.takes_slot(i)).collect();
            self.heed_stuck(view, &taking);
        }
    }

    /// How many nodes more the step or the partition allows; says so where it is none, nothing is on the way, and no node
    /// `returns`.
    fn allowed(&mut self, view: &RolloutView<'_>, reach: &Reach, returns: bool) -> usize {
        let is_given =
            |i: usize| view.is_kept(i) && (view.nodes[i].approval.is_some() || view.nodes[i].staged.is_some());
        let on_the_way = view.all(is_given).count();
        let stands_still = |i: usize| !view.nodes[i].ready || view.nodes[i].failed || view.nodes[i].late;
        // One that is kept and not available takes a slot, and is on no way.
        let takes = |i: usize| !view.is_kept(i) && view.takes_slot(i) && (view.counts(i) || view.is_given_slot(i));
        let is_moving = match &view.rules.step {
            Some(step) => {
                let begins = |i| view.is_between(i) || step.status.waits() && view.is_starting(i);
                view.all(|i| (is_given(i) || begins(i)) && !stands_still(i)).next().is_some()
            }
            None => view.all(|i| (is_given(i) || takes(i)) && !stands_still(i)).next().is_some(),
        };
        let (allowed, why) = match &view.rules.step {
            // Nodes that run nothing yet are no part of a step.
            Some(step) => {
                let begun = view.all(|i| view.counts(i) && view.may_have_begun(i)).count();
                (step.nodes.saturating_sub(begun), Standstill::Step(step.status.clone()))
            }
            None => {
                let old = view.all(|i| view.nodes[i].should_run && view.is_kept(i)).count();
                (old.saturating_sub(on_the_way).saturating_sub(reach.kept), Standstill::Partition(reach.kept.min(old)))
            }
        };
        if allowed == 0 && !is_moving && !returns && !matches!(why, Standstill::Step(StepStatus::Begins(_))) {
            self.held = Some(why);
        }
        allowed
    }
}

/// A number of `desired` nodes; of a percentage, rounded up.
pub fn resolve(value: &IntOrPercent, desired: usize) -> usize {
    match value {
        IntOrPercent::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrPercent::Percent(percent) => (desired * usize::try_from(*percent).unwrap_or(0)).div_ceil(100),
    }
}

/// Whether an instance is available: ready for `min_ready`, on a node that is ready. Without `min_ready` no clock is
/// read, as in upstream's `IsPodAvailable`.
pub fn available(node_ready: bool, instance: &InstanceFact, min_ready: Span, now: Timestamp) -> bool {
    node_ready && instance.ready_since.is_some_and(|since| min_ready == Span::ZERO || since + min_ready <= now)
}

/// The same of an instance that is to be replaced: one that was ready for an unknown time may be available, and to end it
/// costs what an available one costs.
pub fn may_be_available(node_ready: bool, instance: &InstanceFact, min_ready: Span, now: Timestamp) -> bool {
    node_ready && instance.was_ready || available(node_ready, instance, min_ready, now)
}

fn earlier(at: &mut Option<Timestamp>, other: Timestamp) {
    *at = Some(at.map_or(other, |at| at.min(other)));
}

#[cfg(test)]
mod tests;
