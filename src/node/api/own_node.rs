//! Writes to this node's Node, each with a right that an admission policy narrows.
//!
//! Owns what they share: the Node is the one that was meant, and a dry run has shown that the policy is in force. Must
//! not know what is written.

use kube::Api;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::upstream::api_server;
use crate::node::api::confirm;
use crate::node::api::confirm::GetResult;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NodeWriteResult {
    Done,
    /// The API server took a dry run that the policy has to refuse: nothing was written.
    NoPolicy,
    /// Nothing was written; the failure of the last request.
    Failed(ApiFailure),
}

impl From<ApiFailure> for NodeWriteResult {
    fn from(failure: ApiFailure) -> Self {
        Self::Failed(failure)
    }
}

impl NodeWriteResult {
    /// Why nothing was written. `policy`: which has to hold the agent.
    pub fn reason(&self, policy: &str) -> String {
        match self {
            Self::Done => String::new(),
            Self::NoPolicy => format!("the policy {policy} does not hold this agent"),
            Self::Failed(failure) => failure.to_string(),
        }
    }

    /// Whether a right or the policy is missing, which a person has to give.
    pub fn lacks_rights(&self) -> bool {
        match self {
            Self::Done => false,
            Self::NoPolicy => true,
            Self::Failed(failure) => failure.kind == FailureKind::Forbidden,
        }
    }
}

/// The Nodes of the cluster.
pub(super) fn nodes(client: &kube::Client) -> Api<RawObject> {
    Api::all_with(client.clone(), &object::api_resource("", "Node", "nodes"))
}

/// The Node `name`.
///
/// # Errors
/// It cannot be read, is not there, or has another UID than `uid`.
pub(super) async fn read(client: &kube::Client, name: &str, uid: Option<&str>) -> Result<Value, ApiFailure> {
    let node = match confirm::get_unnamespaced(client, ("Node", "nodes"), name).await {
        GetResult::Object(node) => node,
        GetResult::NotFound => {
            return Err(ApiFailure::new(FailureKind::NotFound, format!("there is no Node {name}")));
        }
        GetResult::Error(failure) => return Err(failure),
    };
    if uid.is_some_and(|uid| node.str_at(["metadata", "uid"]) != uid) {
        return Err(ApiFailure::new(FailureKind::Conflict, format!("the Node {name} is another one now")));
    }
    Ok(node)
}

/// Whether `policy`, and not only a missing right, refused a dry run.
///
/// # Errors
/// It did not: what follows from that.
pub(super) fn refused(policy: &str, dry_run: Result<RawObject, kube::Error>) -> Result<(), NodeWriteResult> {
    match dry_run {
        Ok(_) => Err(NodeWriteResult::NoPolicy),
        Err(kube::Error::Api(status)) if api_server::is_refused_by(&status.message, policy) => Ok(()),
        Err(error) => Err(NodeWriteResult::Failed(ApiFailure::from_kube(&error))),
    }
}
