//! How long nodes take: since when what they begin is not ready, and since when they claim.
//!
//! Owns from when the progress deadline of a node counts. Must not decide what follows when it is over.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::annotations::progress_deadline;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::rollout::ApprovalFact;
use crate::core::cluster::rollout::InstanceFact;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::UNCLAIMED;
use crate::core::cluster::snapshot::ReportedDaemon;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::snapshot::WatchedNode;
use crate::core::json::Json;
use crate::core::model::PROGRESS_DEADLINE;
use crate::core::status::State;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Basis;
use super::cut_off;
use super::reported::NodeRow;

/// The grace period in seconds where none is written, as the API server defaults it.
const GRACE: i64 = 30;
/// A longer one, in seconds, counts as this.
const LONGEST_GRACE: i64 = 86_400;

/// The progress deadline where none is written.
const DEADLINE: Span = Span::from_secs(600);

/// How long one node takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDelay {
    /// Since when the instance that it has begun, or is to begin, is not ready while its agent is alive. Time that it
    /// waited no longer counts once it has begun.
    not_ready: Option<Timestamp>,
    /// Whether it has begun: it claims it, or an instance of the wanted revision was there.
    has_begun: bool,
    /// Since when its agent is seen to claim an approval.
    claimed: Option<Timestamp>,
    /// When it took the wanted revision that is not ready there.
    took: Option<Timestamp>,
}

/// The clocks of nodes and coordinator differ by no more.
const SKEW: Span = Span::from_secs(10);

/// Within this time a new instance has to be available.
pub(super) fn deadline(daemon: &WatchedDaemon) -> Span {
    let written = daemon.daemon_set.annotations.get(PROGRESS_DEADLINE).and_then(|text| progress_deadline(text));
    written.unwrap_or(DEADLINE)
}

impl NodeDelay {
    /// When the progress deadline of what is not ready is over.
    pub(super) fn ends(&self, daemon: &WatchedDaemon) -> Option<Timestamp> {
        self.not_ready.map(|since| since + deadline(daemon))
    }

    /// When what has not begun has waited for as long as an approval waits to be claimed.
    pub(super) fn waits_until(&self) -> Option<Timestamp> {
        self.not_ready.filter(|_| !self.has_begun).map(|since| since + UNCLAIMED)
    }

    /// Whether that is over for the instance that `has_begun`, or is still to begin.
    pub(super) fn is_over(&self, daemon: &WatchedDaemon, has_begun: bool, now: Timestamp) -> bool {
        self.ends(daemon).is_some_and(|at| at <= now) && (self.has_begun || !has_begun)
    }
}

/// Whether a node has begun the wanted revision: it claims it, or has an instance of it.
pub(super) fn has_begun(daemon: &WatchedDaemon, reported: &ReportedDaemon) -> bool {
    reported.replacing.is_some_and(|(claimed, _)| claimed == daemon.wanted)
        || newest(reported).is_some_and(|newest| newest.revision == daemon.wanted)
}

/// Whether nothing runs on a node, and its agent waits: for an approval, for what holds the rollout, or for an object.
pub(super) fn waits(reported: &ReportedDaemon) -> bool {
    reported.instances.is_empty() && reported.replacing.is_none() && reported.phase == Some(State::Waiting)
}

/// Nodes where the wanted revision or nothing runs and is not ready though the agent is alive, and those that claim.
pub(super) fn plan(known: &Basis<'_>, daemon: &WatchedDaemon) -> BTreeMap<String, NodeDelay> {
    let all = known.nodes_with(daemon.key).filter_map(|row| Some((row.name.to_owned(), of(known, daemon, &row)?)));
    all.filter(|(_, delay)| *delay != NodeDelay::default()).collect()
}

