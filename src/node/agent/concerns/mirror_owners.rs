//! Giving mirror pods to their DaemonSets, and back to the Node.
//!
//! Owns when that is asked for. `crate::core::owners` decides who is to own a mirror pod.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::json::at;
use crate::core::json::list_at;
use crate::core::json::text_at;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::owners::MirrorPodOwner;
use crate::core::pass::Plan;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::FailureKind;

use super::super::definitions::ApiDefinitions;
use super::super::evidence;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::requests::OwnerChange;
use super::super::requests::OwnerResult;
use super::super::requests::Reply;
use super::super::requests::Request;

/// A change that was not made is tried again after this.
const AGAIN: Span = Span::from_secs(5);
/// How long a mirror pod has been there before it is given away, and up to how much longer: by then a stock
/// controller, if one acts, has its own pod here, and not all nodes of a cluster do it at one moment.
const WAIT: Span = Span::from_secs(2);
const WAIT_MORE: Span = Span::from_secs(2);
/// How long after its last pod was seen a DaemonSet controller counts as one that acts: it makes another pod at once.
const ACTS: Span = Span::from_secs(60);
/// A change that was forbidden is tried again after this.
const FORBIDDEN: Span = Span::from_secs(60);

/// What has been asked for, by mirror pod UID.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct MirrorOwners {
    tried: BTreeMap<String, OwnerAttempt>,
    /// When a pod of a DaemonSet controller was last seen, by daemon.
    stock: BTreeMap<ObjectKey, Timestamp>,
    next: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct OwnerAttempt {
    /// UID of the owner that it is to have.
    owner: String,
    /// When it may be asked for, for the first time or again.
    again: Timestamp,
    /// Why the API server does not allow it.
    forbidden: Option<String>,
}

/// To whom a mirror pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    DaemonSet,
    Node,
}

impl MirrorOwners {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        for reply in &observation.replies {
            let Reply::OwnerChanged { mirror_uid, result } = reply else { continue };
            let Some(tried) = self.tried.get_mut(mirror_uid) else { continue };
            tried.forbidden = None;
            match result {
                OwnerResult::Done => {}
                OwnerResult::NotNow(why) => {
                    log.debug(format!("mirror pod {mirror_uid} keeps its owner: {why}"));
                }
                OwnerResult::Failed(failure) => {
                    log.debug(format!("mirror pod {mirror_uid} keeps its owner: {failure}"));
                    if failure.kind == FailureKind::Forbidden {
                        (tried.again, tried.forbidden) = (observation.now + FORBIDDEN, Some(failure.to_string()));
                    }
                }
            }
        }
    }

    /// The changes of owners that are due. `known`: the daemons that this node keeps.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        plan: &Plan,
        definitions: &ApiDefinitions,
        node: &NodeView,
    ) -> Vec<Request> {
        self.next = None;
        let Some(api) = observation.snapshot().filter(|_| observation.api_answers()) else { return Vec::new() };
        let now = observation.now;
        self.stock.retain(|_, seen| (Span::ZERO..ACTS).contains(&(now - *seen)));
        let stock = plan.daemons.iter().filter(|daemon| daemon.summary.stock_pod.is_some());
        self.stock.extend(stock.map(|daemon| (daemon.key.clone(), now)));
        let mut changes = Vec::new();
        for daemon in &plan.daemons {
            let Some(daemon_set) = definitions.get(&daemon.key) else { continue };
            // A folder's definition may be in force though the API has one.
            let from_api = daemon.summary.source == Some(daemon_set.source.clone());
            for instance in daemon.record.live() {
                let Some(pod) = evidence::mirror(api, &daemon.key.namespace, instance, &node.name) else { continue };
                let stock_acts = self.stock.contains_key(&daemon.key);
                let owner = match from_api {
                    true => owners::owner(instance, daemon.summary.mode, daemon_set, stock_acts),
                    false => MirrorPodOwner::AsItIs,
                };
                // Another DaemonSet's pod is given to the one that adopted it only while it is an orphan: that is what
                // the admission policy allows.
                let adopted = instance.daemon_set.as_ref().is_some_and(|d| d.key != daemon.key);
                if adopted && !list_at(pod, &["metadata", "ownerReferences"]).is_empty() {
                    continue;
                }
                let key = evidence::mirror_key(&daemon.key.namespace, &instance.pod_name, &node.name);
                changes.extend(change(pod, key, &daemon.key, owner, node));
            }
        }
        self.tried.retain(|uid, _| changes.iter().any(|(change, _)| change.uid == *uid));
        let is_due = |(change, owner): &(OwnerChange, String)| {
            let to = if change.daemon_set.is_some() { To::DaemonSet } else { To::Node };
            self.take_turn(&change.uid, owner, to, observation)
        };
        let requests = changes.into_iter().filter(is_due).map(|(change, _)| Request::ChangeOwner(change)).collect();
        let forgotten = self.stock.values().map(|seen| *seen + ACTS);
        self.next = self.tried.values().map(|tried| tried.again).chain(forgotten).min();
        requests
    }

    /// When to try again.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next
    }

    /// That the API server forbids it, if it does.
    pub(in super::super) fn problem(&self) -> Option<Problem> {
        let why = self.tried.values().find_map(|tried| tried.forbidden.as_ref())?;
        Some(Problem {
            object: "mirror pods".to_owned(),
            reason: format!("they cannot be given to their DaemonSets, and `kubectl describe` counts none: {why}"),
            hint: Some("apply /usr/share/daemonlet/k8s/rbac.yaml: the agent patches the pods of its node".to_owned()),
        })
    }

    /// Whether the pod is to be given to `owner` now; that is remembered as asked for.
    fn take_turn(&mut self, pod: &str, owner: &str, to: To, observation: &Observation) -> bool {
        let now = observation.now;
        let Some(tried) = self.tried.get_mut(pod).filter(|tried| tried.owner == owner) else {
            let wait = if to == To::DaemonSet { WAIT + WAIT_MORE.mul_f64(observation.random) } else { AGAIN };
            let tried = OwnerAttempt { owner: owner.to_owned(), again: now + wait, forbidden: None };
            self.tried.insert(pod.to_owned(), tried);
            return to == To::Node;
        };
        // A clock that was set back makes nothing wait longer.
        tried.again = tried.again.min(now + FORBIDDEN);
        let due = tried.again <= now;
        if due {
            tried.again = now + AGAIN;
        }
        due
    }
}

