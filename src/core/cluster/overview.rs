//! The cluster as `kubectl daemonlet` shows it: each DaemonSet's rollout, and each node's part in it.
//!
//! Owns the joining of DaemonSets, Nodes and what agents report. Must not send requests.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::core::annotations::is_paused;
use crate::core::cluster::conditions;
use crate::core::cluster::liveness::MirrorPodLookup;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::InstanceReport;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::released::HALTED;
use crate::core::field_filter::is_too_large;
use crate::core::identity::template_hash;
use crate::core::json::Json;
use crate::core::json::is_condition_true;
use crate::core::model::Lookup;
use crate::core::model::Mode;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::node;
use crate::core::placement;
use crate::core::placement::NamespaceSelector;
use crate::core::placement::Placement;
use crate::core::status::LeftAlone;
use crate::core::status::State;
use crate::core::time::Timestamp;

mod daemon;
mod leader;
mod left_alone;
mod reason;
mod silent;

pub use daemon::Daemon;
pub use leader::CANNOT_LIST;
pub use leader::Leader;
use reason::reason;
use reason::silence;

/// The version of the JSON schema of [`Overview`].
pub const SCHEMA_VERSION: u32 = 1;
/// So much of a DaemonSet is kept, in bytes as [`Daemon::weight`] counts: ten times what those have that select most.
const MOST_KEPT: usize = 256 << 10;

/// A node of the cluster.
#[derive(Clone, Debug)]
pub struct OverviewNode {
    /// As placement sees it.
    pub view: NodeView,
    pub ready: bool,
    /// What its agent says, daemons in the order of their names; none: it has no agent.
    pub report: Option<Status>,
    /// What the coordinator has approved there.
    pub approvals: Vec<Approval>,
    /// When its agent last renewed its Lease, if it does not any longer: what it says is as old.
    pub silent_since: Option<Timestamp>,
}

/// What was listed.
#[derive(Clone, Debug, Default)]
pub struct ClusterOverview {
    /// The nodes, by name.
    pub nodes: BTreeMap<String, OverviewNode>,
    /// The DaemonSets.
    pub daemons: BTreeMap<ObjectKey, Daemon>,
    /// Those that are not among them, because they are too large.
    pub too_large: Vec<ObjectKey>,
    /// Who coordinates.
    pub coordinator: Leader,
    /// Mirror pods on nodes of silent agents that are ready.
    ready_mirror_pods: BTreeSet<MirrorPodLookup>,
    /// The node selectors of namespaces, as far as these could be listed.
    selectors: BTreeMap<String, NamespaceSelector>,
}

/// Everything, for people and as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Who coordinates.
    pub coordinator: Leader,
    /// The DaemonSets that agents run, by namespace and name.
    pub daemon_sets: Vec<Rollout>,
    /// Those that no agent runs because their mode label has a value that is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
}

/// One DaemonSet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    pub namespace: String,
    pub name: String,
    /// Whether the API has it; else agents know it from their folders.
    pub in_api: bool,
    /// The wanted revision; empty if only folders say so, each for its node.
    pub revision: String,
    pub paused: bool,
    /// Why its rollout stands still, as the coordinator says; empty: it does not.
    pub held: String,
    /// Whether that is the halt, and nothing else.
    #[serde(skip)]
    pub is_held_by_halt: bool,
    /// Why the rollout of the wanted revision is halted; empty: it is not.
    pub halted: String,
    /// What is wrong, as the coordinator says; empty: nothing.
    pub degraded: String,
    /// The hash of the released revision; empty: none is.
    pub released: String,
    /// Nodes that are to run it, or still do.
    pub desired: usize,
    /// Of these, those with an instance of the wanted revision.
    pub updated: usize,
    /// Of the updated, those that are ready.
    pub updated_ready: usize,
    /// Of all, those that are ready.
    pub ready: usize,
    /// Each node.
    pub nodes: Vec<DaemonOnNode>,
}

/// One DaemonSet on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonOnNode {
    pub node: String,
    /// What the agent says that it is doing; none: there is no agent, or it does not know of it.
    pub state: Option<State>,
    /// The revision that runs; empty: none.
    pub revision: String,
    /// The mirror pod's name; empty: none.
    pub pod: String,
    /// Whether an instance is ready, on a node that is.
    pub ready: bool,
    /// Whether the newest instance is of the wanted revision, and the node claims no other.
    pub updated: bool,
    /// Whether its agent does not renew its Lease any longer: all but `ready` is then what it last said.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
    /// Why it is not as it should be, in one line; empty: it is.
    pub reason: String,
}

impl DaemonOnNode {
    /// The state as a table shows it.
    pub fn word(&self) -> &'static str {
        self.state.map_or("missing", State::as_str)
    }

    /// Whether the DaemonSet controller's pod is there instead, as it should be (`bootstrap`).
    pub fn stands_by(&self) -> bool {
        self.state == Some(State::StandingBy)
    }

    /// Whether an operator has to look at it.
    pub fn is_bad(&self) -> bool {
        self.is_silent || self.state.is_none_or(State::is_bad)
    }
}

