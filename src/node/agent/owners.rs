//! Giving mirror pods to their DaemonSets, and back to the Node.
//!
//! Owns the patch of `ownerReferences`. It replaces the whole list (owners are merged by UID otherwise, and a
//! pod cannot have two controllers), names the pod's UID and resource version, and a pod is given only
//! to a DaemonSet that the API server itself has just shown: one that is gone, or goes, would have the garbage
//! collector delete what belongs to it, again and again. Must not decide: `crate::core::owners` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::owners::Owner;
use crate::core::record::Millis;
use crate::core::status::Problem;
use crate::node::api::Api;
use crate::node::api::Failure;
use crate::node::api::FailureKind;
use crate::node::api::Live;
use crate::node::api::Snapshot;

use super::Agent;
use super::evidence;
use super::inbox::Inbox;
use super::now;

/// What was not done is tried again after this.
const AGAIN: Millis = 5_000;
/// What was forbidden is tried again after this.
const FORBIDDEN: Millis = 60_000;

/// What has been asked for, by mirror pod UID.
#[derive(Default)]
pub(super) struct Owners {
    tried: BTreeMap<String, Tried>,
    inbox: Inbox<(String, Outcome)>,
    next: Option<Millis>,
}

struct Tried {
    /// UID of the owner that it is to have.
    owner: String,
    /// When it may be asked for again.
    again: Millis,
    /// Why the API server does not let us.
    forbidden: Option<String>,
}

/// How a request ended.
enum Outcome {
    Done,
    /// The owner is not, or not any more, one to have pods; or the pod has changed.
    NotNow(String),
    Failed(Failure),
}

/// A mirror pod that is to have another owner.
struct Task {
    key: ObjectKey,
    uid: String,
    version: String,
    owner: Value,
    /// The DaemonSet that has to be there, with its UID.
    daemon_set: Option<(ObjectKey, String)>,
}

impl Owners {
    /// When to try again.
    pub(super) fn next(&self) -> Option<Millis> {
        self.next
    }

    /// That the API server forbids it, if it does.
    pub(super) fn problem(&self) -> Option<Problem> {
        let why = self.tried.values().find_map(|tried| tried.forbidden.as_ref())?;
        Some(Problem {
            object: "mirror pods".to_owned(),
            reason: format!("they cannot be given to their DaemonSets, and `kubectl describe` counts none: {why}"),
            hint: Some("apply packaging/k8s/rbac.yaml: the agent patches the pods of its node".to_owned()),
        })
    }

    fn is_due(&self, pod: &str, owner: &str, at: Millis) -> bool {
        self.tried.get(pod).is_none_or(|tried| tried.owner != owner || tried.again <= at)
    }
}

impl Agent {
    /// Brings the owners of mirror pods to what they are to be.
    pub(super) fn settle_owners(&mut self, snapshot: &Snapshot) {
        let at = now();
        for (uid, outcome) in self.owners.inbox.take() {
            let Some(tried) = self.owners.tried.get_mut(&uid) else { continue };
            tried.forbidden = None;
            match outcome {
                Outcome::Done => {}
                Outcome::NotNow(why) => tracing::debug!("a mirror pod keeps its owner: {why}"),
                Outcome::Failed(failure) => {
                    tracing::debug!("a mirror pod keeps its owner: {failure}");
                    if failure.kind == FailureKind::Forbidden {
                        (tried.again, tried.forbidden) = (at + FORBIDDEN, Some(failure.to_string()));
                    }
                }
            }
        }
        self.owners.next = None;
        let Some(api) = self.api.clone().filter(|_| self.api_answers(Some(snapshot))) else { return };
        let tasks = self.owner_tasks(snapshot);
        self.owners.tried.retain(|uid, _| tasks.iter().any(|(task, _)| task.uid == *uid));
        for (task, owner) in tasks {
            if self.owners.is_due(&task.uid, &owner, at) {
                let tried = Tried { owner, again: at + AGAIN, forbidden: None };
                let before = self.owners.tried.insert(task.uid.clone(), tried);
                // It stays said until the answer comes.
                let forbidden = before.and_then(|tried| tried.forbidden);
                if let Some(tried) = self.owners.tried.get_mut(&task.uid) {
                    tried.forbidden = forbidden;
                }
                let (api, inbox, wake) = (api.clone(), self.owners.inbox.clone(), Arc::clone(&self.wake));
                tokio::spawn(async move {
                    let outcome = give(&api, &task).await;
                    inbox.put((task.uid, outcome), &wake);
                });
            }
        }
        self.owners.next = self.owners.tried.values().map(|tried| tried.again).min();
    }

