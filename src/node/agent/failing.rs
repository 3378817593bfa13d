//! Why an instance is not available, and which component's report counts.
//!
//! Owns the order of evidence: the mirror pod while the kubelet keeps it up to date, the kubelet's own
//! API, its answer at admission, the runtime. Missing evidence is no failure of a revision.

use serde_json::Value;

use crate::core::health;
use crate::core::record::Cause;
use crate::core::record::Failure;
use crate::core::record::Instance;
use crate::node::api::Snapshot;

use super::concerns::crash_diagnosis::CrashDiagnoses;
use super::evidence;
use super::observation::Observation;

/// The evidence from which failures are found.
pub(super) struct FailureEvidence<'a> {
    /// The API's view, while it is current.
    pub(super) api: Option<&'a Snapshot>,
    pub(super) observation: &'a Observation,
    pub(super) crash_diagnoses: &'a CrashDiagnoses,
    pub(super) node: &'a str,
}

/// Why `instance` is not available, if a component reports it; `rejected`: why the kubelet has not accepted it.
pub(super) fn failure(
    instance: &Instance,
    namespace: &str,
    rejected: Option<Failure>,
    known: &FailureEvidence<'_>,
) -> Option<Failure> {
    if known.crash_diagnoses.is_pending(&instance.uid) {
        // The failure is reported soon, together with the container's last log line.
        return None;
    }
    let crash_diagnosis = known.crash_diagnoses.of(&instance.uid);
    if let Some(message) = known.api.and_then(unresponsive_kubelet) {
        return Some(Failure { cause: Cause::KubeletNotResponding, message });
    }
    let pod = known.observation.runtime_pod(&instance.uid);
    let mirror = known.api.and_then(|api| evidence::reporting_mirror(api, namespace, instance, known.node));
    if let Some(reported) = mirror.or_else(|| pod?.reported.as_ref()) {
        return health::by_status(reported, crash_diagnosis);
    }
    if rejected.is_some() {
        return rejected;
    }
    let since = instance.created.max(known.observation.boot.at);
    let seen = pod.zip(instance.daemon_set.as_ref());
    if let Some((pod, daemon_set)) = seen {
        return health::by_runtime(daemon_set.pod_template(), &pod.fact, since, crash_diagnosis);
    }
    let message = "neither a sandbox nor a mirror pod of it has been seen".to_owned();
    Some(Failure { cause: Cause::KubeletNotResponding, message })
}

/// The message for a kubelet that does not renew its Node any more. (A kubelet that reports its Node as not
/// ready still reports its pods.)
pub(super) fn unresponsive_kubelet(api: &Snapshot) -> Option<String> {
    let ready = evidence::node_condition(api)?;
    let unknown = ready.get("status").is_some_and(|status| status == "Unknown");
    let words = || ready.get("message").and_then(Value::as_str).unwrap_or("its Node is not renewed");
    unknown.then(|| words().to_owned())
}

#[cfg(test)]
mod tests;
