//! An API server in memory: objects with versions, and what its watches deliver.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use daemonlet::core::cluster::node_daemons::LeaseTerm;
use daemonlet::core::cluster::released::HALTED_ANNOTATION;
use daemonlet::core::cluster::requests::Call;
use daemonlet::core::cluster::requests::RequestOutcome;
use daemonlet::core::cluster::requests::SendError;
use daemonlet::core::cluster::snapshot::Change;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::MODE_LABEL;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Timestamp;

use super::clocks::Given;
use super::clocks::MinReady;

/// A Lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    pub(super) holder: Option<usize>,
    pub(super) transitions: i64,
    pub(super) renewed: Timestamp,
}

impl Lease {
    pub(super) fn term(&self) -> LeaseTerm {
        LeaseTerm::new("kube-system", "lease", "l", &self.spec())
    }

    /// Whether it is held in `term`.
    pub(super) fn is_held(&self, term: &LeaseTerm) -> bool {
        term.is_held("l", &self.spec())
    }

    fn spec(&self) -> Value {
        let holder = self.holder.map_or_else(String::new, |holder| holder.to_string());
        json!({"holderIdentity": holder, "leaseTransitions": self.transitions})
    }
}

/// The API server.
#[derive(Default)]
pub(super) struct Api {
    objects: BTreeMap<WatchedKind, BTreeMap<ObjectKey, Arc<Value>>>,
    version: u64,
    /// Each change, which a watch delivers sooner or later.
    pub(super) log: Vec<Change>,
    pub(super) lease: Lease,
    /// `renewTime` of the agents' Leases.
    pub(super) agents: BTreeMap<String, String>,
    /// Writes of coordinators.
    pub(super) writes: usize,
    pub(super) events: Vec<String>,
    /// Until then it refuses what coordinators write: their rights are taken.
    pub(super) refuses: Timestamp,
    /// From then on until then it refuses what coordinators read: watches bring nothing.
    pub(super) blind: (Timestamp, Timestamp),
    /// A claim that a coordinator took away, if one did.
    pub(super) claim_lost: Option<String>,
    /// What is true of approvals, by their node and their time.
    pub(super) given: BTreeMap<(String, String), Given>,
    /// When each halt was first written, by its annotation.
    pub(super) halted: BTreeMap<String, Timestamp>,
    /// `minReadySeconds` of the DaemonSet.
    pub(super) min_ready: MinReady,
    /// Whether it does not serve NodeDaemons.
    is_hidden: bool,
}

/// The revision that an agent has claimed on its node, as its NodeDaemons says, while an approval stands for it.
fn claimed(node_daemons: &Value) -> Option<&str> {
    let claim = node_daemons["status"]["daemons"][0]["replacing"].as_str()?;
    let approvals = node_daemons["spec"]["approvals"].as_array()?;
    approvals.iter().any(|approval| approval["revision"] == claim).then_some(claim)
}

/// What a ControllerRevision says of its halt.
fn halt(revision: &Value) -> Option<&str> {
    revision["metadata"]["annotations"][HALTED_ANNOTATION].as_str()
}

pub(super) fn key_of(object: &Value) -> ObjectKey {
    ObjectKey::new(object.str_at(["metadata", "namespace"]), object.str_at(["metadata", "name"]))
}

impl Api {
    pub(super) fn get(&self, kind: WatchedKind, key: &ObjectKey) -> Option<&Value> {
        self.shared(kind, key).map(Arc::as_ref)
    }

    /// An object as it is now: a new one each time that it changes.
    pub(super) fn shared(&self, kind: WatchedKind, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.objects.get(&kind)?.get(key)
    }

    pub(super) fn list(&self, kind: WatchedKind) -> impl Iterator<Item = &Value> {
        self.objects.get(&kind).into_iter().flat_map(BTreeMap::values).map(Arc::as_ref)
    }

