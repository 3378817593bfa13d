//! The first instances of a DaemonSet that was never released: so many nodes at a time.
//!
//! Owns how many of them start. Must not decide whether a rollout is held.

use super::order;
use super::progress::NodeProgress;
use super::progress::RolloutView;
use super::resolve;
use super::withdraw::indices;

/// The nodes without an instance that may start one now; where there are some and none may, those that they wait for. What
/// was given to more of them than are allowed by now is withdrawn.
pub(super) fn plan(view: &RolloutView<'_>, withdraw: &mut Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let Some(most) = view.rules.first_install.as_ref().map(|most| resolve(most, view.desired).max(1)) else {
        return Default::default();
    };
    let begun = |index: usize| view.counts(index) && is_begun(view, index);
    let number = view.all(begun).count();
    let in_doubt = view.all(|i| begun(i) && view.is_in_doubt(i)).count();
    let is_missing = |index: usize| !view.nodes[index].replacing && view.progress[index] == NodeProgress::Missing;
    let withdrawn = indices(withdraw);
    let is_idle =
        |index: usize| is_missing(index) && view.nodes[index].approval.is_some() && !withdrawn.contains(&index);
    let idle: Vec<usize> = view.all(is_idle).collect();
    withdraw.extend(idle.into_iter().rev().take((number - in_doubt).saturating_sub(most)));
    let mut candidates: Vec<usize> = view.all(|i| is_missing(i) && view.may_be_approved(i)).collect();
    let are_some = !candidates.is_empty();
    order::within_zone(view, &mut candidates);
    order::sort(view, &mut candidates);
    let is_blocked = are_some && (candidates.is_empty() || number >= most);
    candidates.truncate(most.saturating_sub(number));
    (candidates, if is_blocked { view.all(begun).collect() } else { Vec::new() })
}

/// Whether a node is one of those that are counted: a start is given to it, or what it has is not available. What is available
/// and waits for its trigger is none: that may take for ever, and first instances wait for no trigger.
fn is_begun(view: &RolloutView<'_>, index: usize) -> bool {
    let node = &view.nodes[index];
    let is_on_the_way = view.is_given_slot(index) || node.replacing || node.broken;
    match view.progress[index] {
        NodeProgress::Missing => is_on_the_way || node.approval.is_some(),
        NodeProgress::Old(true) => is_on_the_way,
        NodeProgress::Old(false) => is_on_the_way || node.reachable,
        NodeProgress::New { released, .. } => !released || node.replacing,
        NodeProgress::Both(_) => true,
    }
}
