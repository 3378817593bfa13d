//! What the runtime, the kubelet and the mirror pods say of an instance.
//!
//! Owns the order of evidence: the CRI before anything else, the mirror pod last; the kubelet's
//! `/pods` says nothing about what ended.

pub(in crate::node::agent) mod room;
pub(in crate::node::agent) mod this_boot;

use std::sync::Arc;

use serde_json::Value;

use crate::core::health;
use crate::core::json::condition;
use crate::core::json::is_condition_true;
use crate::core::json::list_at;
use crate::core::json::text_at;
use crate::core::knowledge::Knowledge;
use crate::core::model::ObjectKey;
use crate::core::owners::MIRROR_ANNOTATION;
use crate::core::plan::PassPhase;
use crate::core::plan::Readiness;
use crate::core::plan::Unready;
use crate::core::plan::Unseen;
use crate::core::qos;
use crate::core::qos::QosClass;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::observation::Observation;
use super::runtime_pods::RuntimePod;

/// How long the kubelet is given to create a mirror pod before other evidence counts.
pub(super) const MIRROR_LATE: Span = Span::from_secs(20);

/// How long after its grace period an instance that still runs counts as forgotten.
const FORGOTTEN: Span = Span::from_secs(60);

/// Where the mirror pod of an instance is to be found.
pub(super) fn mirror_key(namespace: &str, pod_name: &str, node: &str) -> ObjectKey {
    ObjectKey::new(namespace, format!("{pod_name}-{}", node.to_lowercase()))
}

/// The mirror pod of `instance`, if the API shows one with its UID as hash.
pub(super) fn mirror<'a>(api: &'a Snapshot, namespace: &str, instance: &Instance, node: &str) -> Option<&'a Value> {
    let pod = &api.pods.get(&mirror_key(namespace, &instance.pod_name, node))?.value;
    let hash = text_at(pod, &["metadata", "annotations", MIRROR_ANNOTATION]);
    (hash == Some(instance.uid.as_str())).then_some(pod)
}

/// The mirror pod of `instance` if it shows what the kubelet reports: a status with another QoS class than the kubelet's own
/// pod has never takes what the kubelet writes (`ValidatePodStatusUpdate`).
pub(super) fn reporting_mirror<'a>(
    api: &'a Snapshot,
    namespace: &str,
    instance: &Instance,
    node: &str,
) -> Option<&'a Value> {
    mirror(api, namespace, instance, node).filter(|mirror| other_class(mirror, instance).is_none())
}

/// The QoS class of `instance`, if its mirror pod has another one.
pub(super) fn other_class(mirror: &Value, instance: &Instance) -> Option<QosClass> {
    let reported = text_at(mirror, &["status", "qosClass"])?;
    let own = qos::of_containers(instance.daemon_set.as_ref()?.pod_template())?;
    (own.as_str() != reported).then_some(own)
}

/// What a pass that has `passes` before it is to an instance.
pub(super) fn moment(instance: &Instance, observation: &Observation, passes: u64) -> PassPhase {
    let has_run = || observation.run_in_this_boot.contains(&instance.uid);
    match passes {
        0 if observation.is_before_kubelet && !has_run() => PassPhase::BeforeKubelet,
        0 => PassPhase::First,
        _ => PassPhase::Later,
    }
}

/// Why the pods in the runtime are not known.
pub(super) fn why_unknown(runtime: &Knowledge<Arc<Vec<RuntimePod>>>) -> Unseen {
    match runtime {
        Knowledge::Unreadable(why) => Unseen::Unreadable(why.clone()),
        _ => Unseen::NotAsked,
    }
}

/// Whether the kubelet, which is there, has left an instance running that should have ended `waited`
/// milliseconds ago. A Node turns NotReady at the latest 50 s after its kubelet went.
pub(super) fn is_forgotten(instance: &Instance, api: Option<&Snapshot>, waited: Span) -> bool {
    let is_late = waited >= grace_period(instance) + FORGOTTEN;
    is_late && api.is_some_and(|api| node_ready(api) == Some(true))
}

/// The pod's grace period; the API's default is 30 s.
pub(super) fn grace_period(instance: &Instance) -> Span {
    let spec = instance.daemon_set.as_ref().and_then(|d| d.pod_template().get("spec"));
    let seconds = spec.and_then(|s| s.get("terminationGracePeriodSeconds")).and_then(Value::as_i64);
    Span::from_secs(seconds.unwrap_or(30))
}

/// Whether nothing on a Node that is not ready is ready, as for Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeReadyCondition {
    Counts,
    Ignored,
}

