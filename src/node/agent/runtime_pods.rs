//! The pods of this node as the container runtime, or else the kubelet, has them.
//!
//! Owns how sandboxes and containers are put together by pod. Must not say what follows for an instance: `super::evidence`
//! does.

use serde_json::Value;

use crate::core::health::ContainerFact;
use crate::core::health::Does;
use crate::core::health::PodFact;
use crate::core::health::SandboxFact;
use crate::core::model::INCARNATION_ANNOTATION;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::ObjectKey;
use crate::core::owners::SOURCE_ANNOTATION;
use crate::core::time::Timestamp;
use crate::node::cri::ContainerState;
use crate::node::cri::SandboxState;

/// An instance as its sandbox describes itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct DescribedInstance {
    /// The DaemonSet.
    pub(super) owner: ObjectKey,
    pub(super) incarnation: u64,
    /// The pod's name, the node's included.
    pub(super) pod: String,
}

/// One pod as the runtime has it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct RuntimePod {
    pub(super) uid: String,
    /// Whether its sandbox is up or any container of it runs.
    pub(super) alive: bool,
    /// Containers that run, and when the youngest of them was started.
    pub(super) running_since: Option<Timestamp>,
    /// The sandboxes of it that stand.
    pub(super) sandboxes: Vec<String>,
    /// The sandboxes of it that have ended, and with them their containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ended_sandboxes: Vec<String>,
    /// Whether a container of it has been restarted and has ended again.
    pub(super) crashing: bool,
    /// Its sandboxes and containers, if the runtime was asked.
    pub(super) fact: PodFact,
    /// What the kubelet says of it (`{"status": …}`), if it was asked.
    pub(super) reported: Option<Value>,
    /// Which instance it is, if it is a static pod with our annotations.
    #[serde(default)]
    pub(super) instance: Option<DescribedInstance>,
}

#[cfg(test)]
impl RuntimePod {
    /// A pod of which nothing else is known.
    pub(super) fn test(uid: &str, alive: bool) -> Self {
        Self {
            uid: uid.to_owned(),
            alive,
            running_since: None,
            sandboxes: Vec::new(),
            ended_sandboxes: Vec::new(),
            crashing: false,
            fact: PodFact::default(),
            reported: None,
            instance: None,
        }
    }
}

/// Puts sandboxes and containers together by pod.
pub(super) fn runtime_pods(
    sandboxes: &[crate::node::cri::Sandbox],
    containers: &[crate::node::cri::Container],
) -> Vec<RuntimePod> {
    let mut pods: Vec<RuntimePod> = Vec::new();
    for sandbox in sandboxes {
        let of_pod = || containers.iter().filter(|c| c.pod_uid == sandbox.uid);
        let running = of_pod().filter(|c| c.state == ContainerState::Running);
        let running_since = running.map(|c| Timestamp::from_millis(c.created_at_ns / 1_000_000)).max();
        // The runtime has lost touch with it: it may well run.
        let is_lost = of_pod().any(|c| c.state == ContainerState::Unknown);
        let alive = sandbox.state == SandboxState::Ready || running_since.is_some() || is_lost;
        let ended_again = |c: &crate::node::cri::Container| {
            let later = |o: &crate::node::cri::Container| o.name == c.name && o.created_at_ns > c.created_at_ns;
            c.state == ContainerState::Exited && c.restarts > 0 && !of_pod().any(later)
        };
        let crashing = of_pod().any(ended_again);
        // One that is not ready stands while a container of it may run.
        let may_run = |c: &crate::node::cri::Container| {
            c.sandbox_id == sandbox.id && matches!(c.state, ContainerState::Running | ContainerState::Unknown)
        };
        let is_standing = sandbox.state == SandboxState::Ready || of_pod().any(may_run);
        let standing = is_standing.then(|| sandbox.id.clone());
        let ended = (!alive).then(|| sandbox.id.clone());
        match pods.iter_mut().find(|p| p.uid == sandbox.uid) {
            Some(pod) => {
                pod.alive |= alive;
                pod.sandboxes.extend(standing);
                pod.ended_sandboxes.extend(ended);
            }
            None => pods.push(RuntimePod {
                uid: sandbox.uid.clone(),
                alive,
                running_since,
                sandboxes: standing.into_iter().collect(),
                ended_sandboxes: ended.into_iter().collect(),
                crashing,
                fact: fact(&sandbox.uid, sandboxes, containers),
                reported: None,
                instance: described(sandbox),
            }),
        }
    }
    pods
}

/// The instance that a sandbox is of. Of a pod from the API the annotations may be anybody's.
fn described(sandbox: &crate::node::cri::Sandbox) -> Option<DescribedInstance> {
    let annotation = |name: &str| sandbox.annotations.get(name).map(String::as_str);
    let (namespace, name) = annotation(OWNER_ANNOTATION)?.split_once('/')?;
    let is_ours = annotation(SOURCE_ANNOTATION) == Some("file") && namespace == sandbox.namespace;
    let incarnation = annotation(INCARNATION_ANNOTATION)?.parse().ok()?;
    is_ours.then(|| DescribedInstance {
        owner: ObjectKey::new(namespace, name),
        incarnation,
        pod: sandbox.name.clone(),
    })
}

/// A pod as the runtime has it, in the core's types.
fn fact(uid: &str, sandboxes: &[crate::node::cri::Sandbox], containers: &[crate::node::cri::Container]) -> PodFact {
    let does = |state| match state {
        ContainerState::Running => Does::Runs,
        ContainerState::Exited => Does::Ended,
        ContainerState::Created => Does::Else,
        ContainerState::Unknown => Does::Unknown,
    };
    let sandboxes = sandboxes.iter().filter(|s| s.uid == uid);
    let containers = containers.iter().filter(|c| c.pod_uid == uid);
    PodFact {
        sandboxes: sandboxes
            .map(|s| SandboxFact {
                ready: s.state == SandboxState::Ready,
                made: Timestamp::from_millis(s.created_at_ns / 1_000_000),
            })
            .collect(),
        containers: containers
            .map(|c| ContainerFact {
                name: c.name.clone(),
                restarts: c.restarts,
                does: does(c.state),
                made: Timestamp::from_millis(c.created_at_ns / 1_000_000),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_the_runtime_has_lost_touch_with_may_run() {
        let sandbox = crate::node::cri::Sandbox {
            uid: "u".to_owned(),
            id: "s".to_owned(),
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            attempt: 0,
            state: SandboxState::NotReady,
            created_at_ns: 0,
            annotations: Default::default(),
        };
        let alive = |state| {
            let container = crate::node::cri::Container {
                id: "c".to_owned(),
                sandbox_id: "s".to_owned(),
                pod_uid: "u".to_owned(),
                name: "c".to_owned(),
                restarts: 0,
                state,
                created_at_ns: 0,
                image_ref: String::new(),
            };
            let pods = runtime_pods(std::slice::from_ref(&sandbox), &[container]);
            assert_eq!(pods[0].ended_sandboxes.is_empty(), pods[0].alive, "one that may run is not cleared away");
            assert_eq!(pods[0].sandboxes.is_empty(), !pods[0].alive, "what no kubelet ends can be stopped");
            (pods[0].alive, pods[0].fact.containers[0].does)
        };
        assert_eq!(alive(ContainerState::Unknown), (true, Does::Unknown));
        assert_eq!(alive(ContainerState::Running), (true, Does::Runs));
        assert_eq!(alive(ContainerState::Exited), (false, Does::Ended));
        assert_eq!(alive(ContainerState::Created), (false, Does::Else));
    }
}
