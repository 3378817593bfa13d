//! Changing the owner of a mirror pod.
//!
//! A pod is given only to a DaemonSet that the API server itself has just shown: one that is gone, or is being deleted,
//! would have the garbage collector delete what belongs to it, again and again. The patch replaces the whole list
//! (owners are merged by UID otherwise, and a pod cannot have two controllers).

use serde_json::Value;
use serde_json::json;

use crate::core::model::ObjectKey;
use crate::node::api::Api;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::GetResult;

/// A mirror pod that is to have another owner.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct OwnerChange {
    pub(in crate::node::agent) pod: ObjectKey,
    pub(in crate::node::agent) uid: String,
    pub(in crate::node::agent) resource_version: String,
    /// The reference that takes the place of all others.
    pub(in crate::node::agent) owner: Value,
    /// The DaemonSet that has to exist, with its UID; `None`: it goes back to the Node.
    pub(in crate::node::agent) daemon_set: Option<(ObjectKey, String)>,
}

/// How an [`OwnerChange`] ended.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) enum OwnerResult {
    Done,
    /// The DaemonSet is gone or is being deleted, or the pod has changed.
    NotNow(String),
    Failed(ApiFailure),
}

/// Asks for the DaemonSet, and patches the pod.
pub(super) async fn change_owner(api: &Api, change: &OwnerChange) -> OwnerResult {
    if let Some((key, uid)) = &change.daemon_set {
        let live = match api.get_daemon_set(key).await {
            GetResult::Object(live) => live,
            GetResult::NotFound => return OwnerResult::NotNow(format!("DaemonSet {key} is gone")),
            GetResult::Error(failure) => return OwnerResult::Failed(failure),
        };
        if live.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid)
            || live.pointer("/metadata/deletionTimestamp").is_some()
        {
            return OwnerResult::NotNow(format!("DaemonSet {key} is being deleted, or is another one"));
        }
    }
    let patch = |version: &str| {
        let metadata = json!({"uid": change.uid, "resourceVersion": version, "ownerReferences": [change.owner]});
        json!({ "metadata": metadata })
    };
    match api.patch_pod(&change.pod, &patch(&change.resource_version)).await {
        Ok(()) => return OwnerResult::Done,
        Err(failure) if failure.kind != FailureKind::Conflict => return OwnerResult::Failed(failure),
        Err(_) => {}
    }
    // The agent does not keep all of a pod: the rest has changed since.
    let live = match api.get_pod(&change.pod).await {
        GetResult::Object(live) => live,
        GetResult::NotFound => return OwnerResult::NotNow("the mirror pod is gone".to_owned()),
        GetResult::Error(failure) => return OwnerResult::Failed(failure),
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str);
    if text("/metadata/uid") != Some(&change.uid) || live.pointer("/metadata/deletionTimestamp").is_some() {
        return OwnerResult::NotNow("the mirror pod is being deleted, or is another one".to_owned());
    }
    match api.patch_pod(&change.pod, &patch(text("/metadata/resourceVersion").unwrap_or_default())).await {
        Ok(()) => OwnerResult::Done,
        Err(failure) => OwnerResult::Failed(failure),
    }
}