/// Whether an instance is ready: by the mirror pod while the API answers, else by the kubelet, else by the
/// runtime. If the mirror pod does not appear (the API may refuse it), or cannot take the kubelet's reports, the kubelet and
/// the runtime still count.
pub(super) fn readiness(
    instance: &Instance,
    observation: &Observation,
    namespace: &str,
    node: &str,
    condition: NodeReadyCondition,
) -> Readiness {
    let pod = observation.runtime_pod(&instance.uid);
    let api = observation.snapshot().filter(|_| observation.api_answers());
    if let Some(api) = api.filter(|api| api.lists(&Scope::Pods) > 0) {
        let mirror = mirror(api, namespace, instance, node);
        if let Some(mirror) = mirror.filter(|mirror| other_class(mirror, instance).is_none()) {
            let node_ready = if condition == NodeReadyCondition::Ignored { Some(true) } else { node_ready(api) };
            return reported_readiness(mirror, node_ready);
        }
        if mirror.is_none() && (observation.now - instance.created < MIRROR_LATE || pod.is_none()) {
            return Readiness::NotReady(Unready::NoMirrorPod);
        }
    }
    if let Some(reported) = pod.and_then(|p| p.reported.as_ref()) {
        return reported_readiness(reported, Some(true));
    }
    let steady = |p: &RuntimePod| match &instance.daemon_set {
        Some(daemon_set) if !p.fact.sandboxes.is_empty() => health::steady_since(daemon_set.pod_template(), &p.fact),
        _ => p.running_since,
    };
    match (pod, &observation.runtime) {
        (Some(pod), _) => match (steady(pod), pod.running_since) {
            (Some(since), _) => Readiness::Steady { since },
            (None, Some(_)) => Readiness::Unknown(Unseen::RunsInPart),
            (None, None) => Readiness::NotReady(Unready::NothingRuns),
        },
        (None, Knowledge::Current(_)) => Readiness::NotReady(Unready::NothingRuns),
        (None, Knowledge::Absent(_)) => Readiness::Unknown(Unseen::NoneAnswers),
        (None, unknown) => Readiness::Unknown(why_unknown(unknown)),
    }
}

/// Whether the Node is Ready: not without the condition, as upstream has it. `None`: the API shows no Node.
fn node_ready(api: &Snapshot) -> Option<bool> {
    api.node.as_ref().map(|node| is_condition_true(&node.value, "Ready"))
}

/// The Node's Ready condition.
pub(super) fn node_condition(api: &Snapshot) -> Option<&Value> {
    condition(&api.node.as_ref()?.value, "Ready")
}

/// What the kubelet says of a pod.
fn reported_readiness(pod: &Value, node_ready: Option<bool>) -> Readiness {
    match (health::readiness(pod), node_ready) {
        (Some((true, since)), Some(true)) => Readiness::Ready { since },
        (Some((true, _)), Some(false)) => Readiness::NotReady(Unready::NodeNotReady),
        (Some((true, _)), None) => Readiness::Unknown(Unseen::NoNode),
        (Some((false, _)) | None, _) => Readiness::NotReady(Unready::Reported(health::why_not_ready(pod))),
    }
}

/// Whether the mirror pod shows that a sandbox of it has been there. The kubelet gives containers that
/// it has yet to create a status, too; only one that has been created has an id.
pub(super) fn has_started(pod: &Value) -> bool {
    let created = |list: &str| {
        let id = |s: &Value| s.get("containerID").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        list_at(pod, &["status", list]).iter().any(id)
    };
    text_at(pod, &["status", "phase"]) == Some("Running")
        || created("containerStatuses")
        || created("initContainerStatuses")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::time::at;
    use crate::core::time::ms;

    use super::*;

    #[test]
    fn a_container_that_is_being_created_has_not_started() {
        let status = |s: Value| json!({"status": {"phase": "Pending", "containerStatuses": [s]}});
        let waiting = json!({"name": "c", "containerID": "", "state": {"waiting": {"reason": "ContainerCreating"}}});
        assert!(!has_started(&status(waiting)));
        assert!(has_started(&status(json!({"name": "c", "containerID": "containerd://1"}))));
        assert!(has_started(&json!({"status": {"phase": "Running"}})));
    }

    #[test]
    fn a_pod_is_ready_on_a_node_that_is_known_to_be_ready() {
        let pod = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let on = |node: Option<Value>| {
            let mut api = Snapshot::default();
            api.node = node.map(|node| crate::node::api::Entry { version: 1, value: Arc::new(node) });
            reported_readiness(&pod, node_ready(&api))
        };
        let is_ready = |status| on(Some(json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})));
        assert!(matches!(is_ready("True"), Readiness::Ready { .. }));
        assert!(matches!(is_ready("Unknown"), Readiness::NotReady(_)));
        assert!(matches!(on(Some(json!({"status": {}}))), Readiness::NotReady(_)), "a new Node has no conditions yet");
        assert!(matches!(on(None), Readiness::Unknown(_)));
    }

    #[test]
    fn a_pod_that_runs_long_after_its_grace_period_is_forgotten_where_a_kubelet_is_there() {
        let instance = Instance::new("u", "p", 0, "", at(0));
        let node = |ready: &str| {
            let value = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            let node = crate::node::api::Entry { version: 1, value: std::sync::Arc::new(value) };
            let mut api = Snapshot::default();
            api.node = Some(node);
            api
        };
        let late = Span::from_secs(30) + FORGOTTEN;
        assert!(is_forgotten(&instance, Some(&node("True")), late));
        assert!(!is_forgotten(&instance, Some(&node("True")), late - ms(1)));
        assert!(!is_forgotten(&instance, Some(&node("Unknown")), late), "no kubelet would start the next one");
        assert!(!is_forgotten(&instance, None, late));
    }
}
