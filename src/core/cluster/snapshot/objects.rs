//! From objects of the API to facts. What cannot be understood is left as it was.

use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::names::Name;
use crate::core::cluster::names::Names;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::INSTANCES;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::rollout::ApprovalFact;
use crate::core::cluster::rollout::InstanceFact;
use crate::core::dns;
use crate::core::escape;
use crate::core::identity::overlays_digest;
use crate::core::identity::template_hash;
use crate::core::json::Json;
use crate::core::json::condition;
use crate::core::model::Lookup;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::node;
use crate::core::outline;
use crate::core::placement::NamespaceSelector;
use crate::core::record::Cause;
use crate::core::time::Timestamp;

use super::ClusterSnapshot;
use super::NodeReport;
use super::ReportedDaemon;
use super::WatchedKind;
use super::WatchedNode;

/// Daemons that are taken from one agent's report at most, so that no agent can fill the coordinator's memory.
const DAEMONS: usize = 512;
/// Bytes that are kept of the names of objects that a revision lacks.
const OBJECTS: usize = 256;
/// A pod's name has no more bytes.
const POD_NAME: usize = 253;

/// Namespace and name of an object.
pub(super) fn key(object: &Value) -> ObjectKey {
    ObjectKey::new(object.str_at(["metadata", "namespace"]), object.str_at(["metadata", "name"]))
}

/// How new an object is among those of its kind.
pub(super) fn version(object: &Value) -> u64 {
    number(object.str_at(["metadata", "resourceVersion"]))
}

pub(super) fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

pub(super) fn strings(object: &Value, field: &str) -> BTreeMap<String, String> {
    let map = object.at(["metadata", field]).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

/// The epoch for what is no RFC 3339 time.
pub(super) fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_default()
}

impl ClusterSnapshot {
    /// Takes an object as it is now. False: no decision depends on what changed.
    pub fn put(&mut self, kind: WatchedKind, object: Value) -> bool {
        match kind {
            WatchedKind::Nodes => return self.put_node(&object),
            WatchedKind::DaemonSets if outline::is_outline(&object) => return self.put_outline(&object),
            WatchedKind::DaemonSets => self.put_daemon(object),
            WatchedKind::NodeDaemons => self.put_report(object),
            WatchedKind::Revisions => self.put_revision(&object),
            WatchedKind::Namespaces => self.put_namespace(&object),
            WatchedKind::CertificateRequests => self.put_certificate_request(object),
        }
        self.renumber();
        true
    }

    fn put_node(&mut self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let seen = json!({"metadata": {"name": metadata["name"], "uid": metadata["uid"], "labels": metadata["labels"]},
            "spec": {"taints": object.at(["spec", "taints"])}});
        let Ok(view) = node::view(&seen) else { return false };
        let ready = condition(object, "Ready");
        let since = ready.and_then(|condition| condition.text_at("lastTransitionTime")?.parse().ok());
        let ready = ready.and_then(|condition| condition.text_at("status")).unwrap_or("Unknown");
        let (ready, reachable) = (ready == "True", ready != "Unknown");
        let not_ready_since: Option<Timestamp> = since.filter(|_| !ready);
        let entry = self.entry(view.name.clone());
        if let Some(old) = entry.node.as_mut().filter(|old| old.view == view) {
            let is_new = (old.ready, old.reachable, old.not_ready_since) != (ready, reachable, not_ready_since);
            (old.ready, old.reachable, old.not_ready_since) = (ready, reachable, not_ready_since);
            return is_new;
        }
        let (index, node) =
            (entry.index, entry.node.insert(WatchedNode { ready, reachable, not_ready_since, view }).clone());
        self.daemons.values_mut().for_each(|daemon| daemon.place(index, &node));
        true
    }

    /// Its DaemonSets are placed anew when its node selector changes.
    fn put_namespace(&mut self, object: &Value) {
        let name = object.str_at(["metadata", "name"]).to_owned();
        let selector = NamespaceSelector::of(&name, Lookup::Present(object), &self.default_node_selector).map(Arc::new);
        self.namespaces.insert(name.clone(), selector.clone());
        for (_, daemon) in self.daemons.iter_mut().filter(|(key, _)| key.namespace == name) {
            if daemon.selector != selector {
                daemon.selector.clone_from(&selector);
                daemon.place_everywhere(&self.nodes);
            }
        }
    }

    /// The node selector of a namespace; none while nothing is known of it.
    pub(super) fn namespace_selector(&self, name: &str) -> Option<Arc<NamespaceSelector>> {
        self.namespaces.get(name).cloned().flatten()
    }

