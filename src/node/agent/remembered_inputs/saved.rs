//! The checkpoint of inputs as it is on disk, and what of it is secret.
//!
//! Owns the form of both. Must not know where they are kept.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::render::Endpoint;
use crate::core::time::Timestamp;
use crate::node::agent::boot::Boot;
use crate::node::agent::remembered_files::SavedFile;
use crate::node::agent::rollback_data::RollbackDataOf;
use crate::node::agent::versioned_objects::Values;
use crate::node::api::IssuedToken;
use crate::node::checkpoint;
use crate::node::folders::FolderOrigin;

/// The inputs as they are on disk. What would say, if it were not there, that all is known and open has no default: a file
/// without it is damaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::node::agent) struct SavedInputs {
    /// UID of the namespace kube-system: which cluster all this is from.
    pub(super) cluster_uid: Option<String>,
    /// Secrets and tokens are not in it: they are sealed, in a file of their own.
    pub(in crate::node::agent) sealed: bool,
    /// The boot (`boot_id`) in which it was saved.
    #[serde(default)]
    pub(in crate::node::agent) boot: Option<String>,
    #[serde(default)]
    pub(super) clocks: Boot,
    /// The folder of the manifests in that boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) manifest_dir: Option<PathBuf>,
    /// The folder of the manifests by the kubelet's own file, when an agent last started with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kubelet_manifest_dir: Option<PathBuf>,
    /// The API server's address that manifests have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_endpoint: Option<Endpoint>,
    /// The resource version that the cluster's history had reached.
    #[serde(default)]
    pub(super) reached: u64,
    /// The Node as the API last had it.
    pub(super) node: Option<NodeView>,
    /// When it was first seen with another UID than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node_since: Option<Timestamp>,
    /// The API's DaemonSets that are ours.
    pub(super) daemon_sets: Vec<Arc<DaemonSet>>,
    /// Objects in use.
    pub(super) objects: Values,
    /// Objects in use that the API last had and that were not kept.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unread: BTreeSet<ObjectRef>,
    /// Objects in use that the API server last said to be gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) absent: BTreeSet<ObjectRef>,
    /// Whether earlier ones were lost, and their sources have yet to be read.
    pub(super) incomplete: bool,
    /// Tokens, expired or not.
    pub(in crate::node::agent) tokens: Vec<IssuedToken>,
    /// Where daemons from files came from.
    pub(super) origins: Vec<(ObjectKey, FolderOrigin)>,
    /// Fingerprints of files that override what the API has had a newer version of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) superseded: Vec<(ObjectKey, String)>,
    /// The same of objects other than DaemonSets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) superseded_objects: Vec<(ObjectRef, String)>,
    /// What the folders' files last defined of what is in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::node::agent) files: Vec<SavedFile>,
    /// Whether the cluster has approvals.
    pub(super) coordinated: bool,
    /// Whether that is not known.
    pub(super) coordination_unknown: bool,
    /// Whether earlier ones were lost, and no list of the API has been compared with what runs since.
    pub(super) history_unknown: bool,
    /// Data of good revisions, by daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rollback_data: Vec<(ObjectKey, Values)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::node::agent) struct SavedSecrets {
    pub(super) objects: Values,
    pub(in crate::node::agent) tokens: Vec<IssuedToken>,
    /// Data of good revisions with Secrets in it.
    #[serde(default)]
    pub(super) rollback_data: Vec<SealedRollbackData>,
    /// Secrets of the folders' files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::node::agent) files: Vec<SavedFile>,
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
pub(super) struct SealedRollbackData {
    pub(super) daemon: ObjectKey,
    /// The revision that was good with it.
    pub(super) revision: String,
    pub(super) objects: Values,
}

/// Opened secrets in a recording: shapes, no tokens, and nothing of files, which the folders' view has.
pub(in crate::node::agent) mod opened {
    use serde::Deserializer;
    use serde::Serializer;

    use crate::node::recording::marks::Marked;

    use super::*;

    fn marked(objects: &Values) -> Vec<(&ObjectRef, Marked<'_>)> {
        objects.iter().map(|(reference, value)| (reference, Marked(reference, value))).collect()
    }

    pub(in crate::node::agent) fn serialize<S: Serializer>(
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

    pub(in crate::node::agent) fn deserialize<'de, D: Deserializer<'de>>(
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
    pub(in crate::node::agent) fn take_secrets(&mut self, rollback_data: &RollbackDataOf) -> SavedSecrets {
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

    /// Takes what the clock has been since, and what the API server of the same cluster has shown. Sealed Secrets stay as they are, and do not count any
    /// more: newer ones are not kept.
    pub(in crate::node::agent) fn overlay(&mut self, later: Self) {
        self.clocks.add(later.clocks);
        if self.cluster_uid.is_some() && self.cluster_uid != later.cluster_uid {
            return;
        }
        let is_there: BTreeSet<&ObjectRef> =
            later.objects.iter().map(|(object, _)| object).chain(&later.unread).collect();
        self.absent.retain(|object| !is_there.contains(object));
        self.absent.extend(later.absent);
        let (unsealed, objects): (BTreeMap<_, _>, BTreeMap<_, _>) =
            later.objects.into_iter().partition(|object| self.sealed && is_secret(object));
        self.objects.retain(|(reference, _)| !objects.contains_key(reference));
        self.objects.extend(objects);
        self.unread.extend(later.unread.into_iter().chain(unsealed.into_keys()));
        self.daemon_sets.retain(|known| !later.daemon_sets.iter().any(|later| later.key == known.key));
        self.daemon_sets.extend(later.daemon_sets);
        // A Node that was registered anew is followed as one, from what was known before it.
        let is_new = self.node.iter().zip(&later.node).any(|(known, later)| known.uid != later.uid);
        self.node = later.node.filter(|_| !is_new).or_else(|| self.node.take());
        self.node_since = later.node_since.or(self.node_since);
        self.api_endpoint = later.api_endpoint.or_else(|| self.api_endpoint.take());
        self.reached = self.reached.max(later.reached);
    }

    /// Takes out what cannot be put in JSON, so that it does not keep the rest from being saved; gives its names.
    pub(in crate::node::agent) fn drop_unencodable(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        keep_encodable(&mut self.daemon_sets, &mut names, |daemon_set| format!("DaemonSet {}", daemon_set.key));
        keep_encodable(&mut self.objects, &mut names, |(reference, _)| reference.to_string());
        keep_encodable(&mut self.tokens, &mut names, |_| "a token".to_owned());
        keep_encodable(&mut self.origins, &mut names, |(key, origin)| format!("{:?}, the file of {key}", origin.path));
        keep_encodable(&mut self.files, &mut names, |file| format!("{:?}", file.path()));
        keep_encodable(&mut self.rollback_data, &mut names, |(key, _)| format!("the rollback data of {key}"));
        names
    }

    pub(in crate::node::agent) fn has_secrets(&self) -> bool {
        let mut rollback_data = self.rollback_data.iter().flat_map(|(_, rollback_data)| rollback_data);
        !self.tokens.is_empty()
            || self.objects.iter().any(is_secret)
            || rollback_data.any(is_secret)
            || self.files.iter().any(SavedFile::has_secrets)
    }
}
