//! What the coordinator sees of the cluster: facts, not objects, so that 5,000 nodes fit.
//!
//! Owns the translation from objects to facts and what is known completely.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use serde_json::json;

use crate::core::cluster::history;
use crate::core::cluster::history::Revision;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::FailedReport;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::rollout::InstanceFact;
use crate::core::model::DaemonSet;
use crate::core::model::HASH_LABEL;
use crate::core::model::Mode;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::node;
use crate::core::placement;
use crate::core::status::State;
use crate::core::validate;

use super::watch::Change;
use super::watch::KINDS;
use super::watch::Kind;

/// A Node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) view: NodeView,
    pub(super) ready: bool,
    pub(super) reachable: bool,
    /// Changes with anything that placement looks at.
    version: u64,
}

/// A DaemonSet.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    /// As decisions see it.
    pub(super) daemon_set: Arc<DaemonSet>,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    /// `status` as it is in the API.
    pub(super) status: Value,
    /// `spec.template` as it is in the API.
    pub(super) template: Arc<Value>,
    pub(super) limit: usize,
    /// The agents' hash of its template.
    pub(super) hash: String,
    /// Its placement on each node, with the node's version.
    placements: BTreeMap<String, (u64, bool)>,
}

/// A NodeDaemons.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) spec: Spec,
    /// What the agent says of its daemons, read once.
    pub(super) daemons: BTreeMap<ObjectKey, Told>,
}

/// One daemon on one node, as its agent told it.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// UID of the DaemonSet; empty if the agent knows it from a folder alone.
    pub(super) uid: String,
    /// Hash of each instance's revision, oldest first, and its times; `updated` is not filled in.
    pub(super) instances: Vec<(String, InstanceFact)>,
    pub(super) replacing: bool,
    pub(super) failed: Option<FailedReport>,
    pub(super) phase: Option<State>,
    /// Whether it runs in place of the DaemonSet controller here.
    pub(super) is_static: bool,
    /// A pod of that controller that is here all the same.
    pub(super) stock_pod: Option<String>,
}

impl Told {
    fn new(report: DaemonReport) -> Self {
        let millis = |text: &str| text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond);
        let instances = report.instances.into_iter().map(|i| {
            let fact = InstanceFact {
                updated: false,
                ready_since: i.ready_since.as_deref().map(millis),
                created: millis(&i.created),
                ending: i.ending,
            };
            (i.revision, fact)
        });
        Self {
            instances: instances.collect(),
            uid: report.uid,
            replacing: report.replacing.is_some(),
            failed: report.failed,
            phase: report.phase,
            is_static: report.mode == Some(Mode::Static),
            stock_pod: report.stock_pod,
        }
    }
}

/// A ControllerRevision.
#[derive(Clone, Debug)]
pub(super) struct KnownRevision {
    pub(super) revision: Revision,
    /// UID of its controller, if it has one.
    pub(super) controller: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

/// Everything.
#[derive(Default)]
pub(super) struct View {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) daemons: BTreeMap<ObjectKey, Daemon>,
    pub(super) reports: BTreeMap<String, Report>,
    pub(super) revisions: BTreeMap<ObjectKey, KnownRevision>,
    complete: BTreeSet<Kind>,
    listing: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    versions: u64,
}

