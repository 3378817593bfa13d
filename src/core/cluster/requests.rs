//! What the coordinator asks the API server for, and the answers.
//!
//! Owns the bodies of its writes, each conditional on the version of the object that it was decided from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_json::json;

use crate::core::model::HASH_LABEL;
use crate::core::model::ObjectKey;

use super::broken::BROKEN_ANNOTATION;
use super::events::Trouble;
use super::history;
use super::liveness;
use super::liveness::MirrorPodLookup;
use super::pass::ObjectWrite;
use super::released::HALTED_ANNOTATION;
use super::released::RELEASED_ANNOTATION;
use super::released::RETRIED_ANNOTATION;
use super::snapshot::ClusterSnapshot;
use super::snapshot::StockPodClaim;
use super::snapshot::WatchedDaemon;
use super::snapshot::WatchedKind;
use super::steps::STEP_ANNOTATION;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRequest {
    /// Its reply has the same one; no two requests of a process do.
    pub number: u64,
    /// What it is about.
    pub target: RequestTarget,
    /// The version of the object that it was decided from.
    pub version: String,
    /// What is sent.
    pub call: Call,
}

/// What a request is about: the same for each try.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestTarget {
    /// The approvals of a node.
    Approvals(String),
    /// The status of a DaemonSet.
    Status(ObjectKey),
    /// The collision count in the status of a DaemonSet.
    Collision(ObjectKey),
    /// A ControllerRevision: of which DaemonSet, what about it, and its name.
    Revision(ObjectKey, RevisionChange, String),
    /// The approval of a certificate request: its name, and the node that it is for.
    Certificate(String, String),
    /// A pod that an agent reports.
    Pod(StockPodClaim),
    /// The mirror pod of a node whose agent is dead.
    Mirror(MirrorPodLookup),
    /// The agents' Leases.
    Leases,
    Event(Trouble),
}

/// What is done to a ControllerRevision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevisionChange {
    /// It is created.
    Create,
    /// It gets an owner.
    Adopt,
    /// It is let go.
    Release,
    /// It gets a label.
    Label,
    /// It gets a number.
    Renumber,
    /// It is deleted.
    Delete,
    /// Its rollout is halted.
    Halt,
    /// Its rollout goes to another step.
    Step,
    /// It has broken other nodes than before.
    Broken,
    Released,
}

/// One exchange with the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A merge patch that names UID and resource version.
    Patch(WatchedKind, ObjectKey, Value),
    /// The same of a DaemonSet's status.
    PatchStatus(ObjectKey, Value),
    /// A new ControllerRevision in a namespace. The API server keeps its `data` as the bytes that it was sent and
    /// compares them ever after: they have to be the ones that Go would write.
    CreateRevision(String, String),
    /// A merge patch of a ControllerRevision, once a GET has shown that the DaemonSet is there with this UID and is
    /// not being deleted, as upstream's `canAdoptFunc`: a DaemonSet that was deleted with `orphan` takes back nothing
    /// that it has just let go.
    AdoptRevision(ObjectKey, Value, ObjectKey, String),
    /// The deletion of a ControllerRevision with this UID and resource version.
    DeleteRevision(ObjectKey, String, String),
    /// The approval of a certificate request as it was judged, once a GET has shown that the Node is there and is not
    /// being deleted: its name, the node, and the request with the approval.
    Approve(String, String, Value),
    GetPod(ObjectKey),
    /// The agents' Leases, from the API server's cache.
    ListLeases,
    /// An event of this name: the body that makes it, and the merge patch where it is there.
    Event(ObjectKey, Value, Value),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorReply {
    /// The request's number.
    pub number: u64,
    pub answer: RequestOutcome,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestOutcome {
    Written,
    /// The object is another by now, or gone: a watch brings what is there. With the API server's message.
    Outdated(String),
    /// It was not sent: the Lease may have gone.
    NotSent,
    Failed(SendError),
    /// The pod as it is; `None`: there is none of that name.
    Pod(Option<Box<Value>>),
    /// `renewTime` of each agent's Lease, by node.
    Leases(BTreeMap<String, String>),
}

/// How a request failed, with the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The API server refuses it for what it is: a right, a quota, an admission policy, a schema.
    Refused(String),
    /// No answer, or none that will be the same a second later: too many requests, a timeout, a fault of the server, a
    /// token that is to be renewed.
    Unanswered(String),
}

