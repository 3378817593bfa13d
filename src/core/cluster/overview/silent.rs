//! Which agents have stopped to renew their Leases, for a reader who looks once.
//!
//! Owns how far a Lease may be behind the newest one; the reader's own clock says nothing. Must not be what a rollout is
//! decided by: the coordinator watches for longer ([`crate::core::cluster::liveness`]).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::cluster::liveness::MirrorPodLookup;
use crate::core::cluster::liveness::STALE;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::json::is_condition_true;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::ClusterOverview;
use super::OverviewNode;

/// Clocks of nodes differ by less than this.
const SKEW: Span = Span::from_secs(30);

impl ClusterOverview {
    /// Takes the agents' Leases. An agent whose Lease is further behind the newest one than a live agent's can be, is
    /// silent.
    pub fn take_leases(&mut self, leases: &[Value]) {
        let renewed = |lease: &Value| lease.str_at(["spec", "renewTime"]).parse::<Timestamp>().ok();
        let leases = leases.iter().filter_map(|lease| Some((lease.str_at(["metadata", "name"]), renewed(lease)?)));
        let leases: BTreeMap<&str, Timestamp> = leases.collect();
        let coordinator = self.coordinator.renewed.parse().ok();
        let Some(newest) = leases.values().copied().chain(coordinator).max() else { return };
        for (name, node) in &mut self.nodes {
            let renewed = leases.get(name.as_str()).copied();
            node.silent_since = renewed.filter(|renewed| newest - *renewed > STALE + SKEW);
        }
    }

    /// The mirror pods of the newest instances on the nodes of silent agents: these say who is ready there.
    pub fn mirror_pods(&self) -> Vec<MirrorPodLookup> {
        let silent = self.nodes.values().filter(|node| node.silent_since.is_some());
        let pods = silent.flat_map(|node| {
            let daemons = node.report.iter().flat_map(|report| &report.daemons);
            daemons.filter_map(|daemon| {
                let newest = daemon.instances.iter().rev().find(|instance| !instance.ending)?;
                // A report is its node's word: what is no name makes no path.
                let is_name = dns::label(&daemon.namespace).is_none() && dns::subdomain(&newest.pod).is_none();
                let pod = ObjectKey::new(&daemon.namespace, &newest.pod);
                is_name.then(|| MirrorPodLookup { node: node.view.name.clone(), pod })
            })
        });
        pods.collect()
    }

    /// Takes a mirror pod as the API server has it; one that is not taken is not ready.
    pub fn take_mirror_pod(&mut self, lookup: MirrorPodLookup, pod: &Value) {
        if is_condition_true(pod, "Ready") && pod.str_at(["spec", "nodeName"]) == lookup.node {
            self.ready_mirror_pods.insert(lookup);
        }
    }

    /// Whether the mirror pod of this name is ready on the node of a silent agent.
    pub(super) fn is_mirror_pod_ready(&self, node: &OverviewNode, namespace: &str, pod: &str) -> bool {
        let lookup = MirrorPodLookup { node: node.view.name.clone(), pod: ObjectKey::new(namespace, pod) };
        self.ready_mirror_pods.contains(&lookup)
    }
}
