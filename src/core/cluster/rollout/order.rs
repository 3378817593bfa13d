//! Which nodes come next: zone by zone, and spread over racks.
//!
//! Owns the order of candidates. Must not decide how many of them are approved.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::time::Timestamp;

use super::NodeFact;
use super::progress::NodeProgress;
use super::progress::RolloutView;

/// How one zone stands.
#[derive(Default)]
struct Zone {
    /// Nodes that are on the way to the wanted revision.
    under_way: usize,
    /// Nodes that have it, or are on the way to it.
    begun: usize,
    /// Nodes that can take it and do not have it available.
    left: usize,
    /// Nodes whose old instance is not available.
    unavailable: usize,
}

/// Leaves of the `candidates` those of one zone: the one that was begun and is not done, else the one with the most
/// unavailable instances, else the first by name. Gives the zone, if there are several.
pub(super) fn within_zone<'a>(view: &RolloutView<'a>, candidates: &mut Vec<usize>) -> Option<&'a str> {
    let mut zones: BTreeMap<&str, Zone> = BTreeMap::new();
    for index in view.all(|index| view.counts(index)) {
        let node = &view.nodes[index];
        let zone = zones.entry(node.zone?).or_default();
        let is_done = matches!(view.progress[index], NodeProgress::New { available: true, .. });
        let is_given = node.approval.is_some() || node.replacing;
        zone.begun += usize::from(is_given || view.is_new(index));
        zone.under_way += usize::from(is_given);
        // One that has begun and is away may yet come back, or fails. One that runs nothing waits for something of its
        // own, and others come before those that do not take what they are given.
        let is_next = node.reachable && node.able && view.is_old(index) && !comes_last(node);
        let may_follow = !node.failed && (view.is_touched(index) || node.approval.is_some() || is_next);
        zone.left += usize::from(!is_done && may_follow);
        zone.unavailable += usize::from(view.progress[index] == NodeProgress::Old(false));
    }
    let open = zones.iter().filter(|(_, zone)| zone.left > 0);
    let rank = |zone: &Zone| (zone.under_way, zone.begun, zone.unavailable);
    let next = open.max_by_key(|(name, zone)| (rank(zone), Reverse(**name))).map(|(name, _)| *name);
    // Where only nodes are left that others come before, they are tried zone by zone, too; each has its turn.
    let later = later(view);
    let turns = candidates.iter().filter_map(|index| Some((later(&view.nodes[*index]), view.nodes[*index].zone?)));
    let next = next.or_else(|| turns.min().map(|(_, zone)| zone))?;
    candidates.retain(|index| view.nodes[*index].zone == Some(next));
    (zones.len() > 1).then_some(next)
}

/// Whether others come before a node: it has not taken what it was given.
fn comes_last(node: &NodeFact<'_>) -> bool {
    node.passed_over.is_some() || node.refused_until.is_some()
}

/// The order of the nodes that others come before: one that was not passed over comes first.
fn later(view: &RolloutView<'_>) -> impl Fn(&NodeFact<'_>) -> (Option<Timestamp>, Option<Timestamp>) + use<> {
    let are_few = view.nodes.iter().filter(|node| node.refused_until.is_some()).count() <= REFUSED;
    move |node| (node.refused_until.filter(|_| are_few), node.passed_over)
}

/// Others come before nodes whose approvals the API server refuses, if these are no more than this. If it refuses more,
/// the coordinator lacks a right, and each further node would cost another request.
const REFUSED: usize = 8;

/// Sorts the `candidates`: those that others come before last (of those whose approvals are refused, the one that is
/// tried next first; of those that did not claim theirs, the one that was given it longest ago), unavailable ones
/// first, spread over the values of the spread key, then by name. This is upstream's order but for the chance in it. Of the
/// values of the spread key that one comes first of which the fewest nodes take a slot now, then the one of which the
/// fewest have the wanted revision; nodes of zones without a candidate do not count.
pub(super) fn sort(view: &RolloutView<'_>, candidates: &mut [usize]) {
    let nodes = view.nodes;
    let later = later(view);
    let kind = |index: usize| (later(&nodes[index]), view.progress[index] != NodeProgress::Old(false));
    candidates.sort_by_key(|index| (kind(*index), nodes[*index].name));
    let zones: BTreeSet<Option<&str>> = candidates.iter().map(|index| nodes[*index].zone).collect();
    let mut taken: BTreeMap<Option<&str>, (usize, usize)> = BTreeMap::new();
    // A candidate may take a slot because nothing of it is available: each of them is counted once, when its turn comes.
    let waiting: BTreeSet<usize> = candidates.iter().copied().collect();
    let is_in_zone = |index: usize| !waiting.contains(&index) && zones.contains(&nodes[index].zone);
    for index in view.all(|index| view.counts(index) && is_in_zone(index)) {
        let (slots, begun) = taken.entry(nodes[index].spread).or_default();
        *slots += usize::from(view.takes_slot(index));
        *begun += usize::from(nodes[index].approval.is_some() || view.is_new(index));
    }
    let mut ranks = BTreeMap::new();
    for index in candidates.iter() {
        let rank = taken.entry(nodes[*index].spread).or_default();
        ranks.insert(*index, *rank);
        *rank = (rank.0 + 1, rank.1 + 1);
    }
    candidates.sort_by_key(|index| (kind(*index), ranks.get(index).copied()));
}
