//! From a DaemonSet of the API to facts. One that is refused keeps its last definition, with its metadata and status as
//! they are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::bounds;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::Template;
use crate::core::cluster::names::Name;
use crate::core::cluster::released::RolloutStatus;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::outline;
use crate::core::placement;
use crate::core::policy;

use super::ClusterSnapshot;
use super::WatchedDaemon;
use super::objects::key;
use super::objects::strings;

/// Fields and characters of the reason for which a definition is refused: a condition's message has its own bound.
const ERRORS: usize = 5;
const CHARACTERS: usize = 4_096;

impl ClusterSnapshot {
    pub(super) fn put_daemon(&mut self, mut object: Value) {
        let key = key(&object);
        self.remove_outline(&key);
        if let Some(error) = outline::too_large(&object) {
            return self.put_too_large(&object, error);
        }
        let status = object.get_mut("status").map(Value::take).unwrap_or_default();
        let (uid, resource_version) =
            (object.str_at(["metadata", "uid"]).to_owned(), object.str_at(["metadata", "resourceVersion"]).to_owned());
        let generation = object.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let deleting = object.at(["metadata", "deletionTimestamp"]).is_some();
        let released = self.released(&status, generation);
        let status_weight = self.weight_of_status(&key, &status);
        let status_before = self.daemons.get(&key).map(|old| self.weight_of_status(&key, &old.status));
        if let Some(old) = self.daemons.get_mut(&key)
            && old.uid == uid
            && status_before == Some(status_weight)
            && old.refused.is_none()
            && old.generation == generation
            && old.daemon_set.annotations == strings(&object, "annotations")
            && old.daemon_set.labels == strings(&object, "labels")
            && old.daemon_set.deleting == deleting
        {
            // A change of the status alone changes nothing else.
            (old.status, old.resource_version, old.released) = (status, resource_version, released);
            return;
        }
        if self.is_beyond(&key) {
            self.leave_out(&object);
            return;
        }
        if !self.trusts(&key.namespace) {
            let over = bounds::TENANT.exceeded_by_daemon_set(&object);
            if !over.is_empty() {
                self.refuse(&without_texts(object), status, reason(&over));
                return;
            }
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
            object.insert("apiVersion".to_owned(), json!("apps/v1"));
            object.insert("kind".to_owned(), json!("DaemonSet"));
        }
        let before = self.daemons.get(&key).map(|old| Arc::clone(&old.daemon_set));
        let weight_before = self.weight_of(&key);
        let limit = object.at(["spec", "revisionHistoryLimit"]).and_then(Value::as_u64).unwrap_or(10);
        let daemon_set = match policy::checked(&object, Source::Api) {
            Ok(daemon_set) => daemon_set,
            Err(errors) => {
                self.refuse(&object, status, reason(&errors));
                return;
            }
        };
        let hash = RevisionFact::hash_of(&history::data(&daemon_set.template));
        let template = Template::of(&daemon_set.template);
        let daemon_set = DaemonSet { template: placement::part_read(&daemon_set.template), ..daemon_set };
        let weight = self.weight(&daemon_set, &template) + status_weight;
        if !self.has_room(&key, weight) {
            let why = reason(&[bounds::no_room_to_coordinate(&key.namespace, weight)]);
            self.refuse(&without_texts(object), status, why);
            self.no_room.insert(key, weight);
            return;
        }
        let mut daemon = WatchedDaemon {
            daemon_set: Arc::new(daemon_set),
            template,
            weight,
            refused: None,
            selector: self.namespace_selector(&key.namespace),
            key: self.names.of(&key.to_string()),
            uid_name: self.names.of(&uid),
            wanted: self.names.of(&hash),
            released,
            uid,
            resource_version,
            generation,
            status,
            hash,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            placements: Vec::new(),
        };
        daemon.place_everywhere(&self.nodes);
        self.insert_daemon(key, daemon, before.as_deref());
        if weight < weight_before {
            self.use_room();
        }
    }

