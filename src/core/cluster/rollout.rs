//! Which nodes may replace their instance now.
//!
//! Owns the budget: upstream's `rollingUpdate` accounting, with two betterments that `exact` switches off: a
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

use super::liveness::AgentLiveness;
use super::names::Name;
use super::steps::StepLimit;
use outage::is_away;
pub use outage::is_outage;
pub use outage::is_silence;
use outage::unreachable;
use standing::Reach;
pub use taken::Stuck;

mod canary;
mod first_install;
mod order;
mod outage;
mod standing;
mod taken;

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
    /// Nobody is approved, and what is unclaimed is withdrawn: paused, `OnDelete`, or halted.
    pub hold: Option<String>,
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
    /// What nodes with an old instance wait for before they claim their approval.
    pub when: Option<UpdateTrigger>,
    /// While so many nodes are unreachable, and more than two, nothing more is approved.
    pub max_unreachable: IntOrPercent,
    /// Upstream's rule to the letter.
    pub exact: bool,
}

/// One instance as its agent reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceFact {
    /// Its revision.
    pub revision: Name,
    /// The digest of its overlays, if it has any.
    pub overlays: Option<Name>,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it ends.
    pub ending: bool,
}

/// The state of an approval for this daemon on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalFact {
    /// Which revision may run.
    pub revision: Name,
    /// The digest of the overlays that it may run with, if any.
    pub overlays: Option<Name>,
    /// When it was given.
    pub at: Timestamp,
    /// What its node waits for before it claims it: until then it takes no slot and has no time limit.
    pub when: Option<UpdateTrigger>,
}

/// One node as the daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFact<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether the daemon may be started there.
    pub should_run: bool,
    /// Whether it may be started there as soon as the node is well. Counters follow `should_run`, as upstream's.
    pub belongs: bool,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether its agent and kubelet are heard: Ready is True or False, not Unknown.
    pub reachable: bool,
    /// Whether it can take the wanted revision: it has an agent, which does not refuse it for reasons of its own.
    pub able: bool,
    /// Whether its agent lives, as far as that is known.
    pub agent: AgentLiveness,
    /// While it has no report: until when it may be in the middle of a replacement that was not reported.
    pub unreported_until: Option<Timestamp>,
    /// Its zone, where one zone comes after the other.
    pub zone: Option<&'a str>,
    /// The value over which those that are updated are spread, if they are.
    pub spread: Option<&'a str>,
    /// Whether it is one of the canary nodes.
    pub canary: bool,
    /// The instances there, oldest first.
    pub instances: &'a [InstanceFact],
    /// The digest of the overlays that its agent wants there, if any.
    pub overlays: Option<Name>,
    /// The approval that stands.
    pub approval: Option<ApprovalFact>,
    /// Whether its agent has claimed one: it replaces.
    pub replacing: bool,
    /// Whether its agent replaces at the next boot: it claims an approval that waits for that.
    pub staged: bool,
    /// Whether the wanted revision has failed there, or cannot be made there.
    pub failed: bool,
    /// Whether what has begun there, or is to start there, has not been available for the progress deadline, while its
    /// agent was heard.
    pub late: bool,
    /// Whether it took the wanted revision and was not well with it when its report was lost, as far as that is known.
    pub broken: bool,
    /// Whether its agent did not claim an approval of the wanted revision in time: others come first.
    pub passed_over: bool,
    /// Where the API server has just refused to keep its approvals: when they may be tried again. Others come first.
    pub refused_until: Option<Timestamp>,
}

impl NodeFact<'_> {
    /// Whether a revision with these overlays is what is to run there.
    pub fn wants(&self, rules: &RolloutRules, (revision, overlays): (Name, Option<Name>)) -> bool {
        revision == rules.wanted && overlays == self.overlays
    }

    /// Whether what it last said may be believed: its agent lives, or its mirror pod was looked up.
    pub fn is_heard(&self) -> bool {
        self.agent != AgentLiveness::Unheard
    }
}

