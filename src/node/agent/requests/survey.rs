//! Direct questions to the API server, before the agent acts on what its watches show.

use crate::core::orders::NoAnswer;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::json::condition;
use crate::core::model::ObjectKey;
use crate::core::orders::ObjectState;
use crate::core::orders::Survey;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::sources::Confirmation;
use crate::core::upstream::kubelet;
use crate::node::api::Api;
use crate::node::api::GetResult;
use crate::node::api::convert;

use super::reply::Reply;

/// What is to be confirmed.
pub(super) struct Removal {
    pub(super) key: ObjectKey,
    pub(super) about: u64,
    /// The UID that is remembered of the DaemonSet.
    pub(super) api_uid: Option<String>,
    /// The cluster that is remembered.
    pub(super) cluster: Option<String>,
}

/// Asks whether a DaemonSet is gone, or not ours any more.
pub(super) async fn confirm_removal(api: &Api, policy: &Policy, of: Removal) -> Reply {
    let Removal { key, about, api_uid, cluster: known } = of;
    let (cluster, confirmation) = match api.cluster_uid().await {
        Err(failure) => (None, Confirmation::Failed(NoAnswer::Failed(failure.to_string()))),
        Ok(uid) if known.as_ref().is_some_and(|known| *known != uid) => {
            (Some(uid), Confirmation::Failed(NoAnswer::AnotherCluster))
        }
        Ok(uid) => (Some(uid), judge(api.get_daemon_set(&key).await, api_uid.as_deref(), policy)),
    };
    Reply::RemovalConfirmed { key, about, cluster, confirmation }
}

/// The result of a GET for the DaemonSet of which `api_uid` is remembered. One that cannot be decoded exists.
fn judge(live: GetResult, api_uid: Option<&str>, policy: &Policy) -> Confirmation {
    let value = match live {
        GetResult::NotFound => return Confirmation::Gone,
        GetResult::Error(failure) => return Confirmation::Failed(NoAnswer::Failed(failure.to_string())),
        GetResult::Object(value) => value,
    };
    let Some(uid) = value.pointer("/metadata/uid").and_then(Value::as_str) else {
        return Confirmation::Failed(NoAnswer::NoUid);
    };
    if api_uid.is_some_and(|known| known != uid) {
        return Confirmation::Gone;
    }
    match convert(&value) {
        Ok(daemon_set) => match policy.covers(&daemon_set, None) {
            Covered::Yes(_) => Confirmation::StillThere,
            Covered::No(_) => Confirmation::NotCovered,
        },
        Err(_) => Confirmation::StillThere,
    }
}

/// Asks about everything that a mirror pod of `key` on `node` goes with. `daemon_set`: the UID that is remembered of a
/// DaemonSet of the API.
pub(super) async fn survey(
    api: &Api,
    node: &str,
    key: &ObjectKey,
    daemon_set: Option<String>,
    known: Option<String>,
) -> Survey {
    let other = match api.cluster_uid().await {
        Err(failure) => Some(NoAnswer::Failed(failure.to_string())),
        Ok(uid) if known.as_ref().is_some_and(|known| *known != uid) => Some(NoAnswer::AnotherCluster),
        Ok(_) => None,
    };
    let (node, namespace) = tokio::join!(api.get_node(node), api.get_namespace(&key.namespace));
    let daemon_set = match daemon_set {
        Some(uid) => Some((judged(&api.get_daemon_set(key).await), Some(uid))),
        None => None,
    };
    let (node_ready, shutting_down) = match &node {
        GetResult::Object(node) => ready_condition(node),
        GetResult::NotFound | GetResult::Error(_) => (false, false),
    };
    let node = other.map_or_else(|| judged(&node), ObjectState::Unknown);
    let namespace = match judged(&namespace) {
        ObjectState::There { uid, going } => ObjectState::There { uid, going: going || is_terminating(&namespace) },
        other => other,
    };
    Survey { daemon_set, node, shutting_down, node_ready, namespace, ended: true }
}

fn judged(live: &GetResult) -> ObjectState {
    match live {
        GetResult::Object(object) => ObjectState::There {
            uid: object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
            going: object.pointer("/metadata/deletionTimestamp").is_some(),
        },
        GetResult::NotFound => ObjectState::Gone,
        GetResult::Error(failure) => ObjectState::Unknown(NoAnswer::Failed(failure.to_string())),
    }
}

fn is_terminating(namespace: &GetResult) -> bool {
    matches!(namespace, GetResult::Object(object) if object.pointer("/status/phase").is_some_and(|p| p == "Terminating"))
}

/// Whether a Node is Ready, and whether it reports that it shuts down.
fn ready_condition(node: &Value) -> (bool, bool) {
    let Some(ready) = condition(node, "Ready") else { return (false, false) };
    (ready.str_at("status") == "True", kubelet::shuts_down(ready.str_at("message")))
}

#[cfg(test)]
mod tests;
