//! What the node needs to start again with nothing but its disk: the checkpoint of inputs.
//!
//! Owns what is remembered of API, Node and objects. Must not be trusted over a live answer.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Weak;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Lookup;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::node;
use crate::core::render::Endpoint;
use crate::core::time::Timestamp;
use crate::node::api::IssuedToken;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::folders::FolderOrigin;
use crate::node::recording::marks;

mod node_view;
mod saved;

pub(super) use node_view::major_minor;
pub(super) use node_view::node_view;
pub(super) use saved::SavedInputs;
pub(super) use saved::SavedSecrets;
use saved::SealedRollbackData;
pub(super) use saved::opened;

use super::boot::Boot;
use super::records::Records;
use super::remembered_files::RememberedFiles;
use super::rollback_data::RollbackData;
use super::rollback_data::RollbackDataOf;
use super::versioned_objects;
use super::versioned_objects::Versioned;

/// The record's name in the state folder.
pub(super) const INPUTS: &str = "inputs";

/// What is remembered while the agent runs.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct RememberedInputs {
    /// UID of the namespace kube-system.
    pub(super) cluster_uid: Option<String>,
    /// The boot in which the agent runs; from a checkpoint, in which it last ran.
    pub(super) boot: Option<String>,
    /// What the clock has been in that boot.
    #[serde(default)]
    pub(super) clocks: Boot,
    /// The folder of the manifests, as an agent last used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) manifest_dir: Option<PathBuf>,
    /// The folder of the manifests by the kubelet's own file, when an agent last started with that; `None`: the
    /// configuration names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kubelet_manifest_dir: Option<PathBuf>,
    /// The API server's address that manifests have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_endpoint: Option<Endpoint>,
    /// The resource version that the cluster's history has reached. It alone is not worth a write.
    pub(super) reached: u64,
    /// The Node as the API last had it.
    pub(super) node: Option<NodeView>,
    /// When it was first seen with another UID than before.
    #[serde(default)]
    pub(super) node_since: Option<Timestamp>,
    /// The API's DaemonSets that are ours.
    pub(super) daemon_sets: BTreeMap<ObjectKey, Arc<DaemonSet>>,
    /// Objects in use.
    #[serde(with = "marks::objects")]
    pub(super) objects: Versioned,
    /// Those of them that the API last had and that are not kept: for want of room, or because they could not be sealed.
    #[serde(default)]
    pub(super) unread: BTreeSet<ObjectRef>,
    /// Objects in use that the API server has last said to be gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) absent: BTreeSet<ObjectRef>,
    /// Whether what an agent before this one remembered cannot be read or is older than what runs, and API server and
    /// folders have not shown yet which objects in use they have: instances may have been made from something newer
    /// than is known.
    #[serde(default)]
    pub(super) incomplete: bool,
    /// Where daemons from files came from: whether their absence is evidence.
    pub(super) origins: BTreeMap<ObjectKey, FolderOrigin>,
    /// Fingerprints of files that override, by daemon, since the API has had a newer version than the one remembered when
    /// they began to: they count again once they change.
    #[serde(default)]
    pub(super) superseded: BTreeMap<ObjectKey, String>,
    /// The same of the files' other objects that override.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) superseded_objects: BTreeMap<ObjectRef, String>,
    /// What the folders' files last defined of what is in use.
    #[serde(default)]
    pub(super) files: RememberedFiles,
    /// Data of good revisions, by daemon.
    pub(super) rollback_data: RollbackDataOf,
    /// Whether the cluster has approvals: its API DaemonSets change only by them, also while the API is away.
    pub(super) coordinated: bool,
    /// Whether that is not known: what an agent before this one remembered cannot be read, and the API server has not said
    /// since whether it has approvals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) coordination_unknown: bool,
    /// Whether it is not known what the API server had before, because what an agent before this one remembered cannot be
    /// read: no list has been compared since with what runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) history_unknown: bool,
}