    /// Writes an object as it is; one that does not change keeps its version.
    pub(super) fn put(&mut self, kind: WatchedKind, mut object: Value) -> Arc<Value> {
        let key = key_of(&object);
        if let Some(old) = self.shared(kind, &key) {
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            if **old == object {
                return Arc::clone(old);
            }
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push(Change::Present(kind, Box::new(object.clone()), false));
        let object = Arc::new(object);
        self.objects.entry(kind).or_default().insert(key, Arc::clone(&object));
        object
    }

    pub(super) fn delete(&mut self, kind: WatchedKind, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(&kind).and_then(|objects| objects.remove(key)) {
            let mut object = Value::clone(&object);
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.log.push(Change::Gone(kind, Box::new(object)));
        }
    }

    /// What is true of an approval on a node that has this time.
    pub(super) fn given_at(&self, node: &str, approved_at: &str) -> Option<Given> {
        self.given.get(&(node.to_owned(), approved_at.to_owned())).copied()
    }

    /// Notes when a halt is written that a ControllerRevision did not say before.
    fn note_halt(&mut self, revision: &Value, before: Option<&str>, now: Timestamp) {
        let text = halt(revision).filter(|text| Some(*text) != before).map(str::to_owned);
        self.halted.extend(text.map(|text| (text, now)));
    }

    /// Whether coordinators may read.
    pub(super) fn is_read(&self, now: Timestamp) -> bool {
        !(self.blind.0..self.blind.1).contains(&now)
    }

    /// Whether it serves a kind.
    pub(super) fn serves(&self, kind: WatchedKind) -> bool {
        kind != WatchedKind::NodeDaemons || !self.is_hidden
    }

    /// It serves NodeDaemons no more; `are_deleted`: and they are gone with their definition.
    pub(super) fn hide(&mut self, are_deleted: bool) {
        let keys: Vec<ObjectKey> = self.list(WatchedKind::NodeDaemons).map(key_of).collect();
        keys.iter().filter(|_| are_deleted).for_each(|key| self.delete(WatchedKind::NodeDaemons, key));
        self.is_hidden = true;
        self.log.push(Change::Begin(WatchedKind::NodeDaemons));
    }

    /// It serves them again: watches list them.
    pub(super) fn show(&mut self) {
        if std::mem::take(&mut self.is_hidden) {
            let listed = |object: &Value| Change::Present(WatchedKind::NodeDaemons, Box::new(object.clone()), true);
            let listed: Vec<Change> = self.list(WatchedKind::NodeDaemons).map(listed).collect();
            self.log.push(Change::Begin(WatchedKind::NodeDaemons));
            self.log.extend(listed);
            self.log.push(Change::Complete(WatchedKind::NodeDaemons));
        }
    }

    /// A merge patch that is conditional on what its metadata says.
    pub(super) fn patch(&mut self, kind: WatchedKind, key: &ObjectKey, patch: &Value) -> Result<Arc<Value>, String> {
        if !self.serves(kind) {
            return Err("not served".to_owned());
        }
        let Some(object) = self.get(kind, key) else { return Err("not found".to_owned()) };
        for field in ["uid", "resourceVersion"] {
            let wanted = &patch["metadata"][field];
            if !wanted.is_null() && *wanted != object["metadata"][field] {
                return Err(format!("another {field}"));
            }
        }
        let mut new = object.clone();
        json_patch::merge(&mut new, patch);
        Ok(self.put(kind, new))
    }

    /// Carries a coordinator's request out.
    pub(super) fn carry_out(&mut self, call: Call, now: Timestamp) -> (RequestOutcome, Option<Change>) {
        let written = |result: Result<Arc<Value>, String>, kind| match result {
            Ok(object) => (RequestOutcome::Written, Some(Change::Written(kind, Box::new(Value::clone(&object))))),
            Err(words) => (RequestOutcome::Outdated(words), None),
        };
        let is_write = !matches!(call, Call::GetPod(_) | Call::ListLeases | Call::Event(..));
        self.writes += usize::from(is_write);
        if is_write && now < self.refuses {
            return (RequestOutcome::Failed(SendError::Refused("forbidden".to_owned())), None);
        }
        if matches!(call, Call::GetPod(_) | Call::ListLeases) && !self.is_read(now) {
            return (RequestOutcome::Failed(SendError::Refused("forbidden".to_owned())), None);
        }
        match call {
            Call::Patch(kind, key, patch) => {
                let before = self.get(kind, &key).and_then(claimed).map(str::to_owned);
                let said = self.get(kind, &key).and_then(halt).map(str::to_owned);
                let result = self.patch(kind, &key, &patch);
                self.note_halt(&patch, said.as_deref(), now);
                let mode = |daemon: &Value| daemon["metadata"]["labels"][MODE_LABEL] == "static";
                // What is let go is claimed by no agent: agents end it.
                let is_ours = self.list(WatchedKind::DaemonSets).any(mode);
                let is_lost = is_ours && result.is_ok() && self.get(kind, &key).and_then(claimed) != before.as_deref();
                self.claim_lost = before.filter(|_| is_lost).map(|claim| format!("{} has claimed {claim}", key.name));
                written(result, kind)
            }
            Call::PatchStatus(key, patch) => {
                written(self.patch(WatchedKind::DaemonSets, &key, &patch), WatchedKind::DaemonSets)
            }
            Call::AdoptRevision(key, patch, ..) => {
                written(self.patch(WatchedKind::Revisions, &key, &patch), WatchedKind::Revisions)
            }
            Call::CreateRevision(namespace, body) => {
                let mut object: Value = serde_json::from_str(&body).unwrap();
                let name = object.str_at(["metadata", "name"]).to_owned();
                object["metadata"]["namespace"] = json!(namespace);
                object["metadata"]["uid"] = json!(format!("r{}", self.version));
                object["metadata"]["creationTimestamp"] = json!(now.to_string());
                let result = match self.get(WatchedKind::Revisions, &ObjectKey::new(&namespace, &name)) {
                    Some(_) => Err("it exists".to_owned()),
                    None => {
                        // One that was deleted says again what it said.
                        let said = halt(&object).filter(|text| self.halted.contains_key(*text)).map(str::to_owned);
                        self.note_halt(&object, said.as_deref(), now);
                        Ok(self.put(WatchedKind::Revisions, object))
                    }
                };
                written(result, WatchedKind::Revisions)
            }
            Call::DeleteRevision(key, _, version) => {
                let object = self.get(WatchedKind::Revisions, &key);
                if object.is_none_or(|object| object.str_at(["metadata", "resourceVersion"]) != version) {
                    return (RequestOutcome::Outdated("another version".to_owned()), None);
                }
                let gone = json!({"metadata": {"namespace": key.namespace, "name": key.name}});
                self.delete(WatchedKind::Revisions, &key);
                (RequestOutcome::Written, Some(Change::Gone(WatchedKind::Revisions, Box::new(gone))))
            }
            Call::Event(key, ..) => {
                self.events.push(key.name);
                (RequestOutcome::Written, None)
            }
            Call::GetPod(_) => (RequestOutcome::Pod(None), None),
            Call::ListLeases => (RequestOutcome::Leases(self.agents.clone()), None),
            Call::Approve(..) => (RequestOutcome::NotSent, None),
        }
    }
}