impl SendError {
    /// By the HTTP status of the answer.
    pub fn of(status: u16, message: String) -> Self {
        match status {
            401 | 408 | 429 => Self::Unanswered(message),
            400..=499 => Self::Refused(message),
            _ => Self::Unanswered(message),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(message) | Self::Unanswered(message)) = self;
        f.write_str(message)
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approvals(node) => write!(f, "approvals of node {node}"),
            Self::Status(key) => write!(f, "status of {key}"),
            Self::Collision(key) => write!(f, "collision count of {key}"),
            Self::Revision(key, RevisionChange::Create, name) => write!(f, "new revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Adopt, name) => write!(f, "adoption of revision {name} by {key}"),
            Self::Revision(key, RevisionChange::Release, name) => write!(f, "release of revision {name} by {key}"),
            Self::Revision(key, RevisionChange::Label, name) => write!(f, "label of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Renumber, name) => write!(f, "number of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Delete, name) => write!(f, "deletion of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Halt, name) => write!(f, "halt of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Step, name) => write!(f, "step of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Broken, name) => write!(f, "broken nodes of revision {name} of {key}"),
            Self::Revision(key, RevisionChange::Released, name) => {
                write!(f, "release mark of revision {name} of {key}")
            }
            Self::Certificate(name, _) => write!(f, "certificatesigningrequest {name}"),
            Self::Pod(claim) => write!(f, "pod {} on node {}", claim.pod, claim.node),
            Self::Mirror(look) => write!(f, "pod {} on node {}", look.pod, look.node),
            Self::Event(trouble) => write!(f, "event on {}", trouble.key),
            Self::Leases => write!(f, "Leases in {}", liveness::NAMESPACE),
        }
    }
}

/// What a write is about.
pub(super) fn target(write: &ObjectWrite) -> RequestTarget {
    let (key, write) = match write {
        ObjectWrite::Approvals { node, .. } => return RequestTarget::Approvals(node.clone()),
        ObjectWrite::Status { key, .. } => return RequestTarget::Status(key.clone()),
        ObjectWrite::Certificate { name, node } => return RequestTarget::Certificate(name.clone(), node.clone()),
        ObjectWrite::Revision { key, write } => (key.clone(), write),
    };
    let (change, name) = match write {
        history::RevisionWrite::Collision => return RequestTarget::Collision(key),
        history::RevisionWrite::Create { name, .. } => (RevisionChange::Create, name),
        history::RevisionWrite::Adopt { name } => (RevisionChange::Adopt, name),
        history::RevisionWrite::Label { name } => (RevisionChange::Label, name),
        history::RevisionWrite::Release { name } => (RevisionChange::Release, name),
        history::RevisionWrite::Renumber { name, .. } => (RevisionChange::Renumber, name),
        history::RevisionWrite::Delete { name } => (RevisionChange::Delete, name),
        history::RevisionWrite::Halt { name, .. } | history::RevisionWrite::Retried { name, .. } => {
            (RevisionChange::Halt, name)
        }
        history::RevisionWrite::Step { name, .. } => (RevisionChange::Step, name),
        history::RevisionWrite::Broken { name, .. } => (RevisionChange::Broken, name),
        history::RevisionWrite::Released { name, .. } => (RevisionChange::Released, name),
    };
    RequestTarget::Revision(key, change, name.clone())
}

/// What is sent for a write, and the version of the object that it was decided from. `None`: there is no such object.
pub(super) fn call(view: &ClusterSnapshot, write: ObjectWrite) -> Option<(String, Call)> {
    match write {
        ObjectWrite::Approvals { node, spec } => {
            let report = view.report(&node)?;
            let metadata = condition(&report.uid, &report.resource_version);
            let patch = json!({"metadata": metadata, "spec": {"approvals": spec.approvals}});
            let call = Call::Patch(WatchedKind::NodeDaemons, ObjectKey::new("", &node), patch);
            Some((report.resource_version.clone(), call))
        }
        ObjectWrite::Status { key, status, .. } => {
            view.daemons.get(&key).map(|daemon| patch_status(key, daemon, status))
        }
        ObjectWrite::Revision { key, write } => revision(view, key, write),
        ObjectWrite::Certificate { name, node } => {
            let request = view.certificate_requests.get(&name)?;
            let user = &request.user;
            let mut approved = request.object.clone()?;
            approved["status"]["conditions"] = json!([{
                "type": "Approved",
                "status": "True",
                "reason": "NodeExists",
                "message": format!("daemonlet's coordinator: the agent of Node {node}, asked for by {user}"),
            }]);
            Some((request.resource_version.clone(), Call::Approve(name, node, approved)))
        }
    }
}

fn patch_status(key: ObjectKey, daemon: &WatchedDaemon, status: Value) -> (String, Call) {
    let patch = json!({"metadata": condition(&daemon.uid, &daemon.resource_version), "status": status});
    (daemon.resource_version.clone(), Call::PatchStatus(key, patch))
}

/// Metadata that makes a patch conditional.
fn condition(uid: &str, version: &str) -> Value {
    json!({"uid": uid, "resourceVersion": version})
}

fn revision(view: &ClusterSnapshot, key: ObjectKey, write: history::RevisionWrite) -> Option<(String, Call)> {
    let daemon = view.daemons.get(&key)?;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": key.name, "uid": daemon.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    // Owners of others stay: a merge patch replaces the list.
    let owners = |name: &str, controller: Option<Value>| {
        let known = view.revisions.get(&ObjectKey::new(&key.namespace, name));
        json!(known.into_iter().flat_map(|known| known.other_owners.clone()).chain(controller).collect::<Vec<_>>())
    };
    let of = |name: &str| {
        let key = ObjectKey::new(&key.namespace, name);
        let known = view.revisions.get(&key)?;
        let version = known.resource_version.clone();
        Some((key, known.uid.clone(), condition(&known.uid, &version), version))
    };
    Some(match write {
        history::RevisionWrite::Collision => {
            let count = daemon.status.get("collisionCount").and_then(Value::as_i64).unwrap_or(0);
            patch_status(key, daemon, json!({"collisionCount": count + 1}))
        }
        history::RevisionWrite::Create { name, label, number, data, halted } => {
            // That a rollout is halted is a fact about one revision.
            let mut annotations = daemon.daemon_set.annotations.clone();
            annotations.remove(HALTED_ANNOTATION);
            annotations.extend(halted.map(|halted| (HALTED_ANNOTATION.to_owned(), halted.annotation())));
            annotations.remove(RETRIED_ANNOTATION);
            annotations.remove(STEP_ANNOTATION);
            annotations.remove(BROKEN_ANNOTATION);
            annotations.remove(RELEASED_ANNOTATION);
            let object = json!({
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "labels": history::labels(&daemon.template.value(), &label),
                    "annotations": annotations,
                    "ownerReferences": [owner],
                },
                "data": data,
                "revision": number,
            });
            (daemon.resource_version.clone(), Call::CreateRevision(key.namespace, history::bytes(&object)))
        }
        history::RevisionWrite::Delete { name } => {
            let (of, uid, _, version) = of(&name)?;
            (version.clone(), Call::DeleteRevision(of, uid, version))
        }
        history::RevisionWrite::Adopt { name } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["ownerReferences"] = owners(&name, Some(owner));
            (version, Call::AdoptRevision(of, json!({"metadata": metadata}), key, daemon.uid.clone()))
        }
        history::RevisionWrite::Release { name } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["ownerReferences"] = owners(&name, None);
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Label { name } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["labels"] = json!({HASH_LABEL: name});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Halt { name, halted } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["annotations"] = json!({HALTED_ANNOTATION: halted.annotation()});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Step { name, state } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["annotations"] = json!({STEP_ANNOTATION: state.annotation()});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Broken { name, broken } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["annotations"] = json!({BROKEN_ANNOTATION: broken.annotation()});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Released { name, generation } => {
            let (of, _, mut metadata, version) = of(&name)?;
            metadata["annotations"] = json!({RELEASED_ANNOTATION: format!("{}/{generation}", daemon.uid)});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Retried { name, nodes } => {
            let (of, _, mut metadata, version) = of(&name)?;
            let nodes: Vec<String> = nodes.into_iter().collect();
            let value = if nodes.is_empty() { Value::Null } else { json!(nodes.join(",")) };
            metadata["annotations"] = json!({RETRIED_ANNOTATION: value});
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata})))
        }
        history::RevisionWrite::Renumber { name, number } => {
            let (of, _, metadata, version) = of(&name)?;
            (version, Call::Patch(WatchedKind::Revisions, of, json!({"metadata": metadata, "revision": number})))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_and_what_does_not() {
        for (status, refused) in [
            (400, true),
            (401, false),
            (403, true),
            (408, false),
            (422, true),
            (429, false),
            (500, false),
            (503, false),
        ] {
            assert_eq!(matches!(SendError::of(status, String::new()), SendError::Refused(_)), refused, "{status}");
        }
    }
}