impl ClusterOverview {
    /// From objects as the API has them: Nodes, DaemonSets, NodeDaemons, Namespaces. What cannot be understood
    /// is left out.
    pub fn new(nodes: &[Value], daemon_sets: &[Value], reports: &[Value], namespaces: &[Value]) -> Self {
        let name = |value: &Value| value.str_at(["metadata", "name"]).to_owned();
        let mut reported: BTreeMap<String, (Status, Spec)> = reports
            .iter()
            .map(|report| {
                let part = |name: &str| report.get(name).cloned().unwrap_or_default();
                let mut status: Status = serde_json::from_value(part("status")).unwrap_or_default();
                status.daemons.sort_by(|a, b| named(a).cmp(&named(b)));
                (name(report), (status, serde_json::from_value(part("spec")).unwrap_or_default()))
            })
            .collect();
        let nodes = nodes.iter().filter_map(|value| {
            let view = node::view(value).ok()?;
            let ready = is_condition_true(value, "Ready");
            let (report, spec) = reported.remove(&view.name).unzip();
            let approvals = spec.map(|spec: Spec| spec.approvals).unwrap_or_default();
            Some((view.name.clone(), OverviewNode { report, approvals, ready, view, silent_since: None }))
        });
        let nodes = nodes.collect();
        let selector = |namespace: &Value| {
            let name = name(namespace);
            Some((name.clone(), NamespaceSelector::of(&name, Lookup::Present(namespace), "")?))
        };
        let selectors = namespaces.iter().filter_map(selector).collect();
        let mut cluster = Self { nodes, selectors, ..Self::default() };
        daemon_sets.iter().for_each(|object| cluster.add(object.clone()));
        cluster
    }

    /// Adds a DaemonSet as the API has it. Of its template no more is kept than what placement reads.
    pub fn add(&mut self, object: Value) {
        let key = ObjectKey::new(object.str_at(["metadata", "namespace"]), object.str_at(["metadata", "name"]));
        if is_too_large(&object) {
            self.too_large.push(key);
            return;
        }
        match Daemon::of(object) {
            Some(daemon) if daemon.weight() > MOST_KEPT => self.too_large.push(key),
            Some(daemon) => drop(self.daemons.insert(key, daemon)),
            None => {}
        }
    }

    /// The node selector of a namespace. The agents' own default is not known here.
    pub fn selector(&self, namespace: &str) -> Option<&NamespaceSelector> {
        self.selectors.get(namespace)
    }

    /// Placement's answer for a DaemonSet on a node; none: the API does not have the DaemonSet.
    pub fn placement(&self, node: &OverviewNode, key: &ObjectKey) -> Option<Placement> {
        let daemon = self.daemons.get(key)?;
        Some(placement::should_run(&node.view, &daemon.daemon_set, self.selector(&key.namespace)))
    }

