//! That a `bootstrap` instance made way for the stock controller's pod.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;

/// How a hand-over stands. It counts for one boot of the node: the next one begins with nothing that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOver {
    /// The boot (`boot_id`).
    pub boot: String,
    /// The stock controller's pod.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Whether a pod of the stock controller has been Ready since: then nothing returns in this boot.
    pub done: bool,
    /// Since when no API server answers and nothing of that pod runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Timestamp>,
}
