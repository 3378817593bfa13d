//! Nodes that a revision may have cut off: they are unreachable, their agent is dead or their report is lost.
//!
//! Owns which of them count as failed, or as not well. Must not decide what follows.

use crate::core::cluster::broken::NodeVerdict;
use crate::core::cluster::broken::Suspect;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::snapshot::NodeReport;
use crate::core::cluster::snapshot::ReportedDaemon;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::snapshot::WatchedNode;
use crate::core::time::Timestamp;

use super::Basis;
use super::delays::deadline;
use super::facts::is_ready;
use super::reported::AgentFact;

/// Whether a node has taken or claimed the wanted revision, is unreachable or its agent dead since, and has not reported
/// within the progress deadline that it is available: the revision may have cut it off.
pub(super) fn is_cut_off(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    reported: &ReportedDaemon,
    (name, node, agent): (&str, &WatchedNode, &AgentFact),
    claimed: Option<Timestamp>,
) -> bool {
    let newest = reported.instances.iter().rev().find(|i| !i.ending && i.revision == daemon.wanted);
    // That the old instance is ready says nothing about the claim, unless it is to run until the next boot.
    let is_shown = newest.is_some() || reported.staged.is_some();
    if node.reachable && (!agent.is_dead() || is_shown && is_ready(known, daemon, name)) {
        return false;
    }
    let deadline = deadline(daemon);
    // The agent may have died before it reported the new instance.
    let dead = known.state.liveness.dead_since(name).filter(|_| node.reachable);
    // An agent that was away for a while goes on with its claim.
    let claimed = claimed.map(|claimed| dead.map_or(claimed, |dead| dead.max(claimed)));
    let Some(took) = newest.map(|newest| newest.created).or(claimed) else { return false };
    // A node that goes away long after its update has another reason.
    let seen = suspect(known, daemon, node).and_then(|suspect| suspect.since);
    let away = seen.or_else(|| if node.reachable { dead } else { not_ready_since(known, daemon, node) });
    let was_ready = newest.is_some_and(|newest| newest.ready_since.is_some());
    // Its removal was announced while it was well: an operator or an autoscaler has taken it away.
    if was_ready && suspect(known, daemon, node).is_some_and(|suspect| suspect.is_leaving) {
        return false;
    }
    let is_soon = away.map_or(!was_ready, |away| away < took + deadline);
    is_soon && took + deadline <= known.now
}

/// Since when a node is not ready: by the condition of its Node, or, if that counts for nothing, since this coordinator saw it.
pub(super) fn not_ready_since(known: &Basis<'_>, daemon: &WatchedDaemon, node: &WatchedNode) -> Option<Timestamp> {
    let seen = || suspect(known, daemon, node)?.since;
    by_its_condition(known, node).or_else(seen)
}

/// Since when a node is not ready by the condition of its Node, on the clock of the term: that stays ahead of a wall clock that
/// was set back. `None`: the clock by which the condition was written is ahead.
pub(super) fn by_its_condition(known: &Basis<'_>, node: &WatchedNode) -> Option<Timestamp> {
    node.not_ready_since.map(|since| since + known.set_back()).filter(|since| *since <= known.now)
}

/// What was seen of a node that may have been broken by the wanted revision.
fn suspect<'a>(known: &Basis<'a>, daemon: &WatchedDaemon, node: &WatchedNode) -> Option<&'a Suspect> {
    let suspects = known.of_it(&known.state.broken, daemon).filter(|of| of.revision == daemon.hash)?;
    suspects.nodes.get(node.view.uid.as_ref()?)
}

/// Whether a node without a report was not well with the wanted revision, `current`, when it last reported.
pub(super) fn is_broken(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    current: Option<&RevisionFact>,
    (name, node): (&str, &WatchedNode),
    report: Option<&NodeReport>,
) -> bool {
    let says_nothing = report.is_none_or(|report| report.said == 0);
    let Some(current) = current.filter(|current| says_nothing && !current.is_retried(name)) else { return false };
    let is_noted = node.view.uid.as_ref().is_some_and(|uid| current.broken.has(uid));
    is_noted || suspect(known, daemon, node).is_some_and(|suspect| suspect.verdict == NodeVerdict::Broken)
}