    /// What the agent of `node` says of `key`.
    pub fn report<'a>(&self, node: &'a OverviewNode, key: &ObjectKey) -> Option<&'a DaemonReport> {
        let reported = of_name(&node.report.as_ref()?.daemons, key);
        match self.daemons.get(key).and_then(|daemon| daemon.daemon_set.uid.as_deref()) {
            Some(uid) => reported.iter().find(|daemon| daemon.uid.is_empty() || daemon.uid == uid),
            // Known from a folder, or deleted and still there.
            None => reported.first(),
        }
    }

    /// The mode that a DaemonSet has: its label's, else what any agent says.
    pub fn mode(&self, key: &ObjectKey) -> Option<Mode> {
        let label = self.daemons.get(key).and_then(|daemon| daemon.daemon_set.mode_label());
        label.or_else(|| self.nodes.values().find_map(|node| self.report(node, key)?.mode))
    }

    /// The DaemonSets that are ours: labelled, or reported by an agent.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let labelled = self.daemons.iter().filter(|(_, daemon)| daemon.daemon_set.mode_label().is_some());
        let reported = self.nodes.values().filter_map(|node| node.report.as_ref()).flat_map(|report| &report.daemons);
        let reported = reported.map(|daemon| ObjectKey::new(&daemon.namespace, &daemon.name));
        let mut keys: Vec<ObjectKey> = labelled.map(|(key, _)| key.clone()).chain(reported).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// Everything, or the DaemonSets of one namespace.
    pub fn overview(&self, namespace: Option<&str>) -> Overview {
        let is_asked = |key: &&ObjectKey| namespace.is_none_or(|wanted| key.namespace == wanted);
        let keys = self.keys();
        Overview {
            schema_version: SCHEMA_VERSION,
            coordinator: self.coordinator.clone(),
            daemon_sets: keys.iter().filter(is_asked).map(|key| self.rollout(key)).collect(),
            left_alone: self.left_alone(&keys, namespace),
        }
    }

    fn rollout(&self, key: &ObjectKey) -> Rollout {
        let daemon = self.daemons.get(key);
        let nodes: Vec<DaemonOnNode> = self.nodes.values().filter_map(|node| self.place(node, key)).collect();
        let count = |check: fn(&&DaemonOnNode) -> bool| nodes.iter().filter(check).count();
        let is_true: fn(&Value) -> bool = |condition| condition.str_at("status") == "True";
        let condition = |kind: &str, is_so: fn(&Value) -> bool| daemon.and_then(|daemon| daemon.condition(kind, is_so));
        let (held, halted) = (condition("Progressing", conditions::is_held), condition(HALTED, is_true));
        let message = |of: Option<&Value>| of.map(|c| c.str_at("message").to_owned()).unwrap_or_default();
        Rollout {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            in_api: daemon.is_some(),
            revision: daemon.map(|daemon| daemon.revision.clone()).unwrap_or_default(),
            held: message(held),
            is_held_by_halt: held.zip(halted).is_some_and(|(held, halted)| conditions::is_held_by_halt(held, halted)),
            halted: message(halted),
            degraded: message(condition("Degraded", is_true)),
            released: daemon.and_then(|d| Some(d.rollout.released.as_ref()?.hash.clone())).unwrap_or_default(),
            paused: daemon.is_some_and(|d| is_paused(&d.daemon_set)),
            desired: count(|place| !place.stands_by()),
            updated: count(|place| place.updated),
            updated_ready: count(|place| place.updated && place.ready),
            ready: count(|place| place.ready),
            nodes,
        }
    }

    /// The part of `node` in the rollout of `key`; none: it has none.
    pub fn place(&self, node: &OverviewNode, key: &ObjectKey) -> Option<DaemonOnNode> {
        let daemon = self.daemons.get(key);
        let should = self.placement(node, key).is_some_and(|placement| placement.should_run);
        let Some(report) = self.report(node, key) else {
            let reason = silence(node).unwrap_or_else(|| reason::missing(node).to_owned());
            return should.then(|| DaemonOnNode {
                node: node.view.name.clone(),
                state: None,
                revision: String::new(),
                pod: String::new(),
                ready: false,
                updated: false,
                is_silent: node.silent_since.is_some(),
                reason,
            });
        };
        let newest = report.instances.iter().rev().find(|instance| !instance.ending);
        let is_ready = |instance: &InstanceReport| instance.ready_since.is_some() && !instance.ending;
        let wanted = daemon.map(|daemon| daemon.revision.as_str());
        // One that fails keeps what runs, and a silent agent's may have kept it.
        let claim = report.replacing.as_deref();
        let claim = claim.filter(|_| node.silent_since.is_none() && report.phase != Some(State::Failing));
        let surges = daemon.is_some_and(|daemon| daemon.daemon_set.allows_surge());
        let is_ready = match (node.silent_since, newest) {
            _ if claim.is_some_and(|claim| is_taken_away(report, claim)) && !surges => false,
            (Some(_), newest) => {
                newest.is_some_and(|newest| self.is_mirror_pod_ready(node, &key.namespace, &newest.pod))
            }
            (None, _) => report.instances.iter().any(is_ready),
        };
        let is_wanted = |revision: &str| wanted.is_none_or(|wanted| wanted == revision);
        let mut claims = claim.into_iter().chain(report.staged.as_deref());
        let leaves = claims.any(|claim| !is_wanted(template_hash(claim)));
        Some(DaemonOnNode {
            node: node.view.name.clone(),
            state: report.phase,
            revision: newest.map(|instance| instance.revision.clone()).unwrap_or_default(),
            pod: newest.map(|instance| instance.pod.clone()).unwrap_or_default(),
            ready: node.ready && is_ready,
            updated: newest.is_some_and(|instance| is_wanted(&instance.revision)) && !leaves,
            is_silent: node.silent_since.is_some(),
            reason: reason(node, report),
        })
    }
}

/// Whether what runs ends, if nothing starts beside it: the node has made this `claim`, and reports nothing of it yet.
fn is_taken_away(report: &DaemonReport, claim: &str) -> bool {
    report.instances.iter().all(|i| i.ending || i.pair() != claim)
}

/// By what daemons of a report are ordered.
fn named(daemon: &DaemonReport) -> (&str, &str) {
    (&daemon.namespace, &daemon.name)
}

/// Those of the name `key` among daemons in the order of their names. A node may report tens of thousands, so the
/// search must not go through all of them.
fn of_name<'a>(daemons: &'a [DaemonReport], key: &ObjectKey) -> &'a [DaemonReport] {
    let key = (key.namespace.as_str(), key.name.as_str());
    let from = daemons.partition_point(|daemon| named(daemon) < key);
    let to = daemons.partition_point(|daemon| named(daemon) <= key);
    &daemons[from..to]
}

#[cfg(test)]
mod tests;