impl InstanceFact {
    /// What it is current by.
    pub fn pair(&self) -> (Name, Option<Name>) {
        (self.revision, self.overlays)
    }
}

impl ApprovalFact {
    /// What may run.
    pub fn pair(&self) -> (Name, Option<Name>) {
        (self.revision, self.overlays)
    }
}

/// What is to be approved and withdrawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Indices of nodes that may replace.
    pub approve: Vec<usize>,
    /// Indices of nodes whose approval is withdrawn.
    pub withdraw: Vec<usize>,
    /// Approvals that nobody claimed in time, among those withdrawn.
    pub unclaimed: Vec<usize>,
    /// How many approvals wait for their trigger, among those that stand.
    pub waiting: usize,
    /// Nodes that are done.
    pub updated: usize,
    /// Nodes that are on the way.
    pub slots: usize,
    /// Why nothing is approved though nodes are left; empty if there is no such reason.
    pub held: String,
    /// What keeps it from going on though nobody wrote so, and the indices of the nodes that do.
    pub stuck: Option<(Stuck, Vec<usize>)>,
    /// Whether a node that joins is to take the wanted revision: nothing keeps nodes on the old one.
    pub is_open: bool,
    /// Whether it is in its last phase: once all nodes have the wanted revision, that is released.
    pub is_through: bool,
    /// When to look again though nothing happens.
    pub look_again: Option<Timestamp>,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeProgress {
    /// Nothing runs: a first install, or between old and new.
    Missing,
    /// The old one; whether it is available.
    Old(bool),
    /// The new one; whether it is available, and whether its slot is free again.
    New { available: bool, released: bool },
    /// Both: a surge; whether the new one is available.
    Both(bool),
}