    /// Takes a DaemonSet that a coordinator does not read because of its size.
    fn put_too_large(&mut self, object: &Value, error: FieldError) {
        if self.is_beyond(&key(object)) {
            self.leave_out(object);
            return;
        }
        let status = object.get("status").cloned().unwrap_or_default();
        self.refuse(object, status, reason(&[FieldError { hint: Some(bounds::TENANT.hint()), ..error }]));
    }

    /// Takes of a DaemonSet its metadata and `status`; its definition is refused for the reason `why`.
    fn refuse(&mut self, object: &Value, status: Value, why: String) {
        let key = key(object);
        let uid = object.str_at(["metadata", "uid"]);
        let before = self.daemons.get(&key).map(|old| Arc::clone(&old.daemon_set));
        let known = self.take_out(&key).filter(|old| old.uid == uid);
        let known = known.unwrap_or_else(|| self.undefined(&key, uid));
        let of = |object: &Value| DaemonSet {
            labels: strings(object, "labels"),
            annotations: strings(object, "annotations"),
            deleting: object.at(["metadata", "deletionTimestamp"]).is_some(),
            ..DaemonSet::clone(&known.daemon_set)
        };
        let mut daemon_set = of(object);
        if self.weight(&daemon_set, &known.template) > self.taken.left(bounds::COORDINATED, &key.namespace) {
            daemon_set = of(&without_texts(object.clone()));
        }
        let weight = self.weight(&daemon_set, &known.template);
        let status_weight = self.weight_of_status(&key, &status);
        let left = self.taken.left(bounds::COORDINATED, &key.namespace);
        // A status that is too large is not kept: what is ours of it is written anew.
        let (weight, status) = match status_weight == 0 || weight + status_weight <= left {
            true => (weight + status_weight, status),
            false => (weight, Value::Null),
        };
        let generation = object.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let daemon = WatchedDaemon {
            daemon_set: Arc::new(daemon_set),
            refused: Some(why),
            weight,
            resource_version: object.str_at(["metadata", "resourceVersion"]).to_owned(),
            generation,
            released: self.released(&status, generation),
            status,
            ..known
        };
        self.insert_daemon(key, daemon, before.as_deref());
    }

    /// The hash of the released revision that a status names. No report need mention it, and nodes go back to it all
    /// the same.
    fn released(&mut self, status: &Value, generation: i64) -> Option<Name> {
        let released = RolloutStatus::of(status, generation).released?;
        Some(self.names.of(&released.hash))
    }

    /// A DaemonSet of which no definition was ever accepted.
    fn undefined(&mut self, key: &ObjectKey, uid: &str) -> WatchedDaemon {
        let daemon_set = DaemonSet {
            key: key.clone(),
            uid: Some(uid.to_owned()),
            generation: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            deleting: false,
            finalizers: Vec::new(),
            selector: Value::Null,
            template: Value::Null,
            update_strategy: UpdateStrategy::OnDelete,
            min_ready_seconds: 0,
            admitted: None,
            overlays: None,
            gate: Default::default(),
            rollout: Default::default(),
            source: Source::Api,
        };
        WatchedDaemon {
            daemon_set: Arc::new(daemon_set),
            template: Template::default(),
            weight: 0,
            refused: None,
            selector: self.namespace_selector(&key.namespace),
            key: self.names.of(&key.to_string()),
            uid_name: self.names.of(uid),
            wanted: self.names.of(""),
            released: None,
            uid: uid.to_owned(),
            resource_version: String::new(),
            generation: 0,
            status: Value::Null,
            hash: String::new(),
            limit: usize::MAX,
            placements: Vec::new(),
        }
    }
}

/// The object without annotations, and with no label but the mode: these may be what is too large.
fn without_texts(mut object: Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.remove("annotations");
        let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
        labels.into_iter().for_each(|labels| labels.retain(|name, _| name == MODE_LABEL));
    }
    object
}

/// Why a definition is refused.
fn reason(errors: &[FieldError]) -> String {
    let shown: Vec<String> = errors.iter().take(ERRORS).map(FieldError::with_hint).collect();
    let more = match errors.len().saturating_sub(ERRORS) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let reason = format!("{}{more}", shown.join("; "));
    reason.chars().take(CHARACTERS).collect()
}
