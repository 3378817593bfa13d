//! That a `bootstrap` instance has handed over to the DaemonSet controller's pod.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;

/// The state of a hand-over. It is valid for one boot of the node; after a boot nothing runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOver {
    /// The boot (`boot_id`).
    pub boot: String,
    /// The DaemonSet controller's pod; empty: it is not known whether there was a hand-over.
    pub pod: String,
    pub uid: String,
    /// Whether a pod of the DaemonSet controller has been Ready since: then the instance does not return in this boot.
    pub done: bool,
    /// Since when nothing of that pod can run: no API server answers and nothing of it runs, the scheduler cannot bind it, or
    /// it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Timestamp>,
}

impl HandOver {
    /// The record of a daemon is lost: it is not known whether it was handed over in this boot.
    pub fn unknown(boot: &str) -> Self {
        Self { boot: boot.to_owned(), pod: String::new(), uid: String::new(), done: true, missing: None }
    }

    /// Whether it is not known whether there was one.
    pub fn is_unknown(&self) -> bool {
        self.pod.is_empty() && self.uid.is_empty()
    }
}

/// A pod of the DaemonSet controller that the scheduler could not bind without the instance either: in this boot of the node
/// the instance does not make way for it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedHandOver {
    /// The boot (`boot_id`).
    pub boot: String,
    pub uid: String,
}
