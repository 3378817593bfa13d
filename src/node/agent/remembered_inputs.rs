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

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::time::Timestamp;
use crate::node::api::IssuedToken;
use crate::node::api::Snapshot;
use crate::node::checkpoint;
use crate::node::folders::FolderOrigin;
use crate::node::recording::marks;

mod node_view;

pub(super) use node_view::major_minor;
pub(super) use node_view::node_view;

use super::boot::Boot;
use super::objects;
use super::objects::Values;
use super::objects::Versioned;
use super::remembered_files::RememberedFiles;
use super::remembered_files::SavedFile;
use super::rollback_data::RollbackData;
use super::rollback_data::RollbackDataOf;
use super::state::Records;

/// The record's name in the state folder.
pub(super) const INPUTS: &str = "inputs";

/// The inputs as they are on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedInputs {
    /// UID of the namespace kube-system: which cluster all this is from.
    cluster_uid: Option<String>,
    /// Secrets and tokens are not in it: they are sealed, in a file of their own.
    #[serde(default)]
    pub(super) sealed: bool,
    /// The boot (`boot_id`) in which it was saved.
    #[serde(default)]
    pub(super) boot: Option<String>,
    #[serde(default)]
    clocks: Boot,
    /// The folder of the manifests in that boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manifest_dir: Option<PathBuf>,
    /// The resource version that the cluster's history had reached.
    #[serde(default)]
    reached: u64,
    /// The Node as the API last had it.
    node: Option<NodeView>,
    /// When it was first seen with another UID than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_since: Option<Timestamp>,
    /// The API's DaemonSets that are ours.
    daemon_sets: Vec<Arc<DaemonSet>>,
    /// Objects in use.
    objects: Values,
    /// Objects in use that the API last had and that were not kept.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unread: BTreeSet<ObjectRef>,
    /// Whether earlier ones were lost, and their sources have yet to say what they have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    /// Tokens, expired or not.
    pub(super) tokens: Vec<IssuedToken>,
    /// Where daemons from files came from.
    origins: Vec<(ObjectKey, FolderOrigin)>,
    /// Fingerprints of files that override what the API has had a newer version of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    superseded: Vec<(ObjectKey, String)>,
    /// What the folders' files last defined of what is in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<SavedFile>,
    /// Whether the cluster has approvals.
    #[serde(default)]
    coordinated: bool,
    /// Data of good revisions, by daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rollback_data: Vec<(ObjectKey, Values)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedSecrets {
    objects: Values,
    pub(super) tokens: Vec<IssuedToken>,
    /// Data of good revisions with Secrets in it.
    #[serde(default)]
    rollback_data: Vec<SealedRollbackData>,
    /// Secrets of the folders' files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) files: Vec<SavedFile>,
}

fn keep_encodable<T: Serialize>(list: &mut Vec<T>, dropped: &mut Vec<String>, name: impl Fn(&T) -> String) {
    list.retain(|item| {
        let keeps = checkpoint::can_encode(item);
        dropped.extend((!keeps).then(|| name(item)));
        keeps
    });
}

/// What is kept of a daemon's good revision, Secrets and all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SealedRollbackData {
    daemon: ObjectKey,
    /// The revision that was good with it.
    revision: String,
    objects: Values,
}

/// Opened secrets in a recording: shapes, no tokens, and nothing of files, which the folders' view has.
pub(super) mod opened {
    use serde::Deserializer;
    use serde::Serializer;

    use crate::node::recording::marks::Marked;

    use super::*;

    fn marked(objects: &Values) -> Vec<(&ObjectRef, Marked<'_>)> {
        objects.iter().map(|(reference, value)| (reference, Marked(reference, value))).collect()
    }

