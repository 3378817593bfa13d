//! The API server's reply, and its meaning.
//!
//! Owns the difference between a refusal of the pod, a question that we may not put, and no answer.

use std::sync::Arc;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::upstream::api_server;
use crate::core::upstream::api_server::Objection;

use super::fold;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum DryRunReply {
    /// The pod, as it would have been created.
    Pod(Value),
    /// A status that is no success.
    Status {
        /// The HTTP code.
        code: u16,
        /// The API server's words.
        message: String,
        /// Whether it names an object: the refusal of a pod does, the refusal of the request as a whole does not.
        names_object: bool,
    },
    /// Not an API server's reply; why.
    NoAnswer(String),
}

/// Its meaning.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum DryRunVerdict {
    /// The pod would be created; what a new instance is made from.
    Admitted(Arc<Value>),
    /// It would not, in the API server's words.
    Refused(String),
    /// The API server gave no verdict on it.
    Unanswered(Unanswered),
}

/// Why there is no verdict on a pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Unanswered {
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
    /// Whether the next try may well go better.
    pub passing: bool,
}

impl Unanswered {
    /// Something that passes.
    pub fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None, passing: true }
    }
}

/// The manifest that gives an agent the right to ask.
pub const GRANT: &str = "kubectl apply -f /usr/share/daemonlet/k8s/admission-policies.yaml -f \
                         /usr/share/daemonlet/k8s/rbac-dry-run.yaml (packaging/k8s in the repository), or set \
                         policy.admission = \"off\"";

/// What `reply` says about the pod of `daemon_set`.
pub fn judge(daemon_set: &DaemonSet, reply: &DryRunReply) -> DryRunVerdict {
    let (code, message, names_object) = match reply {
        DryRunReply::Pod(pod) => {
            return match fold::template(daemon_set, pod) {
                Ok(template) => DryRunVerdict::Admitted(Arc::new(template)),
                Err(why) => DryRunVerdict::Unanswered(Unanswered::passing(why)),
            };
        }
        DryRunReply::NoAnswer(why) => return DryRunVerdict::Unanswered(Unanswered::passing(why.clone())),
        DryRunReply::Status { code, message, names_object } => (*code, message, *names_object),
    };
    let permanent =
        |hint: String| DryRunVerdict::Unanswered(Unanswered { why: message.clone(), hint: Some(hint), passing: false });
    match (api_server::objection(message), code) {
        // Our own policies hold the agent, not the pod.
        (Some(Objection::OwnPolicy), _) => permanent(GRANT.to_owned()),
        (Some(Objection::NoDryRun), _) => permanent(
            "give that webhook sideEffects None or NoneOnDryRun, or set policy.admission = \"off\"".to_owned(),
        ),
        (Some(Objection::Denied), _) => DryRunVerdict::Refused(message.clone()),
        (None, 403) if !names_object => permanent(GRANT.to_owned()),
        (None, 400 | 403 | 422) => DryRunVerdict::Refused(message.clone()),
        (None, _) => DryRunVerdict::Unanswered(Unanswered::passing(format!("{message} ({code})"))),
    }
}
