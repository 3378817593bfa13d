//! What the coordinator sees of the cluster: facts, not objects, so that 5,000 nodes fit.
//!
//! Owns the translation from objects to facts, and what is known completely. UIDs and revisions are numbers here: a
//! pass compares millions of them.

mod certificates;
mod change;
mod clocks;
mod daemon_sets;
mod fit;
mod objects;
mod outlines;
mod renumber;
mod revisions;
mod room;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds::QuotaUse;
use crate::core::model::DaemonSet;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::placement::NamespaceSelector;
use crate::core::policy;
use crate::core::record::Cause;
use crate::core::status::State;
use crate::core::time::Timestamp;

use super::history::Template;
use super::names::Name;
use super::names::Names;
use super::node_daemons::Spec;
use super::rollout::ApprovalFact;
use super::rollout::InstanceFact;

pub use certificates::OpenCertificateRequest;
pub use change::Change;
pub use change::KINDS;
pub use change::WatchedKind;
use clocks::FirstSeen;
use clocks::SeenAhead;
use fit::Fit;
use outlines::DaemonSetOutline;
pub use revisions::KnownRevision;
use revisions::RevisionOutline;

/// An agent's report that a pod of a DaemonSet controller is on its node, beside the static pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StockPodClaim {
    /// The DaemonSet.
    pub key: ObjectKey,
    pub uid: String,
    pub node: String,
    /// The pod's name.
    pub pod: String,
}

#[derive(Clone, Debug)]
pub struct WatchedNode {
    /// As placement sees it.
    pub view: NodeView,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether its Ready condition is not Unknown.
    pub reachable: bool,
    /// If it is not True: since when.
    pub not_ready_since: Option<Timestamp>,
}

/// What is known under one node's name.
#[derive(Clone, Debug, Default)]
pub struct NodeEntry {
    /// The Node, if there is one.
    pub node: Option<WatchedNode>,
    /// Its NodeDaemons, if there is one.
    pub report: Option<NodeReport>,
    /// Where its placements are kept.
    index: usize,
}

