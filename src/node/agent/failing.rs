//! Why an instance is not available, and who may say so.
//!
//! Owns the order of evidence: the mirror pod while the kubelet keeps it up to date, the kubelet's own
//! API, its word at admission, the runtime. That nobody sees anything is no failure of a revision.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::health;
use crate::core::model::ObjectKey;
use crate::core::record::Cause;
use crate::core::record::DaemonRecord;
use crate::core::record::Failure;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Snapshot;

use super::Agent;
use super::crash_diagnosis::CrashDiagnoses;
use super::evidence;
use super::evidence::MIRROR_LATE;
use super::evidence::Runtime;
use super::now;

/// How long the API server has to answer before what it shows of pods counts as what the kubelet says
/// now: the kubelet sends what has changed meanwhile within 10 s of its own reconnection.
const CURRENT_AFTER: Span = Span::from_secs(20);

/// Since when the API server's view of this node's pods is followed.
#[derive(Debug, Default)]
pub(super) struct ApiFreshness {
    since: Option<Timestamp>,
    /// Whether it has ever been lost: an agent that starts finds a kubelet that has long been heard.
    lost: bool,
}

impl ApiFreshness {
    /// Notes whether the API answers.
    pub(super) fn follow(&mut self, answers: bool, at: Timestamp) {
        self.lost |= self.since.is_some() && !answers;
        self.since = answers.then(|| self.since.map_or(at, |since| since.min(at)));
    }

    /// Whether what the API shows is what the kubelet says now.
    pub(super) fn is_current(&self, at: Timestamp) -> bool {
        self.since.is_some_and(|since| !self.lost || at - since >= CURRENT_AFTER)
    }
}

/// What failures are told from.
pub(super) struct FailureEvidence<'a> {
    /// The API's view, while it is current.
    pub(super) api: Option<&'a Snapshot>,
    pub(super) runtime: &'a Runtime,
    pub(super) crash_diagnoses: &'a CrashDiagnoses,
    pub(super) node: &'a str,
    pub(super) booted: Timestamp,
}

/// Why `instance` is not available, if somebody says so; `rejected`: the kubelet's words at admission.
pub(super) fn failure(
    instance: &Instance,
    namespace: &str,
    rejected: Option<String>,
    failure_evidence: &FailureEvidence<'_>,
) -> Option<Failure> {
    if failure_evidence.crash_diagnoses.is_pending(&instance.uid) {
        // It is told with its last words, soon.
        return None;
    }
    let crash_diagnosis = failure_evidence.crash_diagnoses.of(&instance.uid);
    if let Some(message) = failure_evidence.api.and_then(unresponsive_kubelet) {
        return Some(Failure { cause: Cause::KubeletNotResponding, message });
    }
    let pod = failure_evidence.runtime.pod(&instance.uid);
    let mirror = failure_evidence.api.and_then(|api| evidence::mirror(api, namespace, instance, failure_evidence.node));
    if let Some(reported) = mirror.or_else(|| pod?.reported.as_ref()) {
        return health::by_status(reported, crash_diagnosis);
    }
    if let Some(message) = rejected {
        return Some(Failure { cause: Cause::Admission, message });
    }
    let since = instance.created.max(failure_evidence.booted);
    let seen = pod.zip(instance.daemon_set.as_ref());
    if let Some((pod, daemon_set)) = seen {
        return health::by_runtime(daemon_set.pod_template(), &pod.fact, since, crash_diagnosis);
    }
    let message = "neither a sandbox nor a mirror pod of it has been seen".to_owned();
    Some(Failure { cause: Cause::KubeletNotResponding, message })
}

/// What is said of a kubelet that does not renew its Node any more. (One that says that its Node is not
/// ready is there to say how its pods do.)
fn unresponsive_kubelet(api: &Snapshot) -> Option<String> {
    let ready = evidence::node_condition(api)?;
    let unknown = ready.get("status").is_some_and(|status| status == "Unknown");
    let words = || ready.get("message").and_then(Value::as_str).unwrap_or("its Node is not renewed");
    unknown.then(|| words().to_owned())
}

impl Agent {
    /// Whether an instance has no mirror pod though the API answers and the kubelet had time for it.
    pub(super) fn lacks_mirror_pods(&self, api: Option<&Snapshot>) -> bool {
        let Some(api) = api else { return false };
        let at = now();
        self.disk.records.values().any(|record| {
            let late = |i: &&Instance| i.available.is_none() && at - i.created >= MIRROR_LATE;
            let lacks =
                |i: &Instance| evidence::mirror(api, &record.key.namespace, i, &self.config.node_name).is_none();
            record.live().filter(late).any(lacks)
        })
    }

    /// Has a look at what containers left that end again and again.
    pub(super) fn look_into_crashes(&mut self, records: &BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) {
        let Some(cri) = self.cri.clone() else { return };
        let mut crashing = BTreeMap::new();
        for record in records.values() {
            for instance in record.live().filter(|i| i.available.is_none()) {
                let mirror =
                    api.and_then(|api| evidence::mirror(api, &record.key.namespace, instance, &self.config.node_name));
                let reported = mirror.and_then(health::crashing).map(|(name, restarts)| (name.to_owned(), restarts));
                let seen = || {
                    let pod = self.runtime.pod(&instance.uid)?;
                    let crashed =
                        health::crashed(instance.daemon_set.as_ref()?.pod_template(), &pod.fact, instance.created)?;
                    Some((crashed.name.clone(), u64::from(crashed.restarts)))
                };
                if let Some(container) = reported.or_else(seen) {
                    crashing.insert(instance.uid.clone(), container);
                }
            }
        }
        self.crash_diagnoses.take(&crashing);
        self.crash_diagnoses.look(&cri, &self.disk.files, crashing, now(), &self.wake);
    }
}

#[cfg(test)]
mod tests;