impl View {
    /// Whether each kind has been listed once.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.len() == KINDS.len()
    }

    /// Takes one change.
    pub(super) fn take(&mut self, change: Change) {
        match change {
            Change::Begin(kind) => drop(self.listing.insert(kind, BTreeSet::new())),
            Change::Present(kind, object, listed) => {
                if listed {
                    self.listing.entry(kind).or_default().insert(key(&object));
                }
                self.put(kind, *object);
            }
            Change::Gone(kind, object) => self.remove(kind, &key(&object)),
            Change::Complete(kind) => {
                let seen = self.listing.remove(&kind).unwrap_or_default();
                let gone: Vec<ObjectKey> = self.keys(kind).into_iter().filter(|k| !seen.contains(k)).collect();
                gone.iter().for_each(|key| self.remove(kind, key));
                self.complete.insert(kind);
            }
        }
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        let plain = |name: &String| ObjectKey::new("", name);
        match kind {
            Kind::Nodes => self.nodes.keys().map(plain).collect(),
            Kind::NodeDaemons => self.reports.keys().map(plain).collect(),
            Kind::DaemonSets => self.daemons.keys().cloned().collect(),
            Kind::Revisions => self.revisions.keys().cloned().collect(),
        }
    }

    fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Nodes => drop(self.nodes.remove(&key.name)),
            Kind::NodeDaemons => drop(self.reports.remove(&key.name)),
            Kind::DaemonSets => drop(self.daemons.remove(key)),
            Kind::Revisions => drop(self.revisions.remove(key)),
        }
    }

    /// Takes an object as it is now; what cannot be understood is left as it was.
    pub(super) fn put(&mut self, kind: Kind, object: DynamicObject) {
        match kind {
            Kind::Nodes => self.put_node(&object),
            Kind::DaemonSets => self.put_daemon(object),
            Kind::NodeDaemons => {
                let part = |name: &str| object.data.get(name).cloned().unwrap_or_default();
                let status: Status = serde_json::from_value(part("status")).unwrap_or_default();
                let told = |d: DaemonReport| (ObjectKey::new(&d.namespace, &d.name), Told::new(d));
                let report = Report {
                    uid: object.uid().unwrap_or_default(),
                    resource_version: object.resource_version().unwrap_or_default(),
                    spec: serde_json::from_value(part("spec")).unwrap_or_default(),
                    daemons: status.daemons.into_iter().map(told).collect(),
                };
                self.reports.insert(object.name_any(), report);
            }
            Kind::Revisions => {
                let data = object.data.get("data").cloned().unwrap_or_default();
                let of_daemon_set =
                    |o: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| o.controller == Some(true);
                let controller = object.owner_references().iter().find(of_daemon_set).map(|o| o.uid.clone());
                let created = object.creation_timestamp().map_or(0, |t| t.0.as_millisecond());
                let revision = Revision {
                    name: object.name_any(),
                    number: object.data.get("revision").and_then(Value::as_i64).unwrap_or(0),
                    hash: Revision::hash_of(&data),
                    data: history::bytes(&data),
                    label: object.labels().get(HASH_LABEL).cloned(),
                    owned: controller.is_some(),
                    created,
                };
                let known = KnownRevision {
                    revision,
                    controller,
                    labels: object.labels().clone(),
                    uid: object.uid().unwrap_or_default(),
                    resource_version: object.resource_version().unwrap_or_default(),
                };
                self.revisions.insert(key(&object), known);
            }
        }
    }

    fn put_node(&mut self, object: &DynamicObject) {
        let value = json!({"metadata": {"name": object.name_any(), "uid": object.uid(), "labels": object.labels()},
            "spec": {"taints": object.data.pointer("/spec/taints")}});
        let Ok(view) = node::view(&value) else { return };
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions.and_then(|c| c.iter().find(|c| c.get("type").is_some_and(|t| t == "Ready")));
        let ready = ready.and_then(|c| c.get("status")).and_then(Value::as_str).unwrap_or("Unknown");
        let old = self.nodes.get(&view.name);
        let version = match old.filter(|old| old.view == view) {
            Some(old) => old.version,
            None => {
                self.versions += 1;
                self.versions
            }
        };
        let node = Node { ready: ready == "True", reachable: ready != "Unknown", version, view };
        self.nodes.insert(node.view.name.clone(), node);
    }

    fn put_daemon(&mut self, object: DynamicObject) {
        let key = key(&object);
        let Ok(mut value) = serde_json::to_value(&object) else { return };
        let status = object.data.get("status").cloned().unwrap_or_default();
        let resource_version = object.resource_version().unwrap_or_default();
        let uid = object.uid().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or(0);
        if let Some(old) = self.daemons.get_mut(&key)
            && old.uid == uid
            && old.generation == generation
            && old.daemon_set.annotations == *object.annotations()
            && old.daemon_set.labels == *object.labels()
            && old.daemon_set.deleting == object.metadata.deletion_timestamp.is_some()
        {
            // A status that somebody wrote changes nothing else.
            (old.status, old.resource_version) = (status, resource_version);
            return;
        }
        if let Some(value) = value.as_object_mut() {
            value.remove("status");
            value.insert("apiVersion".to_owned(), json!("apps/v1"));
            value.insert("kind".to_owned(), json!("DaemonSet"));
        }
        let template = value.pointer("/spec/template").cloned().unwrap_or_default();
        let limit = value.pointer("/spec/revisionHistoryLimit").and_then(Value::as_u64).unwrap_or(10);
        let Ok(daemon_set) = validate::daemon_set(&value, Source::Api) else { return };
        let daemon = Daemon {
            daemon_set: Arc::new(daemon_set),
            uid,
            resource_version,
            generation,
            status,
            hash: Revision::hash_of(&history::data(&template)),
            template: Arc::new(template),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            placements: BTreeMap::new(),
        };
        self.daemons.insert(key, daemon);
    }
}

impl Daemon {
    /// Whether it should run on `node`; remembered while neither changes.
    pub(super) fn should_run(&mut self, node: &Node) -> bool {
        if let Some((version, should)) = self.placements.get(&node.view.name)
            && *version == node.version
        {
            return *should;
        }
        let should = placement::should_run(&node.view, &self.daemon_set).should_run;
        self.placements.insert(node.view.name.clone(), (node.version, should));
        should
    }
}

fn key(object: &DynamicObject) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}