/// A DaemonSet.
#[derive(Clone, Debug)]
pub struct WatchedDaemon {
    /// As decisions see it, with as much of its template as placement reads; of one that is refused its metadata, with the
    /// last definition that was not.
    pub daemon_set: Arc<DaemonSet>,
    /// Its whole template.
    pub(super) template: Template,
    /// What it takes in memory, where that is bounded, in bytes.
    weight: usize,
    /// Why its definition is refused, though the API took it: nothing is decided from it then.
    pub refused: Option<String>,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status` as it is in the API.
    pub status: Value,
    /// `spec.revisionHistoryLimit`.
    pub limit: usize,
    /// The agents' hash of its template.
    pub hash: String,
    /// Its namespace and name, as reports refer to it.
    pub key: Name,
    pub(super) uid_name: Name,
    /// Its hash.
    pub wanted: Name,
    /// The hash of the released revision, if its status names one.
    pub(super) released: Option<Name>,
    /// The node selector of its namespace.
    selector: Option<Arc<NamespaceSelector>>,
    /// What placement says of each node, by the node's index.
    placements: Vec<Fit>,
}

/// A NodeDaemons.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// A fingerprint of what the agent reports; 0: it has not reported yet.
    pub(super) said: u64,
    /// What was approved.
    pub spec: Spec,
    /// The approvals as facts, in the order of `spec`, each with key and UID of its DaemonSet.
    pub(super) approvals: Vec<(Name, Name, ApprovalFact)>,
    /// What the agent reports of its daemons, by key.
    daemons: Vec<(Name, ReportedDaemon)>,
    /// How many of its daemons are left out, because it reports more than are taken from one agent.
    pub left_out: usize,
    /// Times that were in the future when they were reported, and what is known of each.
    ahead: BTreeMap<Timestamp, SeenAhead>,
    /// Instances that were seen to appear.
    appeared: FirstSeen,
    /// Instances that were seen to become ready.
    became_ready: FirstSeen,
    /// Approvals of a former term that were not claimed at the first look.
    unclaimed: FirstSeen,
    /// When a pass first looked at what it says.
    first_look: Option<Timestamp>,
    /// Whether no pass has looked at it yet: its times are as they were reported.
    is_new: bool,
}

impl NodeReport {
    /// What the agent reports of a daemon.
    pub fn daemon(&self, key: Name) -> Option<&ReportedDaemon> {
        let found = self.daemons.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        self.daemons.get(found).map(|(_, reported)| reported)
    }

    /// Whether the newest instance of a daemon has this mirror pod.
    pub(super) fn has(&self, pod: &str) -> bool {
        self.daemons.iter().any(|(_, reported)| reported.pod.as_deref() == Some(pod))
    }

    /// The pod of a DaemonSet controller that the agent says is on its node beside our own.
    pub(super) fn stock_pod(&self, daemon: &WatchedDaemon) -> Option<&str> {
        self.daemon(daemon.key)?.stock_pod_of(daemon)
    }

    /// What the agent reports of its daemons, by key.
    pub(super) fn daemons(&self) -> impl Iterator<Item = (Name, &ReportedDaemon)> {
        self.daemons.iter().map(|(key, reported)| (*key, reported))
    }
}

/// One daemon on one node, as its agent reports it.
#[derive(Clone, Debug)]
pub struct ReportedDaemon {
    /// UID of the DaemonSet; empty if the agent knows it from a folder alone.
    pub(super) uid: Option<Name>,
    /// Its instances, oldest first.
    pub instances: Box<[InstanceFact]>,
    /// The digest of the overlays that apply to its node, if any.
    pub(super) overlays: Option<Name>,
    /// The mirror pod of the newest instance that does not end.
    pub(super) pod: Option<Box<str>>,
    /// The revision whose approval it claims, and the digest of its overlays, if it claims one.
    pub replacing: Option<(Name, Option<Name>)>,
    /// The revision whose approval it claims for the next boot, if it does.
    pub(super) staged: Option<Name>,
    /// The revision that failed, and the cause; none: only another version knows it.
    pub failed: Option<(Name, Option<Cause>)>,
    /// The revision that ran before, and that it can return to.
    pub(super) previous: Option<Name>,
    /// The revision that starts there again, and the digest of its overlays: its instance has ended to return.
    pub(super) returning: Option<(Name, Option<Name>)>,
    /// What the daemon is doing.
    pub(super) phase: Option<State>,
    /// Whether it runs in place of the DaemonSet controller here.
    pub(super) is_static: bool,
    /// Whether an image of the wanted revision cannot be pulled there.
    pub(super) pull_failed: bool,
    /// Whether nothing starts there before the rollout has come further.
    pub(super) awaits_rollout: bool,
    /// The revision that needs objects there which do not exist, and the names of these, escaped.
    pub missing: Option<(Name, Name)>,
    /// A pod of the DaemonSet controller that is there all the same.
    pub(super) stock_pod: Option<Box<str>>,
}

impl ReportedDaemon {
    /// Whether it fails there, for one because the disk takes nothing: then what ran before a claim may go on.
    pub fn fails(&self) -> bool {
        self.phase == Some(State::Failing)
    }

    /// The pod of the DaemonSet controller of this very DaemonSet.
    pub(super) fn stock_pod_of(&self, daemon: &WatchedDaemon) -> Option<&str> {
        self.stock_pod.as_deref().filter(|_| self.uid == Some(daemon.uid_name))
    }
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// Nodes and their NodeDaemons, by name.
    pub nodes: BTreeMap<String, NodeEntry>,
    /// DaemonSets.
    pub daemons: BTreeMap<ObjectKey, WatchedDaemon>,
    /// DaemonSets that are not the agents' to run: no more is known of them than that they exist.
    outlines: BTreeMap<ObjectKey, DaemonSetOutline>,
    /// DaemonSets and ControllerRevisions of which only an outline is known, and that are to be read whole.
    unread: BTreeSet<(WatchedKind, ObjectKey)>,
    /// ControllerRevisions of the DaemonSets, and orphans that one of them selects.
    pub revisions: BTreeMap<ObjectKey, KnownRevision>,
    /// All others.
    revision_outlines: BTreeMap<ObjectKey, RevisionOutline>,
    /// Certificate requests, by name.
    pub certificate_requests: BTreeMap<String, OpenCertificateRequest>,
    /// Namespaces, each with the node selector of its pods.
    namespaces: BTreeMap<String, Option<Arc<NamespaceSelector>>>,
    default_node_selector: String,
    /// Namespaces whose DaemonSets have no bounds; `*` is all.
    trusted_namespaces: Vec<String>,
    /// What the DaemonSets of the others take in memory.
    taken: QuotaUse,
    /// Those of them that are refused because there is no room for what they define, and what that would take.
    no_room: BTreeMap<ObjectKey, usize>,
    /// Strings by number.
    pub names: Names,
    complete: BTreeSet<WatchedKind>,
    listing: BTreeMap<WatchedKind, BTreeSet<ObjectKey>>,
    /// How far the watch of each kind has come.
    versions: BTreeMap<WatchedKind, u64>,
    free: Vec<usize>,
    indices: usize,
}

impl ClusterSnapshot {
    /// Nothing is known yet; `default_node_selector` is the cluster's.
    pub fn new(default_node_selector: String) -> Self {
        Self { default_node_selector, ..Self::default() }
    }

    /// The same, with namespaces whose DaemonSets have no bounds; `*` is all.
    pub fn trusting(self, trusted_namespaces: Vec<String>) -> Self {
        Self { trusted_namespaces, ..self }
    }

    /// Whether the DaemonSets of a namespace have no bounds.
    pub fn trusts(&self, namespace: &str) -> bool {
        policy::trusts(&self.trusted_namespaces, namespace)
    }

    /// Whether each of [`KINDS`] is listed: half of a list is the state of two moments,
    /// from which nothing may be approved or withdrawn.
    pub fn is_complete(&self) -> bool {
        KINDS.into_iter().all(|kind| self.is_listed(kind))
    }

    /// Whether a kind has been listed, and is not being listed anew.
    pub fn is_listed(&self, kind: WatchedKind) -> bool {
        self.complete.contains(&kind) && !self.listing.contains_key(&kind)
    }

    /// By node, how many of its daemons are left out, because its agent reports more than are taken from one.
    pub fn left_out(&self) -> BTreeMap<String, usize> {
        let of = |(name, entry): (&String, &NodeEntry)| Some((name.clone(), entry.report.as_ref()?.left_out));
        self.nodes.iter().filter_map(of).filter(|(_, count)| *count > 0).collect()
    }

    /// The NodeDaemons of a node.
    pub fn report(&self, node: &str) -> Option<&NodeReport> {
        self.nodes.get(node)?.report.as_ref()
    }

    /// Takes one change. False: no decision depends on it, as on a kubelet's heartbeat.
    pub fn take(&mut self, change: Change) -> bool {
        match change {
            Change::Begin(kind) => drop(self.listing.insert(kind, BTreeSet::new())),
            Change::Present(kind, object, listed) => {
                if listed {
                    self.listing.entry(kind).or_default().insert(objects::key(&object));
                }
                self.seen(kind, &object);
                return self.put(kind, *object) || listed;
            }
            Change::Gone(kind, object) => {
                self.seen(kind, &object);
                self.remove(kind, &objects::key(&object));
            }
            Change::Complete(kind) => {
                let seen = self.listing.remove(&kind).unwrap_or_default();
                let gone: Vec<ObjectKey> = self.keys(kind).into_iter().filter(|k| !seen.contains(k)).collect();
                gone.iter().for_each(|key| self.remove(kind, key));
                self.complete.insert(kind);
            }
            Change::Written(kind, object) => {
                // A watch that is further ahead has brought this state already, or the deletion.
                if objects::version(&object) > self.versions.get(&kind).copied().unwrap_or(0) {
                    self.put(kind, *object);
                }
            }
            Change::Read(WatchedKind::Revisions, object) => self.take_read_revision(&object),
            Change::Read(_, object) => self.take_read(*object),
        }
        true
    }

    fn seen(&mut self, kind: WatchedKind, object: &Value) {
        let version = self.versions.entry(kind).or_default();
        *version = objects::version(object).max(*version);
    }

    fn keys(&self, kind: WatchedKind) -> Vec<ObjectKey> {
        let with = |has: fn(&NodeEntry) -> bool| {
            let with = self.nodes.iter().filter(move |(_, entry)| has(entry));
            with.map(|(name, _)| ObjectKey::new("", name)).collect()
        };
        match kind {
            WatchedKind::Nodes => with(|entry| entry.node.is_some()),
            WatchedKind::NodeDaemons => with(|entry| entry.report.is_some()),
            WatchedKind::DaemonSets => self.daemons.keys().chain(self.outlines.keys()).cloned().collect(),
            WatchedKind::Revisions => self.revisions.keys().chain(self.revision_outlines.keys()).cloned().collect(),
            WatchedKind::Namespaces => self.namespaces.keys().map(|name| ObjectKey::new("", name)).collect(),
            WatchedKind::CertificateRequests => {
                self.certificate_requests.keys().map(|name| ObjectKey::new("", name)).collect()
            }
        }
    }

    fn remove(&mut self, kind: WatchedKind, key: &ObjectKey) {
        let entry = self.nodes.get_mut(&key.name);
        match (kind, entry) {
            (WatchedKind::DaemonSets, _) => {
                self.remove_daemon(key);
                self.remove_outline(key);
            }
            (WatchedKind::Revisions, _) => self.remove_revision(key),
            (WatchedKind::CertificateRequests, _) => drop(self.certificate_requests.remove(&key.name)),
            // Its DaemonSets go by themselves.
            (WatchedKind::Namespaces, _) => drop(self.namespaces.remove(&key.name)),
            (_, None) => {}
            (_, Some(entry)) => {
                match kind {
                    WatchedKind::Nodes => entry.node = None,
                    _ => entry.report = None,
                }
                if entry.node.is_none() && entry.report.is_none() {
                    self.free.push(entry.index);
                    self.nodes.remove(&key.name);
                }
            }
        }
    }

    /// The entry of a node, made if there is none.
    fn entry(&mut self, name: String) -> &mut NodeEntry {
        let (free, indices) = (&mut self.free, &mut self.indices);
        self.nodes.entry(name).or_insert_with(|| {
            let index = free.pop().unwrap_or_else(|| {
                *indices += 1;
                *indices - 1
            });
            NodeEntry { index, ..NodeEntry::default() }
        })
    }
}

#[cfg(test)]
mod tests;
