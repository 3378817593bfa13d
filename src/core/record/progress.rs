//! What is remembered of good and bad revisions.
//!
//! Owns the values only; `core::plan` judges.

use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::DaemonSet;
use crate::core::time::Timestamp;

use super::DaemonRecord;

/// What a roll-back returns to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Good {
    /// The hash of the revision.
    pub revision: String,
    /// Version of the data that an instance of it was available with, and that is kept for a roll-back.
    pub data_version: String,
    /// Whether that data is kept (it is only where a roll-back is asked for).
    #[serde(default)]
    pub has_rollback_data: bool,
    /// Data that an instance runs with since a short while, and that may become the good data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<DataCandidate>,
    /// The DaemonSet of that revision; `None` while an instance of it is in the record and has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set: Option<Arc<DaemonSet>>,
}

/// A revision that ran here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The hash of the revision.
    pub revision: String,
    /// Its DaemonSet.
    pub daemon_set: Arc<DaemonSet>,
}

/// Data under observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataCandidate {
    /// Its version.
    pub data_version: String,
    /// Since when an instance has run with it.
    pub since: Timestamp,
}

/// That a revision is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The hash of the revision.
    pub revision: String,
    /// Version of its data, for a daemon that is restarted on changed data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// When the first instance of it was made.
    pub since: Timestamp,
}

/// A revision of which no instance became available within the progress deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// The hash of the revision.
    pub revision: String,
    /// Version of its data, where that made the difference (`restart-on: config`, or a template that was
    /// good with other data): with other data it is another try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// Why.
    #[serde(flatten)]
    pub failure: Failure,
    /// When that was decided.
    pub at: Timestamp,
}

/// Why an instance is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The kind of cause.
    pub cause: Cause,
    /// The words of who says it: kubelet, runtime, the container's last line.
    pub message: String,
}

/// What keeps an instance from being available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// An image cannot be pulled.
    Image,
    /// A container ends again and again.
    CrashLoop,
    /// A container cannot be made or started, or an init container does not end.
    Container,
    /// Its containers run and the kubelet says that a probe fails.
    Probe,
    /// The kubelet rejected it.
    Admission,
    /// Its sandbox cannot be made: pod network, volumes.
    Sandbox,
    /// Nobody works on it: the kubelet does not respond. Another revision would fare no better.
    KubeletNotResponding,
}

impl Cause {
    /// The cause in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Image => "image",
            Cause::CrashLoop => "crash loop",
            Cause::Container => "container",
            Cause::Probe => "probe",
            Cause::Admission => "admission",
            Cause::Sandbox => "sandbox",
            Cause::KubeletNotResponding => "kubelet not responding",
        }
    }

    /// Whether the revision may be to blame.
    pub fn blames_revision(self) -> bool {
        self != Cause::KubeletNotResponding
    }
}

/// What [`DaemonRecord::retry`] forgot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried {
    /// The revision that had failed.
    pub failed: Option<String>,
    /// Whether a new instance waited out a back-off.
    pub backoff: bool,
}

impl DaemonRecord {
    /// Forgets what failed and what waits out a back-off: it is tried again now, also where a revision
    /// waits for its turn or for the deletion of a pod.
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
