//! The API server's last answer about the pod of a new instance (`policy.admission`).
//!
//! Owns the values only; `core::plan` judges. It is on disk, so a boot without API server has it.

use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::DaemonSet;
use crate::core::time::Timestamp;

use super::DaemonRecord;

/// The last answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionAnswer {
    /// The hash of the revision that was asked about.
    pub revision: String,
    /// The number of the instance that was asked about.
    pub incarnation: u64,
    /// When it came.
    pub at: Timestamp,
    pub said: AdmissionVerdict,
}

/// The API server's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AdmissionVerdict {
    /// The pod is accepted: the DaemonSet with its template as admission changed it.
    Admitted(Arc<DaemonSet>),
    /// It is refused; the API server's reason.
    Refused(String),
}

impl DaemonRecord {
    /// The DaemonSet as admission last changed it for `revision`: from the last answer, else from an instance.
    pub fn admitted(&self, revision: &str) -> Option<&Arc<DaemonSet>> {
        let answer = self.answer.as_ref().filter(|answer| answer.revision == revision);
        let said = answer.and_then(|answer| match &answer.said {
            AdmissionVerdict::Admitted(daemon_set) => Some(daemon_set),
            AdmissionVerdict::Refused(_) => None,
        });
        let carried = self.instances.iter().rev().filter(|i| i.revision == revision);
        said.or_else(|| carried.filter_map(|i| i.daemon_set.as_ref()).find(|d| d.admitted.is_some()))
    }
}
