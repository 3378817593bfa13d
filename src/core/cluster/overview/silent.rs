//! Which agents do not renew their Leases any longer, for a reader that lists them once.
//!
//! Owns how far a Lease may be behind: the reader's own clock does not count, and no node's clock counts for others.
//! Must not decide rollouts: the coordinator watches for longer ([`crate::core::cluster::liveness`]).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

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
    /// Takes the agents' Leases. `coordinator`: when the coordinator last renewed its own, if it still does. An agent is
    /// silent if its Lease is further behind that than a live agent's can be; without a coordinator, behind the middle one
    /// of all.
    pub fn take_leases(&mut self, leases: &[Value], coordinator: Option<Timestamp>) {
        let renewed = |lease: &Value| lease.str_at(["spec", "renewTime"]).parse::<Timestamp>().ok();
        let leases = leases.iter().filter_map(|lease| Some((lease.str_at(["metadata", "name"]), renewed(lease)?)));
        let leases: BTreeMap<&str, Timestamp> = leases.collect();
        let mut renewals: Vec<Timestamp> = leases.values().copied().collect();
        renewals.sort_unstable();
        let Some(now) = coordinator.or(renewals.get(renewals.len() / 2).copied()) else { return };
        for (name, node) in &mut self.nodes {
            let renewed = leases.get(name.as_str()).copied();
            node.silent_since = renewed.filter(|renewed| now - *renewed > STALE + SKEW);
        }
    }

    /// The mirror pods of the newest instances on the Ready nodes of silent agents: these say who is ready there. One of
    /// each node comes before the second of any.
    pub fn mirror_pods(&self) -> Vec<MirrorPodLookup> {
        let silent = self.nodes.values().filter(|node| node.silent_since.is_some() && node.ready);
        let pods = silent.flat_map(|node| {
            let daemons = node.report.iter().flat_map(|report| &report.daemons);
            let pods: BTreeSet<ObjectKey> = daemons
                .filter_map(|daemon| {
                    let newest = daemon.instances.iter().rev().find(|instance| !instance.ending)?;
                    // The node writes its report: a text that is not a name must not become part of a path.
                    let is_name = dns::label(&daemon.namespace).is_none() && dns::subdomain(&newest.pod).is_none();
                    is_name.then(|| ObjectKey::new(&daemon.namespace, &newest.pod))
                })
                .collect();
            let lookup = |pod| MirrorPodLookup { node: node.view.name.clone(), pod };
            pods.into_iter().map(lookup).enumerate()
        });
        let mut pods: Vec<(usize, MirrorPodLookup)> = pods.collect();
        pods.sort_by_key(|(turn, _)| *turn);
        pods.into_iter().map(|(_, lookup)| lookup).collect()
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