/// How long a node takes in this pass; `None`: its agent does not report the daemon.
pub(super) fn of(known: &Basis<'_>, daemon: &WatchedDaemon, row: &NodeRow<'_>) -> Option<NodeDelay> {
    let reported = row.reported.filter(|reported| reported.uid.is_none_or(|uid| uid == daemon.uid_name))?;
    let before = before(known, daemon, row.name);
    // A clock that was set back makes none of them wait longer.
    let since = |before: Option<Timestamp>| before.filter(|since| *since <= known.now).unwrap_or(known.now);
    let newest = newest(reported);
    let is_begun = has_begun(daemon, reported);
    let node = row.entry.node.as_ref().filter(|node| node.reachable && daemon.belongs(row.entry));
    let is_ready = node.is_some_and(|node| node.ready) && newest.is_some_and(|newest| newest.ready_since.is_some());
    let is_alive = matches!(row.agent.liveness, AgentLiveness::Alive | AgentLiveness::NoLease);
    let is_late_yet = node.is_some() && is_alive && (is_begun || newest.is_none()) && !is_ready;
    let claimed = reported.replacing.map(|_| since(before.claimed));
    let made = newest.filter(|newest| newest.revision == daemon.wanted).map(|newest| newest.created);
    let goes_on = is_begun || newest.is_none() && !waits(reported);
    let took = [before.took, claimed.filter(|_| is_begun), made].into_iter().flatten().min().filter(|_| goes_on);
    // An instance that is made anew gets no more time.
    let has_begun = is_late_yet && (is_begun || before.has_begun && !waits(reported));
    let before = before.not_ready.filter(|_| before.has_begun == has_begun);
    let is_apart = || node.zip(took).is_some_and(|(node, took)| breaks_apart(known, daemon, node, took));
    let ends_in_time = || claimed.is_some_and(|at| known.now < at + ending(daemon, &reported.instances));
    let counts = is_late_yet && (before.is_some() || !is_apart()) && !ends_in_time();
    Some(NodeDelay {
        not_ready: counts.then(|| since(before)),
        has_begun: counts && has_begun,
        claimed,
        took: took.filter(|_| !is_ready),
    })
}

/// Whether a Node is not Ready for a reason of its own: since before it took the revision, or since long after.
fn breaks_apart(known: &Basis<'_>, daemon: &WatchedDaemon, node: &WatchedNode, took: Timestamp) -> bool {
    let since = cut_off::not_ready_since(known, daemon, node).unwrap_or(known.now);
    !node.ready && (since + SKEW < took || since >= took + deadline(daemon))
}

/// What the kubelet takes beyond a pod's grace period to end it.
const ENDING: Span = Span::from_secs(30);

/// How long an old instance may take to end before the new one begins: that is no part of the new one's deadline.
pub(super) fn ending(daemon: &WatchedDaemon, instances: &[InstanceFact]) -> Span {
    let spec = daemon.daemon_set.template.at("spec");
    let grace = spec.and_then(|spec| spec.at("terminationGracePeriodSeconds")).and_then(Value::as_i64).unwrap_or(GRACE);
    match instances.iter().all(|instance| instance.ending) && !instances.is_empty() {
        true => Span::from_secs(grace.clamp(0, LONGEST_GRACE)) + ENDING,
        false => Span::ZERO,
    }
}

/// When an older instance that ends is late: the wanted one has been ready for the progress deadline by then.
pub(super) fn old_ends(daemon: &WatchedDaemon, reported: &ReportedDaemon) -> Option<Timestamp> {
    let newest = newest(reported).filter(|newest| newest.revision == daemon.wanted)?;
    let ends = reported.instances.iter().any(|instance| instance.ending);
    newest.ready_since.filter(|_| ends).map(|since| since + deadline(daemon))
}

fn newest(reported: &ReportedDaemon) -> Option<&InstanceFact> {
    reported.instances.iter().rev().find(|instance| !instance.ending)
}

/// What the last pass knew of a node.
fn before(known: &Basis<'_>, daemon: &WatchedDaemon, node: &str) -> NodeDelay {
    known.of_it(&known.state.delays, daemon).and_then(|of| of.get(node)).copied().unwrap_or_default()
}

/// When a node has claimed the approval that it has. One that waits for a trigger may have been given long before.
pub(super) fn claimed_at(known: &Basis<'_>, daemon: &WatchedDaemon, (node, given): (&str, ApprovalFact)) -> Timestamp {
    match given.when {
        None => given.at,
        Some(_) => before(known, daemon, node).claimed.filter(|at| *at <= known.now).unwrap_or(known.now),
    }
}

/// When a node that has claimed the wanted revision, and still has the old instance, is late.
pub(super) fn claim_ends(known: &Basis<'_>, daemon: &WatchedDaemon, node: &NodeFact<'_>) -> Option<Timestamp> {
    let claimed = node.approval.filter(|given| node.replacing && given.revision == daemon.wanted)?;
    Some(claimed_at(known, daemon, (node.name, claimed)) + deadline(daemon) + ending(daemon, node.instances))
}