/// Plans the rollout of one DaemonSet. `min_ready`: its `minReadySeconds`.
pub fn plan(rules: &RolloutRules, min_ready: Span, nodes: &[NodeFact<'_>], now: Timestamp) -> RolloutPlan {
    let mut plan = RolloutPlan::default();
    let desired = nodes.iter().filter(|n| n.should_run).count();
    let surges = resolve(&rules.max_surge, desired) > 0;
    let budget = match surges {
        true => resolve(&rules.max_surge, desired),
        false => resolve(&rules.max_unavailable, desired).max(1),
    };
    let stands: Vec<NodeProgress> =
        nodes.iter().map(|n| stand(n, rules, min_ready, now, &mut plan.look_again)).collect();
    let hold = rules.hold.clone();
    for (index, (node, stand)) in nodes.iter().zip(&stands).enumerate() {
        plan.updated += usize::from(matches!(stand, NodeProgress::New { available: true, .. }));
        let Some(approval) = node.approval else { continue };
        let done = matches!(stand, NodeProgress::New { released: true, .. });
        // What was made has been claimed.
        let waits = !node.replacing && !matches!(stand, NodeProgress::New { .. } | NodeProgress::Both(_));
        let is_timed = waits && !approval.is_standing();
        let late = is_timed && now - approval.at >= UNCLAIMED;
        if is_timed && !late {
            earlier(&mut plan.look_again, approval.at + UNCLAIMED);
        }
        // An API server with an older resource drops what an approval waits for.
        let is_other = matches!(stand, NodeProgress::Old(_)) && approval.is_standing() && approval.when != rules.when;
        let is_void = !node.wants(rules, approval.pair()) || is_other || hold.is_some();
        let void = is_void || node.failed || !counts(node, *stand);
        if (void || late || done) && !node.replacing {
            plan.withdraw.push(index);
            // Where a trigger was written since it was given, its node waits for that, and claims nothing else.
            if late && approval.when == rules.when {
                plan.unclaimed.push(index);
            }
        }
    }
    let takes = |index: usize| {
        let (node, stand) = (&nodes[index], stands[index]);
        slot(node, stand, surges, rules)
    };
    // An approval that is withdrawn from a node that is left out by now may be claimed before that.
    let is_given = |i: usize| nodes[i].approval.is_some_and(|approval| approval.takes_slot(rules));
    plan.slots = (0..nodes.len()).filter(|i| (counts(&nodes[*i], stands[*i]) || is_given(*i)) && takes(*i)).count();
    let refused = nodes.iter().filter_map(|n| n.refused_until).filter(|at| *at > now);
    let unsure = nodes.iter().filter_map(|n| n.unreported_until).chain(refused);
    unsure.for_each(|at| earlier(&mut plan.look_again, at));
    // The budget has become smaller, or two who both believed to hold the Lease approved at once. An agent that
    // has claimed meanwhile wins, and what is withdrawn keeps its slot until it is gone.
    // A slot that is only in doubt takes back nothing.
    let is_certain = |i: &usize| counts(&nodes[*i], stands[*i]) && !is_in_doubt(&nodes[*i], stands[*i]) && takes(*i);
    let surplus = (0..nodes.len()).filter(is_certain).count().saturating_sub(budget);
    let idle = |i: &usize| {
        let waits = nodes[*i].approval.is_some_and(|approval| approval.takes_slot(rules))
            && !nodes[*i].replacing
            && stands[*i] == NodeProgress::Old(true);
        waits && !plan.withdraw.contains(i)
    };
    let withdrawn: Vec<usize> = (0..nodes.len()).rev().filter(idle).take(surplus).collect();
    plan.withdraw.extend(withdrawn);
    let mut candidates: Vec<usize> = (0..nodes.len())
        .filter(|i| {
            let node = &nodes[*i];
            let may = node.should_run && node.reachable && !node.failed && node.approval.is_none() && !node.replacing;
            may && node.able && node.is_heard() && matches!(stands[*i], NodeProgress::Old(_))
        })
        .collect();
    let kept = match &rules.step {
        Some(step) => desired.saturating_sub(step.nodes),
        None => resolve(&rules.partition, desired),
    };
    let is_staged = rules.step.as_ref().is_some_and(|step| !step.is_last);
    let is_canary = rules.canary_hold.is_some_and(|hold| !canary::are_settled(rules, hold, min_ready, nodes, now));
    plan.is_through = kept == 0 && !is_canary && !is_staged;
    plan.is_open = hold.is_none() && plan.is_through;
    standing::withdraw_surplus(rules, &Reach { kept, is_canary }, nodes, &stands, &mut plan.withdraw);
    let waits = |i: &usize| nodes[*i].waits_for_trigger() && matches!(stands[*i], NodeProgress::Old(_));
    plan.waiting = (0..nodes.len()).filter(|i| waits(i) && !plan.withdraw.contains(i)).count();
    let (installs, blocking) = first_install::plan(rules, nodes, &stands, desired, &mut plan.withdraw);
    let is_taken_back = hold.is_some() && !plan.withdraw.is_empty();
    if candidates.is_empty() && installs.is_empty() && !is_taken_back {
        let is_left = |(node, stand): &(&NodeFact<'_>, &NodeProgress)| {
            node.should_run && matches!(stand, NodeProgress::Old(_) | NodeProgress::Missing)
        };
        let left = || nodes.iter().zip(&stands).filter(is_left);
        let can = |node: &NodeFact<'_>| node.able && node.reachable && !node.failed;
        let unable = left().filter(|(node, _)| !can(node)).count();
        let starts = left().any(|(node, stand)| can(node) && *stand == NodeProgress::Missing);
        if unable > 0 && plan.slots == 0 && !starts {
            plan.held = match unable {
                1 => "1 node cannot take it".to_owned(),
                _ => format!("{unable} nodes cannot take it"),
            };
        }
        if hold.is_none() {
            plan.heed_stuck(nodes, blocking);
        }
        return plan;
    }
    if let Some(hold) = hold {
        plan.held = hold;
        return plan;
    }
    let (unreachable, all) = unreachable(nodes);
    if is_outage(rules, nodes) {
        plan.held = format!("{unreachable} of {all} nodes are unreachable");
        plan.stuck = Some((Stuck::Outage, (0..nodes.len()).filter(|i| is_away(&nodes[*i])).collect()));
        return plan;
    }
    plan.approve.extend(installs);
    if candidates.is_empty() {
        return plan;
    }
    if let Some(canary_hold) = rules.canary_hold {
        let canaries = || (0..nodes.len()).filter(|i| nodes[*i].canary && nodes[*i].belongs);
        // Nobody has tried it, and a label that is misspelt is no leave for everybody.
        if canaries().next().is_none() {
            plan.held = canary::NONE.to_owned();
            return plan;
        }
        if is_canary {
            candidates.retain(|i| nodes[*i].canary);
            let settles = |i: usize| canary::settles(&nodes[i], rules, min_ready + canary_hold);
            let last = canaries().filter_map(settles).max().filter(|at| *at > now);
            last.into_iter().for_each(|at| earlier(&mut plan.look_again, at));
            if candidates.is_empty() {
                plan.held = canary::words(&mut canaries().map(|i| &nodes[i]), rules);
                return plan;
            }
        }
    }
    let zone = if is_canary { None } else { order::within_zone(nodes, &stands, &mut candidates) };
    if let Some(zone) = zone.filter(|_| candidates.is_empty() && plan.slots == 0) {
        plan.held = format!("zone {zone} is not available yet");
    }
    order::sort(nodes, &stands, &mut candidates);
    let old = nodes.iter().zip(&stands).filter(|(n, s)| n.should_run && matches!(s, NodeProgress::Old(_))).count();
    let on_the_way = nodes
        .iter()
        .zip(&stands)
        .filter(|(n, s)| (n.approval.is_some() || n.staged) && matches!(s, NodeProgress::Old(_)))
        .count();
    let has_begun = |(n, s): &(&NodeFact<'_>, &NodeProgress)| counts(n, **s) && may_have_begun(n, **s);
    let allowed = match &rules.step {
        // Nodes that run nothing yet are no part of a step.
        Some(step) => step.nodes.saturating_sub(nodes.iter().zip(&stands).filter(has_begun).count()),
        None => old.saturating_sub(on_the_way).saturating_sub(kept),
    };
    if allowed == 0 && on_the_way == 0 && (rules.step.is_some() || plan.slots == 0) {
        plan.held = match &rules.step {
            Some(step) => step.words.clone(),
            None => format!("{kept} nodes are kept on the old revision"),
        };
    }
    for index in candidates.into_iter().take(allowed) {
        // What is unavailable already costs nothing to replace, and what waits for a trigger does not before that.
        let free = stands[index] == NodeProgress::Old(false) || rules.when.is_some();
        if free || plan.slots < budget {
            plan.slots += usize::from(!takes(index) && rules.when.is_none());
            plan.waiting += usize::from(rules.when.is_some());
            plan.approve.push(index);
        }
    }
    if plan.held.is_empty() && plan.approve.is_empty() && allowed > 0 && plan.slots >= budget {
        let taking = (0..nodes.len()).filter(|i| counts(&nodes[*i], stands[*i]) && takes(*i)).collect();
        plan.heed_stuck(nodes, taking);
    }
    plan
}

/// Whether a rollout counts a node: the daemon should run there, or did when the rollout came to it. A node that breaks
/// under the new revision gets taints, which the daemon may not tolerate.
fn counts(node: &NodeFact<'_>, stand: NodeProgress) -> bool {
    node.should_run || node.belongs && is_touched(node, stand)
}

/// Whether the rollout has come to a node: it replaces, or has the wanted revision, or had it before its report was lost.
fn is_touched(node: &NodeFact<'_>, stand: NodeProgress) -> bool {
    node.replacing || node.broken || matches!(stand, NodeProgress::New { .. } | NodeProgress::Both(_))
}

/// Whether a node is one of those that a step allows: the wanted revision is given to it or runs there, or may run there
/// because its agent has not reported yet.
fn may_have_begun(node: &NodeFact<'_>, stand: NodeProgress) -> bool {
    let is_known = matches!(stand, NodeProgress::New { .. } | NodeProgress::Both(_)) || node.is_under_way();
    is_known || node.broken || node.unreported_until.is_some()
}

/// Whether a node keeps its slot only because its agent was not heard yet, or may do so.
fn is_in_doubt(node: &NodeFact<'_>, stand: NodeProgress) -> bool {
    !node.is_heard() && matches!(stand, NodeProgress::New { .. })
}

/// A number of `desired` nodes; of a percentage, rounded up.
pub fn resolve(value: &IntOrPercent, desired: usize) -> usize {
    match value {
        IntOrPercent::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrPercent::Percent(percent) => (desired * usize::try_from(*percent).unwrap_or(0)).div_ceil(100),
    }
}

fn newest<'a>(node: &NodeFact<'a>) -> Option<&'a InstanceFact> {
    node.instances.iter().rev().find(|i| !i.ending)
}

