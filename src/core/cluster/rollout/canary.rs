//! The canary phase: the nodes that go first, and how long the others wait for them.
//!
//! Owns when it is over, and its words. Must not choose nodes.

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::NodeFact;
use super::RolloutRules;
use super::newest;
use super::taken::names;

/// Why no node goes first.
pub(super) const NONE: &str =
    "the canary selector (annotation daemonlet.dev/canary) selects no node that the daemon is for";

/// Why the canary phase goes on, with the nodes that it waits for.
pub(super) fn words(canaries: &mut dyn Iterator<Item = &NodeFact<'_>>, rules: &RolloutRules) -> String {
    let waits = |n: &&NodeFact<'_>| settles(n, rules, Span::ZERO).is_none();
    let waiting: Vec<&str> = canaries.filter(waits).map(|n| n.name).collect();
    match waiting.is_empty() {
        true => "the canary nodes have to be available for a while".to_owned(),
        false => format!("the canary nodes have to be available for a while, and are not: {}", names(&waiting)),
    }
}

/// When a canary node will have had the wanted revision for long enough, if it is on the way there.
pub(super) fn settles(node: &NodeFact<'_>, rules: &RolloutRules, hold: Span) -> Option<Timestamp> {
    let since = newest(node).filter(|n| node.wants(rules, n.pair())).and_then(|n| n.ready_since);
    since.filter(|_| node.ready).map(|since| since + hold)
}

/// Whether there are canary nodes, and all of them have had the wanted revision for long enough. Who promotes it does not
/// wait for those that cannot take it.
pub(super) fn are_settled(
    rules: &RolloutRules,
    hold: Span,
    min_ready: Span,
    nodes: &[NodeFact<'_>],
    now: Timestamp,
) -> bool {
    let mut canaries = nodes.iter().filter(|n| n.canary && n.belongs).peekable();
    let is_settled = |n: &NodeFact<'_>| n.is_heard() && settles(n, rules, min_ready + hold).is_some_and(|at| at <= now);
    let is_passed = |n: &NodeFact<'_>| rules.is_canary_promoted && (n.failed || !n.able || !n.reachable);
    canaries.peek().is_some() && canaries.all(|n| is_settled(n) || is_passed(n))
}
