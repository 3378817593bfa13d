//! The values behind `daemonlet plan`, `explain`, `retry`, `approve`, `restart` and `release`.
//!
//! Owns their schema; as with [`crate::core::status`], fields are only added.

use serde::Deserialize;
use serde::Serialize;

use crate::core::status::DaemonStatus;
use crate::core::status::LeftAlone;
use crate::core::status::Problem;
use crate::core::status::StaleVolume;
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
    /// The daemons that do not run as they should and that this pass cannot help.
    #[serde(default)]
    pub held: Vec<HeldDaemon>,
    /// Problems that do not concern a single daemon, as in `status`: files, folders, the API, the runtime.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// What of the folders is not read, as in `status`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The DaemonSets of the API that the configuration of this node does not select, as in `status`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
}

/// A daemon that does not run as it should, or not at the wanted revision, but for which there is nothing to do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDaemon {
    pub namespace: String,
    pub name: String,
    /// The state it is in instead.
    pub state: State,
    pub reason: String,
    /// What to do about it, if there is something to do.
    #[serde(default)]
    pub hint: Option<String>,
    /// Volumes of what runs that keep their last data: each is a change that is pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale_volumes: Vec<StaleVolume>,
    /// The revision that is to replace what runs, and waits for what the reason says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_revision: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    pub namespace: String,
    pub name: String,
    /// The change: a verb and its object, such as `write manifest kube-system-cni-7x2kp.yaml`.
    pub action: String,
    pub reason: String,
}

/// Why a daemon runs here or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// Whether the agent answered. False: explained from checkpoint and folders.
    pub agent_running: bool,
    /// Each term, in order.
    pub terms: Vec<Term>,
    /// The daemon's status; `None`: no such DaemonSet is known.
    pub status: Option<DaemonStatus>,
    /// What is wrong with it in the files and in the API; if nothing names it, problems that may hide it.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// One term of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// What it is: `source`, `mode`, `policy`, `node selector`, `node affinity`, `taint`, …
    pub subject: String,
    /// Whether it allows the daemon to run here; `None`: it only informs.
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
    /// The failed revision that was reset; `None`: none had failed.
    pub forgotten: Option<String>,
    /// Whether a back-off was ended.
    pub backoff: bool,
    /// What happens next, in order; empty: nothing changes.
    pub changes: Vec<PlannedChange>,
}

/// What `daemonlet approve` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApproveReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The revision that may start.
    pub revision: String,
    /// What happens next, in order; empty: `reason` says what it waits for.
    pub changes: Vec<PlannedChange>,
    /// What the daemon does, or waits for.
    pub reason: String,
}

/// What `daemonlet restart` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The pods that end, without the node's name; empty: the restart waits.
    pub old: Vec<String>,
    /// The pod that starts after them; `None`: nothing can start yet.
    pub new: Option<String>,
    /// What it waits for, or what happens meanwhile.
    pub reason: String,
    /// Why it is unknown when the old pods will be gone; the new one does not start before.
    #[serde(default)]
    pub unsure: Option<String>,
}

/// What `daemonlet release` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReport {
    /// [`crate::core::status::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// Whether the agent did it. False: its next start does.
    pub agent_running: bool,
    /// The daemons that end, each with what is done.
    pub released: Vec<ReleasedDaemon>,
    /// Those that do not, each with the reason.
    pub refused: Vec<ReleasedDaemon>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedDaemon {
    pub namespace: String,
    pub name: String,
    /// What is done, or why nothing is.
    pub what: String,
}
