//! The kubelet's view: a pod's status in the mirror pod or in the kubelet's `/pods`.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::json::condition;
use crate::core::json::is_condition_true;
use crate::core::record::Cause;
use crate::core::record::Failure;
use crate::core::time::Timestamp;

use super::CrashDiagnosis;
use super::one_line;

/// Waiting reasons that blame the image (pkg/kubelet/images/types.go).
const IMAGE: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// The waiting reason of a container that has crashed repeatedly.
const CRASH: [&str; 2] = ["CrashLoopBackOff", "RunContainerError"];
/// Waiting reasons of a normal start.
const PATIENCE: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The condition Ready: its value, and since when.
pub fn readiness(pod: &Value) -> Option<(bool, Timestamp)> {
    let ready = condition(pod, "Ready")?;
    let since = ready.text_at("lastTransitionTime").and_then(|time| time.parse().ok());
    Some((ready.get("status").is_some_and(|s| s == "True"), since.unwrap_or_default()))
}

/// What is wrong with a pod according to the kubelet; `None` if it is ready, or the kubelet reports nothing yet.
pub fn by_status(pod: &Value, crash_diagnosis: Option<&CrashDiagnosis>) -> Option<Failure> {
    if is_condition_true(pod, "Ready") {
        return None;
    }
    let failure = |cause, message: String| Some(Failure { cause, message });
    if let Some((status, reason)) = waiting(pod).find(|(_, reason)| IMAGE.contains(reason)) {
        return failure(Cause::Image, said(status, reason));
    }
    if let Some((name, status)) = crash(pod) {
        return failure(Cause::CrashLoop, end(status, crash_diagnosis.filter(|a| a.container == name)).words(name));
    }
    if let Some((status, reason)) = waiting(pod).find(|(_, reason)| !PATIENCE.contains(reason)) {
        return failure(Cause::Container, said(status, reason));
    }
    let has_sandbox = condition(pod, "PodReadyToStartContainers").map(|c| c.get("status").is_some_and(|s| s == "True"));
    if has_sandbox == Some(false) {
        return failure(Cause::Sandbox, "the kubelet has not made its sandbox (pod network, volumes?)".to_owned());
    }
    let mut inits = statuses(pod, "initContainerStatuses").filter(|s| s.at(["state", "running"]).is_some());
    let mut all = statuses(pod, "containerStatuses").peekable();
    let all_run = all.peek().is_some() && all.all(|s| s.at(["state", "running"]).is_some());
    if all_run {
        let late: Vec<&str> =
            statuses(pod, "containerStatuses").filter(|s| !s.flag_at("ready")).map(|s| s.str_at("name")).collect();
        let is_starting = |s: &Value| s.get("started") == Some(&Value::Bool(false));
        let starting = statuses(pod, "containerStatuses").any(is_starting);
        let probe = if starting { "startup probe" } else { "readiness probe" };
        return match late.is_empty() {
            false => failure(Cause::Probe, format!("the {probe} of container {} fails", late.join(", "))),
            // A readiness gate, which nothing on this node can set.
            true => failure(Cause::Container, why_not_ready(pod)),
        };
    }
    // The kubelet also lists sidecars as init containers; those are `started`.
    let stuck = inits.find(|s| !s.flag_at("started"))?;
    failure(Cause::Container, format!("init container {} has not ended", stuck.str_at("name")))
}

/// The name of a container that crashes repeatedly, and its restart count.
pub fn crashing(pod: &Value) -> Option<(&str, u64)> {
    crash(pod).map(|(name, status)| (name, status.get("restartCount").and_then(Value::as_u64).unwrap_or(0)))
}

fn crash(pod: &Value) -> Option<(&str, &Value)> {
    let again = |s: &Value| s.get("restartCount").and_then(Value::as_u64).unwrap_or(0) > 0;
    let ended = |s: &Value| s.at(["state", "terminated"]).is_some() || s.at(["lastState", "terminated"]).is_some();
    let waits = |s: &Value| waits_for(s).is_some_and(|reason| CRASH.contains(&reason));
    let is_done = |s: &Value| s.at(["state", "terminated", "exitCode"]) == Some(&Value::from(0)) && s.flag_at("ready");
    let all = || statuses(pod, "initContainerStatuses").chain(statuses(pod, "containerStatuses"));
    let found =
        all().find(|s| waits(s)).or_else(|| all().find(|s| again(s) && ended(s) && !s.flag_at("ready") && !is_done(s)));
    found.map(|status| (status.str_at("name"), status))
}

/// How a container last ended, from the kubelet, the runtime and the log.
fn end(status: &Value, crash_diagnosis: Option<&CrashDiagnosis>) -> CrashDiagnosis {
    let ended = ["state", "lastState"].iter().find_map(|state| status.at([state, "terminated"]));
    let mut end = crash_diagnosis.cloned().unwrap_or_default();
    if let Some(ended) = ended {
        let code = ended.get("exitCode").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        end.exit_code = code.or(end.exit_code);
        end.reason = ended.str_at("reason").to_owned();
        if end.message.is_empty() {
            end.message = ended.str_at("message").to_owned();
        }
    }
    if end.message.is_empty() {
        end.message = status.str_at(["state", "waiting", "message"]).to_owned();
    }
    end
}

/// Why a pod is not ready, according to the kubelet.
pub fn why_not_ready(pod: &Value) -> String {
    if let Some((status, reason)) = waiting(pod).find(|(_, reason)| !PATIENCE.contains(reason)) {
        return said(status, reason);
    }
    let message = condition(pod, "Ready").map_or("", |c| c.str_at("message"));
    let phase = pod.str_at(["status", "phase"]);
    match (message.is_empty(), phase) {
        (false, _) => message.to_owned(),
        (true, "") => "not ready yet".to_owned(),
        // The kubelet gives a message; the control plane gives none, on all pods of a Node whose kubelet is silent.
        (true, _) if is_condition_true(pod, "ContainersReady") => {
            "its containers are ready, the node is not Ready".to_owned()
        }
        (true, phase) => format!("phase {phase}, not ready yet"),
    }
}

fn said(status: &Value, reason: &str) -> String {
    let message = status.str_at(["state", "waiting", "message"]);
    match message.is_empty() {
        true => format!("{}: {reason}", status.str_at("name")),
        false => format!("{}: {reason}: {}", status.str_at("name"), one_line(message)),
    }
}

fn waiting(pod: &Value) -> impl Iterator<Item = (&Value, &str)> {
    let all = statuses(pod, "initContainerStatuses").chain(statuses(pod, "containerStatuses"));
    all.filter_map(|s| Some((s, waits_for(s)?)))
}

fn waits_for(status: &Value) -> Option<&str> {
    status.text_at(["state", "waiting", "reason"])
}

fn statuses<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.list_at(["status", list]).iter()
}