    pub(in super::super) fn serialize<S: Serializer>(
        opened: &Option<Arc<SavedSecrets>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let recorded = opened.as_ref().map(|secrets| {
            let rollback_data = secrets.rollback_data.iter();
            let marked_data = rollback_data.map(|of| (&of.daemon, &of.revision, marked(&of.objects)));
            (marked(&secrets.objects), marked_data.collect::<Vec<_>>())
        });
        recorded.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<SavedSecrets>>, D::Error> {
        type Recorded = (Values, Vec<(ObjectKey, String, Values)>);
        let Some((objects, rollback_data)) = Option::<Recorded>::deserialize(deserializer)? else { return Ok(None) };
        let sealed = |(daemon, revision, objects)| SealedRollbackData { daemon, revision, objects };
        let rollback_data = rollback_data.into_iter().map(sealed).collect();
        Ok(Some(Arc::new(SavedSecrets { objects, rollback_data, ..SavedSecrets::default() })))
    }
}

fn is_secret((reference, _): &(ObjectRef, Arc<Value>)) -> bool {
    reference.kind == Kind::Secret
}

impl SavedInputs {
    /// Takes out what is secret. `rollback_data`: what they were made from.
    pub(super) fn take_secrets(&mut self, rollback_data: &RollbackDataOf) -> SavedSecrets {
        self.sealed = true;
        let objects = std::mem::take(&mut self.objects);
        let (secret, open) = objects.into_iter().partition(is_secret);
        self.objects = open;
        // Whole: what was good together stays together.
        let all = std::mem::take(&mut self.rollback_data).into_iter();
        let (secret_rollback_data, open): (Vec<_>, Vec<_>) =
            all.partition(|(_, objects)| objects.iter().any(is_secret));
        self.rollback_data = open;
        let sealed = |(daemon, objects)| {
            let revision = rollback_data.get(&daemon)?.revision.clone();
            Some(SealedRollbackData { daemon, revision, objects })
        };
        let rollback_data = secret_rollback_data.into_iter().filter_map(sealed).collect();
        let files = self.files.iter_mut().filter_map(SavedFile::take_secrets).collect();
        SavedSecrets { objects: secret, tokens: std::mem::take(&mut self.tokens), rollback_data, files }
    }

    /// Takes what the API server of the same cluster has said since. Secrets that are sealed stay as they are, and count no
    /// more: those since then are not kept.
    pub(super) fn overlay(&mut self, later: Self) {
        if self.cluster_uid.is_some() && self.cluster_uid != later.cluster_uid {
            return;
        }
        let (unsealed, objects): (BTreeMap<_, _>, BTreeMap<_, _>) =
            later.objects.into_iter().partition(|object| self.sealed && is_secret(object));
        self.objects.retain(|(reference, _)| !objects.contains_key(reference));
        self.objects.extend(objects);
        self.unread.extend(later.unread.into_iter().chain(unsealed.into_keys()));
        self.daemon_sets.retain(|known| !later.daemon_sets.iter().any(|later| later.key == known.key));
        self.daemon_sets.extend(later.daemon_sets);
        self.node = later.node.or_else(|| self.node.take());
        self.node_since = later.node_since.or(self.node_since);
        self.reached = self.reached.max(later.reached);
    }

    /// Takes out what cannot be put in JSON, so that it does not keep the rest from being saved; gives its names.
    pub(super) fn drop_unencodable(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        keep_encodable(&mut self.daemon_sets, &mut names, |daemon_set| format!("DaemonSet {}", daemon_set.key));
        keep_encodable(&mut self.objects, &mut names, |(reference, _)| reference.to_string());
        keep_encodable(&mut self.tokens, &mut names, |_| "a token".to_owned());
        keep_encodable(&mut self.origins, &mut names, |(key, origin)| format!("{:?}, the file of {key}", origin.path));
        keep_encodable(&mut self.files, &mut names, |file| format!("{:?}", file.path()));
        keep_encodable(&mut self.rollback_data, &mut names, |(key, _)| format!("the rollback data of {key}"));
        names
    }

    /// Whether secrets are in it.
    pub(super) fn has_secrets(&self) -> bool {
        let mut rollback_data = self.rollback_data.iter().flat_map(|(_, rollback_data)| rollback_data);
        !self.tokens.is_empty()
            || self.objects.iter().any(is_secret)
            || rollback_data.any(is_secret)
            || self.files.iter().any(SavedFile::has_secrets)
    }
}

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
    /// The folder of the manifests in that boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) manifest_dir: Option<PathBuf>,
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
    /// Whether what an agent before this one remembered cannot be read or is older than what runs, and API server and
    /// folders have not said yet what they have of all that is in use: what runs may have been made from something newer
    /// than what is known.
    #[serde(default)]
    pub(super) incomplete: bool,
    /// Where daemons from files came from: whether their absence is evidence.
    pub(super) origins: BTreeMap<ObjectKey, FolderOrigin>,
    /// Fingerprints of files that override, by daemon, since the API has had a newer version than the one remembered when
    /// they began to: they count again once they change.
    #[serde(default)]
    pub(super) superseded: BTreeMap<ObjectKey, String>,
    /// What the folders' files last defined of what is in use.
    #[serde(default)]
    pub(super) files: RememberedFiles,
    /// Data of good revisions, by daemon.
    pub(super) rollback_data: RollbackDataOf,
    /// Whether the cluster has approvals: its API DaemonSets change only by them, also while the API is away.
    pub(super) coordinated: bool,
}