impl RememberedInputs {
    /// From a checkpoint, but for its tokens.
    pub(super) fn restore(saved: SavedInputs, records: &Records) -> Self {
        let in_use = versioned_objects::restore(saved.objects);
        let rollback_data = saved.rollback_data.into_iter().map(|(daemon, objects)| {
            let revision = super::rollback_data::revision(records, &daemon).unwrap_or_default();
            let mut objects = versioned_objects::restore(objects);
            versioned_objects::share(&mut objects, &in_use);
            (daemon, RollbackData { revision, objects })
        });
        let rollback_data = rollback_data.collect();
        Self {
            cluster_uid: saved.cluster_uid,
            boot: saved.boot,
            clocks: saved.clocks,
            manifest_dir: saved.manifest_dir,
            kubelet_manifest_dir: saved.kubelet_manifest_dir,
            api_endpoint: saved.api_endpoint,
            reached: saved.reached,
            node: saved.node,
            node_since: saved.node_since,
            daemon_sets: saved.daemon_sets.into_iter().map(|d| (d.key.clone(), d)).collect(),
            objects: in_use,
            unread: saved.unread,
            absent: saved.absent,
            incomplete: saved.incomplete,
            origins: saved.origins.into_iter().collect(),
            superseded: saved.superseded.into_iter().collect(),
            superseded_objects: saved.superseded_objects.into_iter().collect(),
            files: RememberedFiles::restore(saved.files),
            coordinated: saved.coordinated,
            coordination_unknown: saved.coordination_unknown,
            history_unknown: saved.history_unknown,
            rollback_data,
        }
    }

    /// What an agent before this one remembered cannot be read.
    pub(super) fn lost(&mut self) {
        (self.incomplete, self.coordination_unknown, self.history_unknown) = (true, true, true);
    }

    /// Takes from what `api` shows whether the cluster has approvals: `has_them` says that it does now.
    pub(super) fn follow_coordination(&mut self, has_them: bool, api: Option<&Snapshot>) {
        self.coordinated |= has_them;
        let has_none = api.and_then(|api| api.scopes.get(&Scope::NodeDaemons)).is_some_and(|scope| scope.missing);
        self.coordination_unknown &= !has_them && !has_none;
    }

    /// Takes secrets from a checkpoint, except where there is something newer. Those of files come by the reader of the
    /// folders.
    pub(super) fn take(&mut self, secrets: SavedSecrets, records: &Records) {
        // Versions of their own, above those of the other objects from the checkpoint.
        let first = self.objects.values().map(|entry| entry.version).max().unwrap_or(0) + 1;
        let sealed = versioned_objects::restore(secrets.objects).into_iter();
        for (reference, mut entry) in sealed.filter(|(reference, _)| !self.unread.contains(reference)) {
            entry.version += first;
            self.objects.entry(reference).or_insert(entry);
        }
        for SealedRollbackData { daemon, revision, objects } in secrets.rollback_data {
            if super::rollback_data::revision(records, &daemon).as_ref() == Some(&revision) {
                self.rollback_data
                    .entry(daemon)
                    .or_insert_with(|| RollbackData { revision, objects: versioned_objects::restore(objects) });
            }
        }
    }

    /// For a checkpoint.
    pub(super) fn to_save(&self, tokens: &[IssuedToken]) -> SavedInputs {
        SavedInputs {
            tokens: tokens.to_vec(),
            cluster_uid: self.cluster_uid.clone(),
            sealed: false,
            boot: self.boot.clone(),
            clocks: self.clocks.clone(),
            manifest_dir: self.manifest_dir.clone(),
            kubelet_manifest_dir: self.kubelet_manifest_dir.clone(),
            api_endpoint: self.api_endpoint.clone(),
            reached: self.reached,
            node: self.node.clone(),
            node_since: self.node_since,
            daemon_sets: self.daemon_sets.values().cloned().collect(),
            objects: versioned_objects::values(&self.objects),
            unread: self.unread.clone(),
            absent: self.absent.clone(),
            incomplete: self.incomplete,
            coordinated: self.coordinated,
            coordination_unknown: self.coordination_unknown,
            history_unknown: self.history_unknown,
            rollback_data: self
                .rollback_data
                .iter()
                .map(|(key, rollback_data)| (key.clone(), versioned_objects::values(&rollback_data.objects)))
                .collect(),
            origins: self.origins.iter().map(|(k, o)| (k.clone(), o.clone())).collect(),
            superseded: self.superseded.iter().map(|(key, file)| (key.clone(), file.clone())).collect(),
            superseded_objects: self.superseded_objects.iter().map(|(r, file)| (r.clone(), file.clone())).collect(),
            files: self.files.to_save(),
        }
    }