    /// Ignores an object that is older than the known one, as a list may have it that began before our own write.
    fn put_report(&mut self, mut object: Value) {
        let known = self
            .report(object.str_at(["metadata", "name"]))
            .filter(|known| known.uid == object.str_at(["metadata", "uid"]));
        if known.is_some_and(|known| number(&known.resource_version) > version(&object)) {
            return;
        }
        let mut part = |name: &str| object.get_mut(name).map(Value::take).unwrap_or_default();
        let status = part("status");
        let mut said = DefaultHasher::new();
        status.hash(&mut said);
        let said = if status.is_null() { 0 } else { said.finish() | 1 };
        let status: Status = serde_json::from_value(status).unwrap_or_default();
        let spec: Spec = serde_json::from_value(part("spec")).unwrap_or_default();
        let mut reports = status.daemons;
        self.note_claims(&reports);
        let names = &mut self.names;
        // Daemons that run are not left out in favour of ones that do not.
        reports.sort_by_key(|daemon| daemon.instances.is_empty());
        let left_out = reports.len().saturating_sub(DAEMONS);
        let mut daemons: Vec<(Name, ReportedDaemon)> =
            reports.into_iter().take(DAEMONS).map(|d| reported(names, d)).collect();
        daemons.sort_by_key(|(key, _)| *key);
        let approvals = spec.approvals.iter().map(|a| {
            let (revision, overlays) = (names.of(&a.revision), digest(names, &a.overlays));
            let fact = ApprovalFact { revision, overlays, at: time(&a.approved_at), when: a.when };
            (names.of(&ObjectKey::new(&a.namespace, &a.name).to_string()), names.of(&a.uid), fact)
        });
        let report = NodeReport {
            uid: object.str_at(["metadata", "uid"]).to_owned(),
            resource_version: object.str_at(["metadata", "resourceVersion"]).to_owned(),
            approvals: approvals.collect(),
            said,
            spec,
            daemons,
            left_out,
            ahead: BTreeMap::new(),
            appeared: BTreeMap::new(),
            became_ready: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            first_look: None,
            is_new: true,
        };
        let entry = self.entry(object.str_at(["metadata", "name"]).to_owned());
        let known = entry.report.take();
        // Of another object, such as one that was deleted and made again, nothing was seen.
        let before = known.as_ref().filter(|known| known.uid == report.uid);
        let became_ready = before.map(|before| before.become_ready(&report.daemons)).unwrap_or_default();
        let appeared = before.map(|before| before.appear(&report.daemons)).unwrap_or_default();
        let unclaimed = report.unclaimed_since(before);
        let first_look = before.filter(|before| before.said != 0).and_then(|before| before.first_look);
        let ahead = known.map(|known| known.ahead).unwrap_or_default();
        entry.report = Some(NodeReport { ahead, appeared, became_ready, unclaimed, first_look, ..report });
    }
}

/// The digest of overlays, if there are any.
fn digest(names: &mut Names, text: &str) -> Option<Name> {
    (!text.is_empty()).then(|| names.of(text))
}

fn reported(names: &mut Names, report: DaemonReport) -> (Name, ReportedDaemon) {
    let key = names.of(&ObjectKey::new(&report.namespace, &report.name).to_string());
    // Only the newest count.
    let oldest = report.instances.len().saturating_sub(INSTANCES);
    let instances = report.instances.iter().skip(oldest).map(|i| InstanceFact {
        revision: names.of(&i.revision),
        overlays: digest(names, &i.overlays),
        ready_since: i.ready_since.as_deref().map(time),
        was_ready: false,
        is_found: false,
        created: time(&i.created),
        ending: i.ending,
    });
    let instances = instances.collect();
    let newest = report.instances.iter().rev().find(|i| !i.ending).map(|i| i.pod.as_str());
    let pod = newest.filter(|pod| is_pod_name(pod)).map(Box::from);
    let reported = ReportedDaemon {
        instances,
        overlays: digest(names, &report.overlays),
        pod,
        uid: (!report.uid.is_empty()).then(|| names.of(&report.uid)),
        replacing: report.replacing.map(|claim| pair(names, &claim)),
        returning: report.returning.map(|last| pair(names, &last)),
        staged: report.staged.map(|claim| names.of(template_hash(&claim))),
        failed: report.failed.map(|f| (names.of(&f.revision), Cause::from_name(&f.cause))),
        previous: report.previous.map(|p| names.of(&p)),
        phase: report.phase,
        pull_failed: report.pull_failed.is_some(),
        awaits_rollout: report.awaits_rollout,
        missing: report.missing.map(|missing| (names.of(&missing.revision), names.of(&objects(&missing.message)))),
        is_static: report.mode == Some(Mode::Static),
        stock_pod: report.stock_pod.filter(|pod| is_pod_name(pod)).map(String::into_boxed_str),
    };
    (key, reported)
}

/// A revision, and the digest of its overlays if it has any, of both with a dot between them.
fn pair(names: &mut Names, revision: &str) -> (Name, Option<Name>) {
    (names.of(template_hash(revision)), digest(names, overlays_digest(revision)))
}

/// What a revision lacks, as a condition shows it.
fn objects(text: &str) -> String {
    escape::short(&escape::line(text), OBJECTS).into_owned()
}

/// Whether a reported name can be the name of a pod: it becomes part of a request's path.
fn is_pod_name(name: &str) -> bool {
    name.len() <= POD_NAME && dns::subdomain(name).is_none()
}
