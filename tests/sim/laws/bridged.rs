//! The laws of daemons in mode `bootstrap`: the instance or the DaemonSet controller's pod runs.

use crate::bridges::Bridge;
use crate::kubelet::Manifest;
use crate::kubelet::Phase;
use crate::node::Node;

use super::Laws;
use super::WITHOUT;

/// How long both may run, in milliseconds in which nothing stands in the agent's way.
const BOTH: i64 = 60_000;

impl Laws {
    /// Neither runs nothing of it for long, nor do two.
    pub(super) fn one_is_bridged(&mut self, node: &mut Node, is_up: bool) {
        let is_served = node.is_reachable() && node.server.lock().unwrap().refusals.is_empty();
        if !is_served || node.forgets() {
            // Then an instance returns because no API server answers, or that one has ended in vain is not known: one may end once
            // more for that pod.
            node.bridges.iter_mut().for_each(|bridge| bridge.ended_for.clear());
        }
        // Without its record it may have been handed over; on a Node that is not Ready nothing starts.
        let can_know = is_served || node.is_reachable() == is_served && !node.has_lost_state;
        let counts = is_up && node.is_clear() && can_know && !node.seems_unready && self.unknown_for == 0;
        let passed = if counts { node.steady - self.checked_at } else { 0 };
        for bridge in &node.bridges {
            let runs = node.instance_runs(bridge);
            let has_pod = node.kubelet.api_pods.values().any(|pod| pod.name.starts_with(&bridge.name));
            let (nothing, both) = self.unbridged.entry(bridge.name.clone()).or_default();
            *nothing =
                if runs.is_some() || has_pod || bridge.renamed_in == Some(node.booted) { 0 } else { *nothing + passed };
            *both = if runs == Some(true) && has_pod { *both + if is_served { passed } else { 0 } } else { 0 };
            let is_wrong = (*nothing > WITHOUT, *both > BOTH);
            match is_wrong {
                (true, _) => {
                    let what = bridge.full_name();
                    return self.violate(node.steady, "a bridged daemon is never long without a pod", what);
                }
                (_, true) => {
                    return self.violate(
                        node.steady,
                        "two of a bridged daemon do not run for long",
                        bridge.full_name(),
                    );
                }
                (false, false) => {}
            }
        }
    }
}

impl Node {
    /// Whether an instance of it is there, and runs.
    fn instance_runs(&self, bridge: &Bridge) -> Option<bool> {
        let name = bridge.full_name();
        let mut pods = self.kubelet.pods.values().filter(|pod| pod.manifest.daemon == name);
        pods.find_map(|pod| match pod.phase {
            Phase::Running { .. } => Some(true),
            Phase::Starting { .. } => Some(false),
            Phase::Ending { .. } | Phase::Gone => None,
        })
    }

    /// Why the agent should not have ended this instance of a daemon in mode `bootstrap`.
    pub(super) fn end_of_bridge(&mut self, was: &Manifest) -> Option<String> {
        let (booted, forgets) = (self.booted, self.forgets() || self.has_lost_state);
        let bridge = self.bridges.iter_mut().find(|bridge| bridge.full_name() == was.daemon)?;
        if bridge.allowed > 0 {
            bridge.allowed -= 1;
            return None;
        }
        let Some(pod) = &bridge.pod else { return Some(format!("{}: there is no pod of the controller", was.name)) };
        if pod.is_bound {
            return None;
        }
        if !pod.may_end_instance {
            return Some(format!("{}: the controller's pod is not bound", was.name));
        }
        let end = (pod.uid.clone(), booted);
        if bridge.ended_for.contains(&end) && !forgets {
            return Some(format!("{}: a second time for a pod that cannot be bound", was.name));
        }
        bridge.ended_for.push(end);
        None
    }

    /// What is wrong with one in the end.
    pub(super) fn wrong_bridge(&self) -> Option<String> {
        self.bridges.iter().find_map(|bridge| {
            let runs = self.instance_runs(bridge);
            let has_pod = self.kubelet.api_pods.values().any(|pod| pod.name.starts_with(&bridge.name));
            let is_right =
                if bridge.is_handed_over_in_the_end() { runs.is_none() && has_pod } else { runs == Some(true) };
            (!is_right).then(|| format!("{}: instance {runs:?}, controller's pod {has_pod}", bridge.full_name()))
        })
    }
}