impl RememberedInputs {
    /// From a checkpoint, but for its tokens.
    pub(super) fn restore(saved: SavedInputs, records: &Records) -> Self {
        let in_use = objects::restore(saved.objects);
        let rollback_data = saved.rollback_data.into_iter().map(|(daemon, objects)| {
            let revision = super::rollback_data::revision(records, &daemon).unwrap_or_default();
            let mut objects = objects::restore(objects);
            objects::share(&mut objects, &in_use);
            (daemon, RollbackData { revision, objects })
        });
        let rollback_data = rollback_data.collect();
        Self {
            cluster_uid: saved.cluster_uid,
            boot: saved.boot,
            clocks: saved.clocks,
            manifest_dir: saved.manifest_dir,
            reached: saved.reached,
            node: saved.node,
            node_since: saved.node_since,
            daemon_sets: saved.daemon_sets.into_iter().map(|d| (d.key.clone(), d)).collect(),
            objects: in_use,
            unread: saved.unread,
            incomplete: saved.incomplete,
            origins: saved.origins.into_iter().collect(),
            superseded: saved.superseded.into_iter().collect(),
            files: RememberedFiles::restore(saved.files),
            coordinated: saved.coordinated,
            rollback_data,
        }
    }

    /// Takes secrets from a checkpoint, except where there is something newer. Those of files come by the reader of the
    /// folders.
    pub(super) fn take(&mut self, secrets: SavedSecrets, records: &Records) {
        // Versions of their own, above those of the other objects from the checkpoint.
        let first = self.objects.values().map(|entry| entry.version).max().unwrap_or(0) + 1;
        let sealed = objects::restore(secrets.objects).into_iter();
        for (reference, mut entry) in sealed.filter(|(reference, _)| !self.unread.contains(reference)) {
            entry.version += first;
            self.objects.entry(reference).or_insert(entry);
        }
        for SealedRollbackData { daemon, revision, objects } in secrets.rollback_data {
            if super::rollback_data::revision(records, &daemon).as_ref() == Some(&revision) {
                self.rollback_data
                    .entry(daemon)
                    .or_insert_with(|| RollbackData { revision, objects: objects::restore(objects) });
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
            reached: self.reached,
            node: self.node.clone(),
            node_since: self.node_since,
            daemon_sets: self.daemon_sets.values().cloned().collect(),
            objects: objects::values(&self.objects),
            unread: self.unread.clone(),
            incomplete: self.incomplete,
            coordinated: self.coordinated,
            rollback_data: self
                .rollback_data
                .iter()
                .map(|(key, rollback_data)| (key.clone(), objects::values(&rollback_data.objects)))
                .collect(),
            origins: self.origins.iter().map(|(k, o)| (k.clone(), o.clone())).collect(),
            superseded: self.superseded.iter().map(|(key, file)| (key.clone(), file.clone())).collect(),
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
            (&self.clocks, &self.manifest_dir),
            &self.node,
            self.node_since,
            (&self.unread, self.incomplete, &self.origins, &self.superseded),
            &self.files,
            self.coordinated,
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

    /// Follows the API's Node, seen at `now`.
    pub(super) fn follow_node(&mut self, node: NodeView, now: Timestamp) {
        if self.node.as_ref().is_some_and(|known| known.uid != node.uid) {
            self.node_since = Some(now);
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
        is_overridden: impl Fn(&ObjectRef) -> bool,
    ) {
        self.daemon_sets.retain(|key, _| wanted.contains_key(key) || is_kept(key));
        for (key, daemon_set) in wanted {
            if self.daemon_sets.get(key).is_none_or(|old| !Arc::ptr_eq(old, daemon_set)) {
                self.daemon_sets.insert(key.clone(), Arc::clone(daemon_set));
            }
        }
        objects::remember(&mut self.objects, api, used, is_overridden);
    }
}

#[cfg(test)]
mod tests;