/// Whether an instance is available: ready for `min_ready`, on a node that is ready. Without `min_ready` no clock is
/// asked, as in upstream's `IsPodAvailable`.
pub fn available(node_ready: bool, instance: &InstanceFact, min_ready: Span, now: Timestamp) -> bool {
    node_ready && instance.ready_since.is_some_and(|since| min_ready == Span::ZERO || since + min_ready <= now)
}

fn stand(
    node: &NodeFact<'_>,
    rules: &RolloutRules,
    min_ready: Span,
    now: Timestamp,
    look_again: &mut Option<Timestamp>,
) -> NodeProgress {
    let updated = |i: &InstanceFact| node.wants(rules, i.pair());
    let live = || node.instances.iter().filter(|i| !i.ending);
    let Some(newest) = newest(node) else { return NodeProgress::Missing };
    // With the wanted revision a node gives its slot back only once that is certain.
    let is_available = node.is_heard() && available(node.ready, newest, min_ready, now);
    if let Some(since) = newest.ready_since.filter(|since| *since + min_ready > now) {
        earlier(look_again, since + min_ready);
    }
    if live().any(updated) && !live().all(updated) {
        return NodeProgress::Both(is_available && updated(newest));
    }
    if !updated(newest) {
        // Of two old ones, as a surge leaves them, the agent keeps the one that serves.
        return NodeProgress::Old(live().any(|i| available(node.ready, i, min_ready, now)));
    }
    let until = newest.created + HOLD;
    let held = !rules.exact && node.approval.is_some() && until > now;
    if held {
        earlier(look_again, until);
    }
    // What still ends of the old one holds the slot, too.
    let ends = node.instances.iter().any(|i| i.ending);
    NodeProgress::New { available: is_available, released: is_available && !held && !ends }
}

