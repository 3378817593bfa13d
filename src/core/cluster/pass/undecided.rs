//! DaemonSets of which nothing is decided: their definition is refused, or their history is not read yet.
//!
//! Owns their counters, and when that is reported. No revision goes, and what is remembered of them stays.

use crate::core::cluster::conditions::Undecided;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::time::Span;

use super::Basis;
use super::ClusterPlan;
use super::ObjectWrite;
use super::conflict;
use super::count;
use super::facts;
use super::status;

/// A history that has not been read for this long is reported.
const UNREAD: Span = Span::from_secs(30);

/// Reports why nothing is decided, with counters by the last definition that was not refused, where one is known.
pub(super) fn report(
    known: &Basis<'_>,
    key: &ObjectKey,
    daemon: &WatchedDaemon,
    why: Undecided<'_>,
    plan: &mut ClusterPlan,
) {
    let is_defined = !daemon.hash.is_empty() && !owners::is_gated(&daemon.daemon_set);
    let nodes = (is_defined && conflict(known, daemon, plan).is_none()).then(|| facts::nodes(known, daemon));
    let counted = nodes.filter(|nodes| !facts::are_reports_lost(known, nodes)).map(|nodes| {
        let (counted, look_again) = count(daemon, &nodes, known.now);
        plan.look(look_again);
        counted
    });
    if let Some(status) = status::undecided(daemon, why, counted.as_ref(), known.now) {
        plan.writes.push(ObjectWrite::Status { key: key.clone(), status, nodes: 0, at_once: false });
    }
    plan.carry_over(known.state, key);
}

/// Waits for the history of a DaemonSet, in which a halt may stand; reports it if that takes long.
pub(super) fn await_history(known: &Basis<'_>, key: &ObjectKey, daemon: &WatchedDaemon, plan: &mut ClusterPlan) {
    // A clock that was set back makes it wait longer once.
    let since = known.state.unread.get(key).copied().filter(|since| *since <= known.now).unwrap_or(known.now);
    plan.unread.insert(key.clone(), since);
    if since + UNREAD <= known.now {
        return report(known, key, daemon, Undecided::Unread, plan);
    }
    plan.look([since + UNREAD]);
    plan.carry_over(known.state, key);
}
