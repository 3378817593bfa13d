//! Nodes on which an older revision than the wanted one is not available: no deadline of the rollout counts there.
//!
//! Owns since when. Must not decide what follows from it.

use std::collections::BTreeMap;

use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Basis;
use super::facts::has_wanted;

/// A pod that starts again is not available for some time.
const UNAVAILABLE: Span = Span::from_secs(30);

/// Nodes that have an older revision which is not ready, and since when.
pub(super) fn unavailable(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
) -> BTreeMap<String, Timestamp> {
    let before = known.of_it(&known.state.older_unavailable, daemon);
    // A clock that was set back makes none of them wait longer.
    let since = |name: &str| before.and_then(|before| before.get(name)).copied().filter(|since| *since <= known.now);
    let found = facts.iter().filter(|node| is_unavailable(daemon, node));
    found.map(|node| (node.name.to_owned(), since(node.name).unwrap_or(known.now))).collect()
}

/// What `node` runs is another revision, is not ready, and is not being replaced. Its agent and its Node are well.
fn is_unavailable(daemon: &WatchedDaemon, node: &NodeFact<'_>) -> bool {
    let mut stay = node.instances.iter().filter(|instance| !instance.ending).peekable();
    let is_well = node.ready && node.agent != AgentLiveness::Dead && node.is_liveness_known();
    let runs_older = node.should_run && !node.replacing && stay.peek().is_some() && !has_wanted(daemon, node);
    is_well && runs_older && stay.all(|instance| instance.ready_since.is_none())
}

/// When each of them counts.
pub(super) fn due(since: &BTreeMap<String, Timestamp>) -> impl Iterator<Item = Timestamp> {
    since.values().map(|since| *since + UNAVAILABLE)
}

/// Those that have been so for long enough.
pub(super) fn lasting<'a>(known: &Basis<'a>, daemon: &WatchedDaemon, facts: &[NodeFact<'a>]) -> Vec<&'a str> {
    let before = known.of_it(&known.state.older_unavailable, daemon);
    let lasts =
        |name: &str| before.and_then(|before| before.get(name)).is_some_and(|at| *at + UNAVAILABLE <= known.now);
    facts.iter().filter(|node| is_unavailable(daemon, node) && lasts(node.name)).map(|node| node.name).collect()
}