    /// The mirror pods that have another owner than they are to have, each with its owner's UID.
    fn owner_tasks(&self, snapshot: &Snapshot) -> Vec<(Task, String)> {
        let mut tasks = Vec::new();
        let node = &self.config.node_name;
        let plans = self.plan.daemons.iter().filter(|plan| !self.failures.contains_key(&plan.key));
        for plan in plans {
            let Some(daemon_set) = self.definitions.get(&plan.key) else { continue };
            // A folder's definition may be in force though the API has one.
            let from_api = plan.summary.source == Some(daemon_set.source.clone());
            for instance in plan.record.live() {
                let Some(pod) = evidence::mirror(snapshot, &plan.key.namespace, instance, node) else { continue };
                let wanted = match from_api {
                    true => owners::owner(instance, plan.summary.mode, daemon_set, plan.summary.stock_pod.is_some()),
                    false => Owner::AsItIs,
                };
                let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
                let (Some(uid), Some(version)) = (text("/metadata/uid"), text("/metadata/resourceVersion")) else {
                    continue;
                };
                let going = pod.pointer("/metadata/deletionTimestamp").is_some();
                let Some((owner, owner_uid)) = self.change(pod, &plan.key, wanted).filter(|_| !going) else { continue };
                let key = evidence::mirror_key(&plan.key.namespace, &instance.pod_name, node);
                let of_daemon_set = owner.pointer("/kind").is_some_and(|kind| kind == "DaemonSet");
                let daemon_set = of_daemon_set.then(|| (plan.key.clone(), owner_uid.clone()));
                tasks.push((Task { key, uid, version, owner, daemon_set }, owner_uid));
            }
        }
        tasks
    }

    /// The reference that is to take the place of a mirror pod's owners, with the owner's UID, if it is to have
    /// another one.
    fn change(&self, pod: &Value, key: &ObjectKey, wanted: Owner) -> Option<(Value, String)> {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let controller = owners.into_iter().flatten().find(|o| o.get("controller").is_some_and(|c| *c == true));
        let text = |name: &str| controller.and_then(|c| c.get(name)).and_then(Value::as_str).unwrap_or_default();
        match wanted {
            Owner::DaemonSet(uid) if matches!(text("kind"), "" | "Node" | "DaemonSet") && text("uid") != uid => {
                Some((reference("apps/v1", "DaemonSet", &key.name, &uid), uid))
            }
            Owner::Node if text("kind") == "DaemonSet" => {
                let uid = self.node.uid.clone()?;
                Some((reference("v1", "Node", &self.node.name, &uid), uid))
            }
            Owner::DaemonSet(_) | Owner::Node | Owner::AsItIs => None,
        }
    }
}

/// A controller's reference. Without `blockOwnerDeletion`: that takes a right that agents do not have.
fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Asks for the DaemonSet, and patches the pod.
async fn give(api: &Api, task: &Task) -> Outcome {
    if let Some((key, uid)) = &task.daemon_set {
        let live = match api.get_daemon_set(key).await {
            Live::Object(live) => live,
            Live::NotFound => return Outcome::NotNow(format!("DaemonSet {key} is gone")),
            Live::Error(failure) => return Outcome::Failed(failure),
        };
        if live.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid)
            || live.pointer("/metadata/deletionTimestamp").is_some()
        {
            return Outcome::NotNow(format!("DaemonSet {key} is being deleted, or is another one"));
        }
    }
    let patch = |version: &str| {
        let metadata = json!({"uid": task.uid, "resourceVersion": version, "ownerReferences": [task.owner]});
        json!({ "metadata": metadata })
    };
    match api.patch_pod(&task.key, &patch(&task.version)).await {
        Ok(()) => return Outcome::Done,
        Err(failure) if failure.kind != FailureKind::Conflict => return Outcome::Failed(failure),
        Err(_) => {}
    }
    // What the agent keeps of a pod is not all of it: the rest has changed since.
    let live = match api.get_pod(&task.key).await {
        Live::Object(live) => live,
        Live::NotFound => return Outcome::NotNow("it is gone".to_owned()),
        Live::Error(failure) => return Outcome::Failed(failure),
    };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str);
    if text("/metadata/uid") != Some(&task.uid) || live.pointer("/metadata/deletionTimestamp").is_some() {
        return Outcome::NotNow("it goes, or another one has its place".to_owned());
    }
    match api.patch_pod(&task.key, &patch(text("/metadata/resourceVersion").unwrap_or_default())).await {
        Ok(()) => Outcome::Done,
        Err(failure) => Outcome::Failed(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_given_time() {
        let mut owners = Owners::default();
        assert!(owners.is_due("m", "d1", 0));
        owners.tried.insert("m".to_owned(), Tried { owner: "d1".to_owned(), again: AGAIN, forbidden: None });
        assert!(!owners.is_due("m", "d1", AGAIN - 1));
        assert!(owners.is_due("m", "d1", AGAIN), "the first one was refused");
        assert!(owners.is_due("m", "n1", 0), "another owner");
    }
}