/// The change that gives the mirror pod to `wanted`, with the owner's UID, if it has another owner.
fn change(
    pod: &Value,
    key: ObjectKey,
    daemon: &ObjectKey,
    wanted: MirrorPodOwner,
    node: &NodeView,
) -> Option<(OwnerChange, String)> {
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        return None;
    }
    let controller =
        list_at(pod, &["metadata", "ownerReferences"]).iter().find(|o| o.get("controller").is_some_and(|c| *c == true));
    let text = |name: &str| controller.and_then(|c| c.get(name)).and_then(Value::as_str).unwrap_or_default();
    let (owner, uid, daemon_set) = match wanted {
        MirrorPodOwner::DaemonSet(uid) if matches!(text("kind"), "" | "Node" | "DaemonSet") && text("uid") != uid => {
            (reference("apps/v1", "DaemonSet", &daemon.name, &uid), uid.clone(), Some((daemon.clone(), uid)))
        }
        MirrorPodOwner::Node if text("kind") == "DaemonSet" => {
            let uid = node.uid.clone()?;
            (reference("v1", "Node", &node.name, &uid), uid, None)
        }
        MirrorPodOwner::DaemonSet(_) | MirrorPodOwner::Node | MirrorPodOwner::AsItIs => return None,
    };
    let change = OwnerChange {
        pod: key,
        uid: text_at(pod, &["metadata", "uid"])?.to_owned(),
        resource_version: text_at(pod, &["metadata", "resourceVersion"])?.to_owned(),
        owner,
        daemon_set,
    };
    Some((change, uid))
}

/// A controller's reference. Without `blockOwnerDeletion`: that takes a right that agents do not have.
fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_given_away_after_a_while_and_back_at_once() {
        let mut owners = MirrorOwners::default();
        let mut turn = |owner: &str, to, now: Timestamp| {
            owners.take_turn("m", owner, to, &Observation { now, random: 1.0, ..Observation::default() })
        };
        let start = Timestamp::from_millis(0);
        let later = |span: Span| start + span;
        let ms = Span::from_millis(1);
        assert!(!turn("d1", To::DaemonSet, start), "a DaemonSet controller's pod may yet come");
        assert!(!turn("d1", To::DaemonSet, later(WAIT - ms)));
        assert!(turn("d1", To::DaemonSet, later(WAIT + WAIT_MORE)));
        let again = WAIT + WAIT_MORE + AGAIN;
        assert!(!turn("d1", To::DaemonSet, later(again - ms)), "it was asked for");
        assert!(turn("d1", To::DaemonSet, later(again)), "the first one was refused");
        assert!(turn("n1", To::Node, later(again)));
        assert!(!turn("n1", To::Node, later(again + ms)));
    }
}
