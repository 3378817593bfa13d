//! What is remembered of good and bad revisions.
//!
//! Owns the values only; `core::plan` judges.

use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

use crate::core::cluster::released::Released;
use crate::core::model::DaemonSet;
use crate::core::named::named;
use crate::core::time::Timestamp;

use super::AdmissionVerdict;
use super::DaemonRecord;

/// What a roll-back returns to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Good {
    /// The hash of the revision.
    pub revision: String,
    /// Version of the data with which an instance of it was available, kept for a roll-back.
    pub data_version: String,
    /// Whether that data is kept (only if a roll-back is configured).
    #[serde(default)]
    pub has_rollback_data: bool,
    /// Data that an instance has used for a short time, and that may become the good data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<DataCandidate>,
    /// The DaemonSet of that revision; `None` while an instance in the record has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set: Option<Arc<DaemonSet>>,
}

/// A revision of which the kubelet accepted an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRevision {
    /// The hash of the revision.
    pub revision: String,
    /// The DaemonSet of that revision; `None` while an instance in the record has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set: Option<Arc<DaemonSet>>,
}

/// What decides whether the kubelet accepts a manifest, beside the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptanceConditions {
    /// The kubelet's version, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
    /// A digest of what the agent's configuration says of manifests.
    pub configuration: String,
    /// Whether the API server answers. Without it a rejection at admission shows nowhere.
    pub has_api: bool,
}

impl AcceptanceConditions {
    /// Whether it may accept now what it did not accept as `before`. Unknown conditions count as unchanged.
    pub fn differs(&self, before: &Self) -> bool {
        let kubelets = self.kubelet.as_ref().zip(before.kubelet.as_ref());
        kubelets.is_some_and(|(now, then)| now != then) || self.configuration != before.configuration
    }
}

impl DaemonRecord {
    /// Every definition that it holds, once: those of its instances, and those to which it may return.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<DaemonSet>> {
        let of_answer = self.answer.as_ref().and_then(|answer| match &answer.said {
            AdmissionVerdict::Admitted(daemon_set) => Some(daemon_set),
            AdmissionVerdict::Refused(_) => None,
        });
        let proved = [
            self.good.as_ref().and_then(|good| good.daemon_set.as_ref()),
            self.accepted.as_ref().and_then(|accepted| accepted.daemon_set.as_ref()),
        ];
        let ran = [self.last.as_ref(), self.previous.as_ref()].map(|run| Some(&run?.daemon_set));
        let of_instances = self.instances.iter().map(|instance| instance.daemon_set.as_ref());
        let all = of_instances.chain(proved).chain(ran).chain([of_answer]).flatten();
        let mut seen: Vec<*const DaemonSet> = Vec::new();
        all.filter(move |daemon_set| {
            let at = Arc::as_ptr(daemon_set);
            let is_new = !seen.contains(&at);
            seen.push(at);
            is_new
        })
    }
}

/// A revision that ran here, or was to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The hash of the revision.
    pub revision: String,
    pub daemon_set: Arc<DaemonSet>,
    /// Whether it did not run yet: an instance ended for it by a claimed approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
}

/// A released revision of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownRelease {
    /// The UID of the DaemonSet.
    pub uid: String,
    /// The revision.
    pub released: Released,
}

/// Data under observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataCandidate {
    pub data_version: String,
    /// Since when an instance has used it.
    pub since: Timestamp,
}

/// A revision that is being tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The hash of the revision.
    pub revision: String,
    /// Version of its data, for a daemon that restarts when its data changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// When the first instance of it was made.
    pub since: Timestamp,
}

/// A revision of which no instance became available within the progress deadline, or which the kubelet did not accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// The hash of the revision.
    pub revision: String,
    /// Version of its data, if that mattered (`restart-on: config`, or a template that was good with other data):
    /// other data are another try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    #[serde(flatten)]
    pub failure: Failure,
    /// The conditions under which it was not accepted, if that is why: under others it may be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<AcceptanceConditions>,
    /// When that was decided.
    pub at: Timestamp,
}

/// Why an instance is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The kind of cause.
    pub cause: Cause,
    /// The message of the kubelet, the runtime, or the container's last log line.
    pub message: String,
}

named! {
    /// What prevents an instance from being available.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum Cause {
        /// An image cannot be pulled.
        Image = "image",
        /// A container crashes repeatedly.
        CrashLoop = "crash loop",
        /// A container cannot be created or started, or an init container does not end.
        Container = "container",
        /// Its containers run, but a probe fails.
        Probe = "probe",
        /// The kubelet rejected it.
        Admission = "admission",
        /// The kubelet did not accept its manifest: it does not read it, or finds it invalid.
        NotAccepted = "not accepted",
        /// Its sandbox cannot be created: pod network, volumes.
        Sandbox = "sandbox",
        /// The kubelet does not respond, so no revision could start.
        KubeletNotResponding = "kubelet not responding",
    }
}

impl Cause {
    /// Whether the revision may be the cause.
    pub fn blames_revision(self) -> bool {
        self != Cause::KubeletNotResponding
    }
}

/// What [`DaemonRecord::retry`] reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retried {
    /// The revision that had failed.
    pub failed: Option<String>,
    /// Whether a new instance was waiting for its back-off.
    pub backoff: bool,
}

impl DaemonRecord {
    /// Clears failures and back-offs: what failed is tried again now, even if the revision waits for `update-jitter`
    /// or for the deletion of a pod.
    pub fn retry(&mut self, now: Timestamp) -> Retried {
        let failed = self.failed.take().map(|failed| failed.revision);
        self.progress = None;
        self.by_hand.clone_from(&failed);
        let mut backoff = self.backoff.take().is_some();
        for order in self.instances.iter_mut().filter_map(|i| i.restart.as_mut()).filter(|order| order.due > now) {
            order.due = now;
            backoff = true;
        }
        Retried { failed, backoff }
    }
}
