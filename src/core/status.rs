//! What the agent tells: the value behind `daemonlet status [--json]`.
//!
//! Owns the schema. Must not gather anything. The JSON is a contract: fields are only added, and
//! [`SCHEMA_VERSION`] grows when one changes its meaning or goes.

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::record::Cause;
use crate::core::render::Missing;

/// The version of the JSON schema of [`StatusReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one node has to tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The agent itself.
    pub agent: AgentStatus,
    /// The daemons, by namespace and name.
    pub daemons: Vec<DaemonStatus>,
    /// What is wrong beside single daemons: files, folders, the API, the runtime.
    pub problems: Vec<Problem>,
}

/// The agent's own state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Whether it answered. False: the report is made from checkpoint and folders.
    pub running: bool,
    /// When it started (RFC 3339), if it runs.
    pub since: Option<String>,
    /// Its version.
    pub version: String,
    /// The API server: `connected`, `none` (not configured), or why it is not connected.
    pub api: String,
    /// Since when the API is in that state (RFC 3339).
    pub api_since: Option<String>,
    /// What it has cost the API server, if there is one.
    #[serde(default)]
    pub api_use: Option<ApiUse>,
    /// The passes so far.
    #[serde(default)]
    pub passes: Passes,
    /// The certificate that `daemonlet enroll` got, if the agent uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityStatus>,
}

/// The agent's own certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// The user name.
    pub user: String,
    /// When it expires (RFC 3339).
    pub expires: String,
    /// When it is to be renewed (RFC 3339).
    pub renewal_due: String,
    /// How the renewal goes; empty while there is nothing to say.
    pub renewal: String,
}

/// Connections and requests to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiUse {
    /// Connections opened since the start.
    pub connections_opened: u64,
    /// Connections open now.
    pub connections: u64,
    /// Requests sent since the start, each watch counted when it is opened.
    pub requests: u64,
    /// Requests open now: watches, mostly.
    pub streams: u64,
}

/// Passes over all daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Passes {
    /// Passes since the start.
    pub count: u64,
    /// How long the last one took, in microseconds.
    pub last_micros: u64,
}

/// One daemon on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// Where it was read.
    pub source: Source,
    /// Its mode; none: it is left alone.
    pub mode: Option<Mode>,
    /// The hash of the revision that runs, or is to run.
    pub revision: String,
    /// The instance's pod name without the node's; empty if there is none.
    pub pod: String,
    /// The instance's pod UID; empty if there is none.
    pub uid: String,
    /// What it is doing.
    pub state: State,
    /// Whether it is ready; `None`: nobody can say.
    pub ready: Option<bool>,
    /// Since when it is in that state (RFC 3339).
    pub since: Option<String>,
    /// Why, in one line; empty if there is nothing to say.
    pub reason: String,
    /// The wanted revision, if no instance of it became available here in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedStatus>,
    /// The image that is being pulled for its next instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullStatus>,
    /// The revision that takes the place of the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<String>,
    /// What it waits for.
    pub waiting_for: Vec<Missing>,
    /// Things to know, such as pull secrets that were left out.
    pub notes: Vec<String>,
}

/// An image on its way. How much of it has come is known to the runtime alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullStatus {
    /// The image.
    pub image: String,
    /// Which of those that have to be pulled, from 1.
    pub number: usize,
    /// How many have to be pulled.
    pub count: usize,
    /// Since when (RFC 3339).
    pub since: String,
}

/// A revision that did not become available on this node within its progress deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedStatus {
    /// The hash of the revision; what runs instead is in `revision`.
    pub revision: String,
    /// Why.
    pub cause: Cause,
    /// The words of who says it: the kubelet's, the runtime's, the container's last line.
    pub message: String,
    /// When that was decided (RFC 3339).
    pub since: String,
}

/// What a daemon is doing on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Its manifest is there and its pod runs.
    Running,
    /// Its manifest is there; the kubelet has not started it yet.
    Starting,
    /// It needs something that is not there (`waitingFor`).
    Waiting,
    /// An old instance ends before a new one starts.
    Replacing,
    /// Its manifest is gone, its pod is ending.
    Stopping,
    /// It does not belong on this node.
    NotSelected,
    /// It cannot be a static pod, is invalid, or policy forbids it.
    Refused,
    /// The kubelet rejected it, or it crashes.
    Failing,
    /// Its DaemonSet is gone and its pods were to be kept.
    Orphaned,
    /// Nobody can say.
    Unknown,
}

impl State {
    /// The state as the table shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Starting => "starting",
            State::Waiting => "waiting",
            State::Replacing => "replacing",
            State::Stopping => "stopping",
            State::NotSelected => "not selected",
            State::Refused => "refused",
            State::Failing => "failing",
            State::Orphaned => "orphaned",
            State::Unknown => "unknown",
        }
    }

    /// Whether `status` ends with exit code 1 for it.
    pub fn is_bad(self) -> bool {
        matches!(self, State::Refused | State::Failing | State::Unknown)
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What it is about: a file, a folder, `API`, `runtime`, a DaemonSet.
    pub object: String,
    /// What is wrong, lower case.
    pub reason: String,
    /// What to do about it, if there is something to do.
    pub hint: Option<String>,
}
