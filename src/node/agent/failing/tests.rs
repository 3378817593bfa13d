use super::*;
use crate::core::health::ContainerFact;
use crate::core::health::Does;
use crate::core::health::PodFact;
use crate::core::health::SandboxFact;
use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::model::IntOrPercent;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::time::at;
use crate::node::agent::boot::Boot;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::api::Entry;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

fn instance() -> Instance {
    let daemon_set = DaemonSet {
        key: ObjectKey::new("a", "b"),
        uid: None,
        generation: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({}),
        template: json!({"spec": {"containers": [{"name": "main"}]}}),
        update_strategy: UpdateStrategy::RollingUpdate {
            max_unavailable: IntOrPercent::Int(1),
            max_surge: IntOrPercent::Int(0),
        },
        min_ready_seconds: 0,
        admitted: None,
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source: Source::Api,
    };
    Instance { daemon_set: Some(Arc::new(daemon_set)), ..Instance::new("u", "b-x", 0, "r", at(1_000)) }
}

type CrashingRuntime = Knowledge<Arc<Vec<RuntimePod>>>;

fn crashing() -> CrashingRuntime {
    let fact = PodFact {
        sandboxes: vec![SandboxFact { ready: true, made: at(2_000) }],
        containers: vec![ContainerFact { name: "main".into(), restarts: 2, does: Does::Ended, made: at(3_000) }],
    };
    let pod = RuntimePod { crashing: true, fact, ..RuntimePod::test("u", true) };
    Knowledge::Current(Arc::new(vec![pod]))
}

fn api(pod: Option<Value>, node: &str) -> Snapshot {
    let entry = |value| Entry { version: 1, value: Arc::new(value) };
    let mut api = Snapshot::default();
    let ready = json!({"type": "Ready", "status": node, "message": "Kubelet stopped posting node status."});
    api.node = Some(entry(json!({"status": {"conditions": [ready]}})));
    if let Some(mut pod) = pod {
        pod["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": "u"}});
        api.pods.insert(evidence::mirror_key("a", "b-x", "n"), entry(pod));
    }
    api
}

fn reported(api: Option<&Snapshot>, runtime: &CrashingRuntime, rejected: Option<&str>) -> Option<(Cause, String)> {
    let observation = Observation::of(None, runtime.clone(), 0);
    let failure_evidence =
        FailureEvidence { api, observation: &observation, crash_diagnoses: &CrashDiagnoses::default(), node: "n" };
    let rejected = rejected.map(|message| Failure { cause: Cause::Admission, message: message.to_owned() });
    failure(&instance(), "a", rejected, &failure_evidence).map(|f| (f.cause, f.message))
}

fn cause(api: Option<&Snapshot>, runtime: &CrashingRuntime, rejected: Option<&str>) -> Option<Cause> {
    reported(api, runtime, rejected).map(|(cause, _)| cause)
}

#[test]
fn the_kubelet_comes_before_the_runtime_and_a_silent_one_before_all() {
    let image =
        json!({"status": {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}]}});
    assert_eq!(cause(Some(&api(Some(image.clone()), "True")), &crashing(), None), Some(Cause::Image));
    let silent = reported(Some(&api(Some(image.clone()), "Unknown")), &crashing(), None).unwrap();
    assert_eq!(silent, (Cause::KubeletNotResponding, "Kubelet stopped posting node status.".to_owned()));
    assert_eq!(cause(Some(&api(Some(image), "False")), &crashing(), None), Some(Cause::Image), "it is there to say so");
    assert_eq!(cause(None, &crashing(), None), Some(Cause::CrashLoop));
    assert_eq!(cause(Some(&api(None, "True")), &crashing(), None), Some(Cause::CrashLoop), "without a mirror pod");
}

#[test]
fn a_rejected_pod_is_named_and_what_nobody_sees_is_not_the_revisions_fault() {
    let nothing = Knowledge::Current(Arc::default());
    assert_eq!(reported(None, &nothing, Some("NodePorts")), Some((Cause::Admission, "NodePorts".to_owned())));
    assert_eq!(cause(None, &nothing, None), Some(Cause::KubeletNotResponding));
    assert_eq!(cause(None, &Knowledge::Unreadable(String::new().into()), None), Some(Cause::KubeletNotResponding));
}

#[test]
fn what_the_runtime_has_of_another_boot_proves_nothing() {
    let boot = Boot::new(String::new(), at(4_000));
    let observation = Observation { boot, ..Observation::of(None, crashing(), 0) };
    let failure_evidence = FailureEvidence {
        api: None,
        observation: &observation,
        crash_diagnoses: &CrashDiagnoses::default(),
        node: "n",
    };
    assert_eq!(failure(&instance(), "a", None, &failure_evidence), None);
}
