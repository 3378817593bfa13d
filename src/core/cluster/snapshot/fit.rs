//! On which nodes a DaemonSet should run, kept for each node.
//!
//! Owns what is asked of placement, and when: a pass compares the answers only.

use std::collections::BTreeMap;

use crate::core::placement;

use super::NodeEntry;
use super::WatchedDaemon;
use super::WatchedNode;

/// Whether a DaemonSet should run on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fit {
    #[default]
    No,
    /// Only taints that mark a node as not well keep it away.
    RunsWhenWell,
    Runs,
}

impl WatchedDaemon {
    pub(in crate::core::cluster) fn should_run(&self, entry: &NodeEntry) -> bool {
        self.fit(entry) == Fit::Runs
    }

    /// Whether it should run on the node of `entry` as soon as that is well: a node that is not ready or unreachable has
    /// taints, and without a toleration the daemon should not run there until they go.
    pub(in crate::core::cluster) fn belongs(&self, entry: &NodeEntry) -> bool {
        self.fit(entry) != Fit::No
    }

    fn fit(&self, entry: &NodeEntry) -> Fit {
        self.placements.get(entry.index).copied().unwrap_or_default()
    }

    pub(super) fn place(&mut self, index: usize, node: &WatchedNode) {
        if self.placements.len() <= index {
            self.placements.resize(index + 1, Fit::No);
        }
        let (view, selector) = (&node.view, self.selector.as_deref());
        self.placements[index] = if placement::should_run(view, &self.daemon_set, selector).should_run {
            Fit::Runs
        } else if placement::belongs(view, &self.daemon_set, selector) {
            Fit::RunsWhenWell
        } else {
            Fit::No
        };
    }

    pub(super) fn place_everywhere(&mut self, nodes: &BTreeMap<String, NodeEntry>) {
        for entry in nodes.values() {
            entry.node.iter().for_each(|node| self.place(entry.index, node));
        }
    }
}
