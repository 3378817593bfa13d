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

use crate::core::json::at;
use crate::core::json::list_at;
use crate::core::json::text_at;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::owners::MirrorPodOwner;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::GetResult;
use crate::node::api::Snapshot;
use crate::node::api::random;

use super::Agent;
use super::evidence;
use super::inbox::Inbox;
use super::now;

/// What was not done is tried again after this.
const AGAIN: Span = Span::from_secs(5);
/// How long a mirror pod has been there before it is given away, and up to how much longer: by then a stock
/// controller, if one acts, has its own pod here, and not all nodes of a cluster do it at one moment.
const WAIT: Span = Span::from_secs(2);
const WAIT_MORE: Span = Span::from_secs(2);
/// How long after its last pod was seen a stock controller counts as one that acts: it makes another pod at once.
const ACTS: Span = Span::from_secs(60);
/// What was forbidden is tried again after this.
const FORBIDDEN: Span = Span::from_secs(60);

/// What has been asked for, by mirror pod UID.
#[derive(Default)]
pub(super) struct Owners {
    tried: BTreeMap<String, Tried>,
    /// When a pod of a stock controller was last seen, by daemon.
    stock: BTreeMap<ObjectKey, Timestamp>,
    inbox: Inbox<(String, Outcome)>,
    next: Option<Timestamp>,
}

struct Tried {
    /// UID of the owner that it is to have.
    owner: String,
    /// When it may be asked for, for the first time or again.
    again: Timestamp,
    /// Why the API server does not let us.
    forbidden: Option<String>,
}

/// How a request ended.
enum Outcome {
    Done,
    /// The owner is not, or not any more, one to have pods; or the pod has changed.
    NotNow(String),
    Failed(ApiFailure),
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
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// That the API server forbids it, if it does.
    pub(super) fn problem(&self) -> Option<Problem> {
        let why = self.tried.values().find_map(|tried| tried.forbidden.as_ref())?;
        Some(Problem {
            object: "mirror pods".to_owned(),
            reason: format!("they cannot be given to their DaemonSets, and `kubectl describe` counts none: {why}"),
            hint: Some("apply /usr/share/daemonlet/k8s/rbac.yaml: the agent patches the pods of its node".to_owned()),
        })
    }

    /// Whether the pod is to be given to `owner` now; that is remembered as asked for.
    fn take_turn(&mut self, pod: &str, owner: &str, to_daemon_set: bool, at: Timestamp) -> bool {
        let known = self.tried.get_mut(pod).filter(|tried| tried.owner == owner);
        let Some(tried) = known else {
            let again = at + if to_daemon_set { WAIT + WAIT_MORE.mul_f64(random()) } else { AGAIN };
            self.tried.insert(pod.to_owned(), Tried { owner: owner.to_owned(), again, forbidden: None });
            return !to_daemon_set;
        };
        let due = tried.again <= at;
        if due {
            tried.again = at + AGAIN;
        }
        due
    }

    fn stock_acts(&self, key: &ObjectKey) -> bool {
        self.stock.contains_key(key)
    }
}

impl Agent {
    /// Brings the owners of mirror pods to what they are to be.
    pub(super) fn reconcile_owners(&mut self, snapshot: &Snapshot) {
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
        self.owners.stock.retain(|_, seen| (Span::ZERO..ACTS).contains(&(at - *seen)));
        let stock = self.plan.daemons.iter().filter(|plan| plan.summary.stock_pod.is_some());
        self.owners.stock.extend(stock.map(|plan| (plan.key.clone(), at)));
        let tasks = self.owner_tasks(snapshot);
        self.owners.tried.retain(|uid, _| tasks.iter().any(|(task, _)| task.uid == *uid));
        for (task, owner) in tasks {
            if self.owners.take_turn(&task.uid, &owner, task.daemon_set.is_some(), at) {
                let (api, inbox, wake) = (api.clone(), self.owners.inbox.clone(), Arc::clone(&self.wake));
                tokio::spawn(async move {
                    let outcome = give(&api, &task).await;
                    inbox.put((task.uid, outcome), &wake);
                });
            }
        }
        let forgotten = self.owners.stock.values().map(|seen| *seen + ACTS);
        self.owners.next = self.owners.tried.values().map(|tried| tried.again).chain(forgotten).min();
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
                    true => owners::owner(instance, plan.summary.mode, daemon_set, self.owners.stock_acts(&plan.key)),
                    false => MirrorPodOwner::AsItIs,
                };
                let text = |path: &[&str]| text_at(pod, path).map(str::to_owned);
                let (Some(uid), Some(version)) = (text(&["metadata", "uid"]), text(&["metadata", "resourceVersion"]))
                else {
                    continue;
                };
                // Another DaemonSet's pod is given to the one that adopted it only while it is an orphan: that is what
                // the admission policy allows.
                let adopted = instance.daemon_set.as_ref().is_some_and(|d| d.key != plan.key);
                let owners = at(pod, &["metadata", "ownerReferences"]).and_then(Value::as_array);
                if adopted && owners.is_some_and(|owners| !owners.is_empty()) {
                    continue;
                }
                let going = at(pod, &["metadata", "deletionTimestamp"]).is_some();
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
    fn change(&self, pod: &Value, key: &ObjectKey, wanted: MirrorPodOwner) -> Option<(Value, String)> {
        let owners = list_at(pod, &["metadata", "ownerReferences"]);
        let controller = owners.iter().find(|o| o.get("controller").is_some_and(|c| *c == true));
        let text = |name: &str| controller.and_then(|c| c.get(name)).and_then(Value::as_str).unwrap_or_default();
        match wanted {
            MirrorPodOwner::DaemonSet(uid)
                if matches!(text("kind"), "" | "Node" | "DaemonSet") && text("uid") != uid =>
            {
                Some((reference("apps/v1", "DaemonSet", &key.name, &uid), uid))
            }
            MirrorPodOwner::Node if text("kind") == "DaemonSet" => {
                let uid = self.node.uid.clone()?;
                Some((reference("v1", "Node", &self.node.name, &uid), uid))
            }
            MirrorPodOwner::DaemonSet(_) | MirrorPodOwner::Node | MirrorPodOwner::AsItIs => None,
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
            GetResult::Object(live) => live,
            GetResult::NotFound => return Outcome::NotNow(format!("DaemonSet {key} is gone")),
            GetResult::Error(failure) => return Outcome::Failed(failure),
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
        GetResult::Object(live) => live,
        GetResult::NotFound => return Outcome::NotNow("it is gone".to_owned()),
        GetResult::Error(failure) => return Outcome::Failed(failure),
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
    use crate::core::time::at;
    use crate::core::time::ms;

    #[test]
    fn a_pod_is_given_away_after_a_while_and_back_at_once() {
        let mut owners = Owners::default();
        assert!(!owners.take_turn("m", "d1", true, at(0)), "a stock controller's pod may yet come");
        assert!(!owners.take_turn("m", "d1", true, at(0) + WAIT - ms(1)));
        let late = at(0) + WAIT + WAIT_MORE;
        assert!(owners.take_turn("m", "d1", true, late));
        assert!(!owners.take_turn("m", "d1", true, late + AGAIN - ms(1)), "it was asked for");
        assert!(owners.take_turn("m", "d1", true, late + AGAIN), "the first one was refused");
        assert!(owners.take_turn("m", "n1", false, late + AGAIN));
        assert!(!owners.take_turn("m", "n1", false, late + AGAIN + ms(1)));
    }
}