/// Whether a node takes a slot of the budget.
fn slot(node: &NodeFact<'_>, stand: NodeProgress, surges: bool, rules: &RolloutRules) -> bool {
    let exact = rules.exact;
    let is_known = (node.reachable && (node.able || node.unreported_until.is_some())) || exact;
    match stand {
        // Upstream counts the nodes on which the surge is not available yet, and nothing else.
        NodeProgress::New { .. } if exact && surges => false,
        NodeProgress::Both(available) if exact && surges => !available,
        // It may be on its way to another revision, which was wanted before.
        NodeProgress::New { released, .. } => {
            let may_leave = |approval: ApprovalFact| !node.wants(rules, approval.pair()) && approval.takes_slot(rules);
            !released || node.replacing || node.approval.is_some_and(may_leave)
        }
        NodeProgress::Both(_) => true,
        _ if node.replacing || node.broken || node.approval.is_some_and(|approval| approval.takes_slot(rules)) => true,
        NodeProgress::Missing | NodeProgress::Old(false) => is_known && !surges,
        NodeProgress::Old(true) => false,
    }
}

fn earlier(at: &mut Option<Timestamp>, other: Timestamp) {
    *at = Some(at.map_or(other, |at| at.min(other)));
}

#[cfg(test)]
mod tests;
