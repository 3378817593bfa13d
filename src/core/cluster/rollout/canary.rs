//! The canary phase: the nodes that go first, and how long the others wait for them.
//!
//! Owns when it is over. Must not choose nodes.

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::NodeFact;
use super::RolloutPlan;
use super::RolloutRules;
use super::Standstill;
use super::earlier;
use super::progress::RolloutView;
use super::withdraw::Reach;

/// Why no node goes first.
pub const NONE: &str = "the canary selector (annotation daemonlet.dev/canary) selects no node that the daemon is for";

/// Leaves of the `candidates` the canary nodes while these alone have it. Where none are left, and none of them is on its way,
/// the plan says why.
pub(super) fn limit(view: &RolloutView<'_>, reach: &Reach, candidates: &mut Vec<usize>, plan: &mut RolloutPlan) {
    let Some(hold) = view.rules.canary_hold else { return };
    // No canary node has tried it, and a misspelt label must not release it to all nodes.
    if is_missing(view) {
        candidates.retain(|index| view.returns(*index));
        if candidates.is_empty() {
            plan.held = Some(Standstill::NoCanary { also: None });
        }
        return;
    }
    if !reach.is_canary {
        return;
    }
    candidates.retain(|index| view.nodes[*index].canary || view.returns(*index));
    let last = canaries(view).filter_map(|node| done_at(node, view.rules, view.min_ready + hold)).max();
    last.into_iter().filter(|at| *at > view.now).for_each(|at| earlier(&mut plan.look_again, at));
    if candidates.is_empty() && view.all(|i| view.nodes[i].canary && view.is_moving(i)).next().is_none() {
        plan.held = Some(Standstill::Canary { waiting: waiting(view) });
    }
}

/// Whether canary nodes are to go first, and there are none.
pub(super) fn is_missing(view: &RolloutView<'_>) -> bool {
    view.rules.canary_hold.is_some() && canaries(view).next().is_none() && !needs_none(view)
}

/// Whether no canary node is asked for any more: an operator has promoted the revision, or its canary phase was over before
/// the last of them went.
fn needs_none(view: &RolloutView<'_>) -> bool {
    view.rules.is_canary_promoted || view.rules.was_open && view.updated() > 0
}

fn canaries<'a>(view: &RolloutView<'a>) -> impl Iterator<Item = &'a NodeFact<'a>> {
    view.nodes.iter().filter(|node| node.canary && node.belongs)
}

/// The nodes that the canary phase waits for.
fn waiting(view: &RolloutView<'_>) -> Vec<String> {
    let waits = |n: &&NodeFact<'_>| done_at(n, view.rules, Span::ZERO).is_none();
    canaries(view).filter(waits).map(|n| n.name.to_owned()).collect()
}

/// When a canary node will have had the wanted revision for long enough, if it is on the way there.
fn done_at(node: &NodeFact<'_>, rules: &RolloutRules, hold: Span) -> Option<Timestamp> {
    let since = node.newest().filter(|n| node.wants(rules, n.pair())).and_then(|n| n.ready_since);
    since.filter(|_| node.ready).map(|since| since + hold)
}

/// Whether there are canary nodes, and all of them have had the wanted revision for long enough. A promotion does not
/// wait for those that cannot take it. A node that starts nothing before the rollout is open never counts.
pub(super) fn is_over(view: &RolloutView<'_>, hold: Span) -> bool {
    let (rules, hold) = (view.rules, view.min_ready + hold);
    let is_done = |n: &NodeFact<'_>| n.is_liveness_known() && done_at(n, rules, hold).is_some_and(|at| at <= view.now);
    let is_passed =
        |n: &NodeFact<'_>| n.awaits_it() || rules.is_canary_promoted && (n.failed || !n.able || !n.reachable);
    // A canary node has tried the revision, or an operator has promoted it without.
    let is_tried = match canaries(view).next() {
        Some(_) => canaries(view).any(|n| !n.awaits_it() || rules.is_canary_promoted),
        None => needs_none(view),
    };
    is_tried && canaries(view).all(|n| is_done(n) || is_passed(n))
}
