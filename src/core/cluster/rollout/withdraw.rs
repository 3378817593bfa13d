//! Approvals that are taken back before they are claimed.
//!
//! Owns which those are: void, unclaimed for too long, done, over the budget, or beyond what the rollout reaches now.
//! Must not give any. A node that replaces already finishes: a claimed approval stays.

use std::collections::BTreeSet;

use super::NodeFact;
use super::RolloutPlan;
use super::UNCLAIMED;
use super::canary;
use super::earlier;
use super::is_outage;
use super::order;
use super::progress::NodeProgress;
use super::progress::RolloutView;
use super::resolve;

/// These indices of nodes, to look them up: of many nodes many may be withdrawn at once.
pub(super) fn indices(withdrawn: &[usize]) -> BTreeSet<usize> {
    withdrawn.iter().copied().collect()
}

/// How far a rollout goes now.
pub(super) struct Reach {
    /// How many nodes stay on the old revision.
    pub(super) kept: usize,
    /// Whether the canary nodes alone have it.
    pub(super) is_canary: bool,
    /// Whether it is in its last phase: once all nodes have the wanted revision, that is released.
    pub(super) is_whole: bool,
}

impl Reach {
    pub(super) fn of(view: &RolloutView<'_>) -> Self {
        let rules = view.rules;
        let kept = match &rules.step {
            Some(step) => view.desired.saturating_sub(step.nodes),
            None => resolve(&rules.partition, view.desired),
        };
        let is_canary = rules.canary_hold.is_some_and(|hold| !canary::is_over(view, hold));
        let is_staged = rules.step.as_ref().is_some_and(|step| !step.is_last);
        Self { kept, is_canary, is_whole: kept == 0 && !is_canary && !is_staged }
    }
}

/// Withdraws approvals that are void, not claimed in time, or done.
pub(super) fn ended(view: &RolloutView<'_>, plan: &mut RolloutPlan) {
    let rules = view.rules;
    for (index, node) in view.nodes.iter().enumerate() {
        let Some(approval) = node.approval else { continue };
        // An approval was claimed if there is an instance of its revision.
        let is_timed = !node.replacing && !view.is_new(index) && !approval.is_standing();
        let late = is_timed && view.now - approval.at >= UNCLAIMED;
        if is_timed && !late {
            earlier(&mut plan.look_again, approval.at + UNCLAIMED);
        }
        let done = matches!(view.progress[index], NodeProgress::New { released: true, .. });
        // An API server with an older resource drops what an approval waits for.
        let is_other = view.is_old(index) && approval.is_standing() && approval.when != rules.when;
        let is_void = !node.wants(rules, approval.pair()) || is_other || rules.hold.is_some();
        let lacks = node.lacks && view.is_old(index);
        let void = is_void || node.failed || lacks || !view.counts(index);
        if (void || late || done) && !node.replacing {
            plan.withdraw.push(index);
            // If a trigger was written after it was given, its node waits for that, and claims nothing else. A first
            // instance waits for none.
            let is_first = node.live().next().is_none();
            if late && !lacks && (is_first || approval.when == rules.when) {
                plan.unclaimed.push(index);
            }
        }
    }
}

/// Withdraws what is over the budget: that has become smaller, or two coordinators that both believed they held the
/// Lease approved at once. An agent that has claimed meanwhile wins, and what is withdrawn keeps its slot until it is
/// gone. A slot that is only in doubt takes back nothing.
pub(super) fn over_budget(view: &RolloutView<'_>, plan: &mut RolloutPlan) {
    let withdrawn = indices(&plan.withdraw);
    let certain = view.all(|i| view.counts(i) && !view.is_in_doubt(i) && view.takes_slot(i)).count();
    let is_idle = |index: usize| {
        let waits = view.is_given_slot(index) && !view.nodes[index].replacing;
        waits && view.progress[index] == NodeProgress::Old(true) && !withdrawn.contains(&index)
    };
    let idle: Vec<usize> = view.all(is_idle).collect();
    plan.withdraw.extend(idle.into_iter().rev().take(certain.saturating_sub(view.budget)));
}

/// Withdraws what is beyond the reach: steps, partition, zones and canary nodes may have changed since it was given. Nor
/// does one that waits for a trigger stand on a node that is away or whose agent cannot take the revision any more: it would
/// keep the place of another in its step and its zone.
pub(super) fn beyond_reach(view: &RolloutView<'_>, reach: &Reach, withdraw: &mut Vec<usize>) {
    let withdrawn = indices(withdraw);
    let waits = |index: usize| {
        let node = &view.nodes[index];
        node.approval.is_some() && !node.replacing && view.is_old(index) && !withdrawn.contains(&index)
    };
    let waiting: Vec<usize> = view.all(waits).collect();
    let zone = if reach.is_canary { None } else { order::within_zone(view, &mut Vec::new()) };
    // After an outage, so many nodes would be given theirs anew one by one.
    let is_outage = is_outage(view.rules, view.nodes);
    let is_out = |index: &usize| {
        let node: &NodeFact<'_> = &view.nodes[*index];
        let is_elsewhere = zone.is_some() && node.zone != zone;
        // A staged node replaces its instance at its next boot, whatever is withdrawn.
        let is_unable = if node.reachable { !node.able } else { !is_outage && node.staged.is_none() };
        is_elsewhere
            || reach.is_canary && !node.canary && !view.returns(*index)
            || node.waits_for_trigger() && is_unable
    };
    let (out, rest): (Vec<usize>, Vec<usize>) = waiting.into_iter().partition(is_out);
    let is_out = indices(&out);
    let is_given = |index: usize| view.nodes[index].is_under_way() && !is_out.contains(&index);
    let surplus = match &view.rules.step {
        Some(step) => {
            let has_begun = |i: usize| view.counts(i) && !is_out.contains(&i) && (view.has_had(i) || is_given(i));
            view.all(has_begun).count().saturating_sub(step.nodes)
        }
        None => {
            let old = view.all(|i| view.nodes[i].should_run && view.is_kept(i)).count();
            let under_way = view.all(|i| view.is_kept(i) && is_given(i)).count();
            reach.kept.saturating_sub(old.saturating_sub(under_way))
        }
    };
    withdraw.extend(&out);
    withdraw.extend(rest.into_iter().filter(|i| !view.returns(*i)).rev().take(surplus));
}
