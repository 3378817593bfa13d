//! What the agent tells beside its status: the values behind `daemonlet plan` and `explain`.
//!
//! Owns their schema; as with [`crate::core::status`], fields are only added.

use serde::Deserialize;
use serde::Serialize;

use crate::core::status::DaemonStatus;
use crate::core::status::Problem;
use crate::core::status::State;

/// What one pass would change on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// Whether the agent answered. False: planned from checkpoint and folders.
    pub agent_running: bool,
    /// The changes, in the order in which they would be made; empty: nothing to do.
    pub changes: Vec<PlannedChange>,
    /// The daemons that do not run as they should, and that no change of this pass helps.
    #[serde(default)]
    pub held: Vec<HeldDaemon>,
    /// What is wrong beside single daemons, as in `status`: files, folders, the API, the runtime.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// A daemon for which there is nothing to do though it does not run as it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDaemon {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// What it is doing instead.
    pub state: State,
    /// Why.
    pub reason: String,
    /// What to do about it, if there is something to do.
    #[serde(default)]
    pub hint: Option<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// What would be done: a verb and its object, such as `write manifest kube-system-cni-7x2kp.yaml`.
    pub action: String,
    /// Why.
    pub reason: String,
}

/// Why a daemon does or does not run here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// Whether the agent answered. False: explained from checkpoint and folders.
    pub agent_running: bool,
    /// Each thing that was looked at, in order.
    pub terms: Vec<Term>,
    /// The daemon's status; none: no such DaemonSet is known.
    pub status: Option<DaemonStatus>,
    /// What is wrong with it in the files and in the API; where nothing names it, what may hide it.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// One thing that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// What it is: `source`, `mode`, `policy`, `node selector`, `node affinity`, `taint`, …
    pub subject: String,
    /// Whether it speaks for running here; `None`: it only informs.
    pub holds: Option<bool>,
    /// The term and the value it was compared with.
    pub text: String,
}

/// What `daemonlet retry` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The failed revision that was forgotten; none: none had failed.
    pub forgotten: Option<String>,
    /// Whether a back-off was ended.
    pub backoff: bool,
    /// What happens next, in order; empty: nothing changes.
    pub changes: Vec<PlannedChange>,
}

/// What `daemonlet restart` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The pods that end, without the node's name; empty: it waits.
    pub old: Vec<String>,
    /// The pod that starts when they have ended; none: nothing can start yet.
    pub new: Option<String>,
    /// What it waits for, or what happens meanwhile.
    pub reason: String,
    /// Why nobody can say yet when the old pods have ended, before which the new one does not start.
    #[serde(default)]
    pub unsure: Option<String>,
}