    /// A number that changes whenever [`RememberedInputs::to_save`] would. `tokens`: the
    /// fingerprint of the tokens. Cheap: it reads no data.
    pub(super) fn fingerprint(&self, tokens: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (
            &self.cluster_uid,
            &self.boot,
            (&self.clocks, &self.manifest_dir, &self.kubelet_manifest_dir, &self.api_endpoint),
            &self.node,
            self.node_since,
            (&self.unread, &self.absent, self.incomplete, &self.origins, &self.superseded),
            &self.superseded_objects,
            &self.files,
            (self.coordinated, self.coordination_unknown, self.history_unknown),
        )
            .hash(&mut hasher);
        for (key, daemon_set) in &self.daemon_sets {
            (key, Arc::as_ptr(daemon_set).addr()).hash(&mut hasher);
        }
        for (reference, entry) in &self.objects {
            (reference, entry.version).hash(&mut hasher);
        }
        for (key, rollback_data) in &self.rollback_data {
            key.hash(&mut hasher);
            rollback_data.revision.hash(&mut hasher);
            rollback_data.objects.iter().for_each(|(reference, entry)| (reference, entry.version).hash(&mut hasher));
        }
        tokens.hash(&mut hasher);
        hasher.finish()
    }

    /// The objects that are remembered, for as long as they are.
    pub(super) fn known(&self) -> BTreeMap<ObjectRef, Weak<Value>> {
        self.objects.iter().map(|(reference, entry)| (reference.clone(), Arc::downgrade(&entry.value))).collect()
    }

    /// Follows the API's Node at `now`. `registered`: since when there is one with this UID, if that is known; `is_shown`:
    /// the API server is connected, and shows it so. Where what was known of it is lost, it may be new, unless it was
    /// registered some minutes ago.
    pub(super) fn follow_node(
        &mut self,
        node: NodeView,
        registered: Option<Timestamp>,
        now: Timestamp,
        is_shown: bool,
    ) {
        let may_be_new =
            || self.incomplete && registered.is_none_or(|since| node::labels_due(Some(since), now).is_some());
        let is_new = self.node.as_ref().map_or_else(may_be_new, |known| known.uid != node.uid);
        if is_shown || is_new {
            self.node_since = node::awaits_labels_since(self.node_since, is_new, now);
        }
        if self.node.as_ref() != Some(&node) {
            self.node = Some(node);
        }
    }

    /// Follows the API: DaemonSets that are ours and objects in use.
    pub(super) fn follow(
        &mut self,
        api: &Snapshot,
        wanted: &BTreeMap<ObjectKey, Arc<DaemonSet>>,
        used: &BTreeSet<ObjectRef>,
        is_kept: impl Fn(&ObjectKey) -> bool,
        folders: &Versioned,
        is_overridden: impl Fn(&ObjectRef) -> bool,
    ) {
        self.daemon_sets.retain(|key, _| wanted.contains_key(key) || is_kept(key));
        for (key, daemon_set) in wanted {
            if self.daemon_sets.get(key).is_none_or(|old| !Arc::ptr_eq(old, daemon_set)) {
                self.daemon_sets.insert(key.clone(), Arc::clone(daemon_set));
            }
        }
        let superseded = &self.superseded_objects;
        let is_overridden = |reference: &ObjectRef| !superseded.contains_key(reference) && is_overridden(reference);
        versioned_objects::remember(&mut self.objects, api, used, folders, is_overridden);
        self.follow_absences(api, used);
    }

    /// Follows which of the `used` objects the API server says to be gone. What it says nothing of stays as it last was.
    fn follow_absences(&mut self, api: &Snapshot, used: &BTreeSet<ObjectRef>) {
        let is_absent = |object: &&ObjectRef| match api.lookup(object) {
            Lookup::Absent => true,
            Lookup::Unknown => self.absent.contains(*object) && api.lacks_room(object).is_none(),
            Lookup::Present(_) | Lookup::Deleted(_) => false,
        };
        self.absent = used.iter().filter(is_absent).cloned().collect();
    }
}

#[cfg(test)]
mod tests;
