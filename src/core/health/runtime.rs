//! The container runtime's view: sandboxes and containers, but no readiness.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::record::Cause;
use crate::core::record::Failure;
use crate::core::time::Timestamp;

use super::ContainerFact;
use super::CrashDiagnosis;
use super::Does;
use super::PodFact;

/// Since when all long-running containers run, each in its latest attempt; `None`: not all of them run.
pub fn steady_since(template: &Value, pod: &PodFact) -> Option<Timestamp> {
    let names = staying(template);
    let runs = |name: &str| latest(pod, name).filter(|c| c.does == Does::Runs).map(|c| c.made);
    let since: Option<Vec<Timestamp>> = names.iter().map(|name| runs(name)).collect();
    since?.into_iter().max()
}

/// Of the containers that have crashed repeatedly since `since`, the one that ended last.
pub fn crashed<'a>(template: &Value, pod: &'a PodFact, since: Timestamp) -> Option<&'a ContainerFact> {
    let (names, stay) = (declared(template), staying(template));
    // An init container that is followed by another one has succeeded.
    let is_done = |at: usize, c: &ContainerFact| {
        !stay.contains(&names[at])
            && names[at + 1..].iter().any(|next| latest(pod, next).is_some_and(|n| n.made > c.made))
    };
    let all = names.iter().enumerate().filter_map(|(at, name)| Some((at, latest(pod, name)?)));
    let again = all.filter(|(at, c)| c.does == Does::Ended && c.restarts > 0 && c.made >= since && !is_done(*at, c));
    again.map(|(_, c)| c).max_by_key(|c| c.made)
}

/// What is wrong according to the runtime. Sandboxes and containers from before `since` (the instance's start, the
/// node's boot) prove nothing: the kubelet may not have started it yet.
pub fn by_runtime(
    template: &Value,
    pod: &PodFact,
    since: Timestamp,
    crash_diagnosis: Option<&CrashDiagnosis>,
) -> Option<Failure> {
    if let Some(container) = crashed(template, pod, since) {
        let known = crash_diagnosis.filter(|a| a.container == container.name).cloned().unwrap_or_default();
        return Some(Failure { cause: Cause::CrashLoop, message: known.words(&container.name) });
    }
    let newest = pod.sandboxes.iter().max_by_key(|s| s.made)?;
    let runs = pod.containers.iter().any(|c| c.does == Does::Runs);
    if !newest.ready && newest.made >= since && !runs {
        let message = "its sandbox is not ready (pod network?)".to_owned();
        return Some(Failure { cause: Cause::Sandbox, message });
    }
    None
}

/// The latest attempt of a container.
fn latest<'a>(pod: &'a PodFact, name: &str) -> Option<&'a ContainerFact> {
    pod.containers.iter().filter(|c| c.name == name).max_by_key(|c| (c.made, c.restarts))
}

fn containers<'a>(template: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    template.list_at(["spec", field]).iter()
}

/// Init containers in order, then the others.
fn declared(template: &Value) -> Vec<&str> {
    containers(template, "initContainers")
        .chain(containers(template, "containers"))
        .filter_map(|container| container.text_at("name"))
        .collect()
}

/// The containers that run as long as the pod does.
fn staying(template: &Value) -> Vec<&str> {
    let sidecar = |c: &&Value| c.get("restartPolicy").is_some_and(|policy| policy == "Always");
    containers(template, "initContainers")
        .filter(sidecar)
        .chain(containers(template, "containers"))
        .filter_map(|container| container.text_at("name"))
        .collect()
}
