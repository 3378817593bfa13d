//! The gates of pods that start after others (`daemonlet.dev/after`).
//!
//! Owns which of them are closed, how long each may stay so, and what is done when the agent's process has ended. Must
//! not judge.

use std::collections::BTreeMap;
use std::path::Path;

use daemonlet::simulation::Disk;
use daemonlet::simulation::Simulation;

use super::kubelet::Manifest;
use super::kubelet::PROCESS;
use super::kubelet::is_closed;
use super::node::KUBELET;
use super::node::Node;
use super::node::RUN;

/// How long a gate may be closed: `daemonlet.dev/after-timeout`, and a while.
const LONGEST: i64 = 135_000;
/// The same for one that an earlier process closed, from the start of another.
const AT_START: i64 = 10_000;

/// Gates that are closed, by the UIDs of their pods: how long they may stay so, in time in which nothing stands in the
/// agent's way.
#[derive(Default)]
pub(crate) struct ClosedGates(BTreeMap<String, i64>);

impl ClosedGates {
    /// `passed` milliseconds have passed that count. Gives a pod whose gate should be open.
    pub(crate) fn pass<'a>(
        &mut self,
        node: &Node,
        manifests: impl Iterator<Item = &'a Manifest>,
        passed: i64,
    ) -> Option<&'a Manifest> {
        let closed: Vec<&Manifest> =
            manifests.filter(|manifest| is_closed(&node.disk, Path::new(KUBELET), manifest)).collect();
        self.0.retain(|uid, _| closed.iter().any(|manifest| manifest.uid == *uid));
        closed.into_iter().find(|manifest| {
            let left = self.0.entry(manifest.uid.clone()).or_insert(LONGEST);
            *left -= passed;
            *left < 0
        })
    }

    /// A process of the agent has ended. Gives a gate that its unit has left closed. What the next one cannot open, because
    /// the disk takes nothing, waits on.
    pub(crate) fn process_ended(&mut self, node: &Node) -> Option<&String> {
        if node.has_kubelet_started() && !node.takes_no_data() {
            self.0.values_mut().for_each(|left| *left = AT_START.min(*left));
        }
        let opens = node.has_unit && node.is_clear() && !node.forgets_gates;
        self.0.keys().next().filter(|_| opens)
    }

    /// The agent's times are others.
    pub(crate) fn wait_anew(&mut self) {
        self.0.clear();
    }
}

impl Node {
    /// The unit's `ExecStopPost`, in lives in which the agent has a unit.
    pub(crate) fn open_gates(&self) {
        if self.has_unit {
            self.effects.lock().unwrap().left = None;
            let _ = Simulation::open_gates(self.disk.clone(), Path::new(RUN));
        }
    }

    fn has_kubelet_started(&self) -> bool {
        (&*self.disk as &dyn Disk).text(PROCESS).is_ok()
    }
}
