//! What the agents say, by daemon.
//!
//! Owns the index of one pass, and when a DaemonSet is let go.

use std::collections::BTreeMap;

use crate::core::cluster::names::Name;
use crate::core::cluster::rollout::UNCLAIMED;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::NodeEntry;
use crate::core::cluster::snapshot::NodeReport;
use crate::core::cluster::snapshot::Told;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;

use super::Basis;

impl<'a> Basis<'a> {
    /// What is remembered of a DaemonSet: nothing of a former one of the same name.
    pub(super) fn of_it<T>(&self, memory: &'a BTreeMap<ObjectKey, T>, daemon: &WatchedDaemon) -> Option<&'a T> {
        let key = &daemon.daemon_set.key;
        let is_it = self.state.decided.get(key).is_none_or(|uid| *uid == daemon.uid);
        memory.get(key).filter(|_| is_it)
    }

    /// Every node, with what its agent says of a daemon.
    pub(super) fn nodes_with(
        &self,
        daemon: Name,
    ) -> impl Iterator<Item = (&'a String, &'a NodeEntry, Option<&'a Told>)> {
        let told = self.told.get(&daemon).into_iter().flatten().copied();
        self.view.nodes.iter().zip(told.chain(std::iter::repeat(None))).map(|((name, entry), told)| (name, entry, told))
    }
}

/// What the agents say, by daemon: each in the order of the view's nodes. A pass that looks into every report for every
/// question spends most of its time waiting for memory.
pub(super) fn by_daemon(view: &ClusterSnapshot) -> BTreeMap<Name, Vec<Option<&Told>>> {
    let unreported = |daemon: &WatchedDaemon| (daemon.key, vec![None; view.nodes.len()]);
    let mut all: BTreeMap<Name, Vec<Option<&Told>>> = view.daemons.values().map(unreported).collect();
    for (number, entry) in view.nodes.values().enumerate() {
        for (daemon, told) in entry.report.iter().flat_map(NodeReport::all_told) {
            let slot = all.get_mut(&daemon).and_then(|of_it| of_it.get_mut(number));
            slot.into_iter().for_each(|slot| *slot = Some(told));
        }
    }
    all
}

/// Whether it is certain that no agent runs the DaemonSet in place of the stock controller any more: its label says so,
/// or the agent of each node that has a live one reports, and none runs it. Where reports are missing for a short time, they
/// may only be late.
pub(super) fn is_let_go(known: &Basis<'_>, daemon: &WatchedDaemon) -> bool {
    let runs_elsewhere = |(_, entry, told): (_, &NodeEntry, Option<&Told>)| {
        entry.report.as_ref().is_some_and(|r| r.said != 0) && told.is_none_or(|told| !told.is_static)
    };
    let has_agent = |(name, entry, _): &(&String, &NodeEntry, Option<&Told>)| {
        let since = known.state.unreported.get(*name);
        let is_late = entry.report.is_some() || since.is_none_or(|since| *since + UNCLAIMED > known.now);
        entry.node.is_some() && is_late && !known.dead.contains(name.as_str())
    };
    let mut nodes = known.nodes_with(daemon.key).filter(has_agent).peekable();
    daemon.daemon_set.mode_label().is_some() || nodes.peek().is_some() && nodes.all(runs_elsewhere)
}
