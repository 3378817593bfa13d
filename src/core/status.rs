//! What the agent reports: the value behind `daemonlet status [--json]`.
//!
//! Owns the schema. Must not gather anything. The JSON is a contract: fields are only added, and [`SCHEMA_VERSION`]
//! grows when a field changes its meaning or is removed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::core::metrics;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::named::named;
use crate::core::record::Cause;
use crate::core::render::Missing;

/// The version of the JSON schema of [`StatusReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// The report of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name.
    pub node: String,
    /// The kubelet's version as last known, such as `v1.36.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<String>,
    /// The agent itself.
    pub agent: AgentStatus,
    /// The daemons, by namespace and name.
    pub daemons: Vec<DaemonStatus>,
    /// Problems that do not concern a single daemon: files, folders, the API, the runtime.
    pub problems: Vec<Problem>,
    /// What of the folders is not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The DaemonSets of the API that the configuration of this node does not select, by cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
    /// How many daemons are refused, by the field or rule that refuses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedCount>,
}

/// Daemons that one field or rule refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedCount {
    /// The field or rule, without what differs from one daemon to the next.
    pub reason: String,
    /// How many there are.
    pub count: usize,
}

/// Counts refused daemons by reason; `fields`: the first field of each that is refused, if one is known.
pub fn refused_counts<'a>(fields: impl IntoIterator<Item = Option<&'a str>>) -> Vec<RefusedCount> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for field in fields {
        *counts.entry(metrics::refusal(field.unwrap_or_default())).or_default() += 1;
    }
    counts.into_iter().map(|(reason, count)| RefusedCount { reason, count }).collect()
}

/// DaemonSets of the API that the configuration of this node does not select, all for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    pub cause: LeftAloneCause,
    /// How many there are.
    pub count: usize,
    /// `namespace/name` of the first of them, at most [`LEFT_ALONE_NAMED`].
    pub daemon_sets: Vec<String>,
    /// What selects the first one.
    pub hint: String,
}

/// How many DaemonSets a [`LeftAlone`] names.
pub const LEFT_ALONE_NAMED: usize = 3;

named! {
    /// Why the configuration of this node does not select a DaemonSet of the API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum LeftAloneCause {
        /// `default-mode` is `labelled`, and it has no mode label.
        ModeLabelled = "mode: labelled",
        /// Its mode label has a value that is none.
        UnknownMode = "unknown mode",
        /// Its labels do not match `selector`.
        Selector = "selector",
        /// Its namespace is not among `policy.namespaces`.
        Namespace = "policy.namespaces",
    }
}

/// The agent's own state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Whether it answered. False: the report is made from checkpoint and folders.
    pub running: bool,
    /// When it started (RFC 3339), if it runs.
    pub since: Option<String>,
    pub version: String,
    /// The API server: `connected`, `none` (not configured), or why it is not connected.
    pub api: String,
    /// Since when the API is in that state (RFC 3339).
    pub api_since: Option<String>,
    /// Connections and requests to the API server, if one is configured.
    #[serde(default)]
    pub api_use: Option<ApiUse>,
    pub passes: Passes,
    /// The ServiceAccount tokens that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensStatus>,
    /// The certificate from `daemonlet enroll`, if the agent uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityStatus>,
}

/// ServiceAccount tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokensStatus {
    /// The life that is requested for the token of a pod whose template has none, in seconds.
    pub default_expiration_seconds: i64,
    pub held: Vec<TokenStatus>,
}

/// One token; the token itself is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenStatus {
    pub namespace: String,
    pub service_account: String,
    /// Empty for the API server's own.
    pub audience: String,
    /// The life that was requested, in seconds.
    pub expiration_seconds: i64,
    /// When it expires (RFC 3339).
    pub expires: String,
}

/// The agent's own certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    pub user: String,
    /// When it expires (RFC 3339).
    pub expires: String,
    /// When it is to be renewed (RFC 3339).
    pub renewal_due: String,
    /// The state of the renewal; empty if there is nothing to report.
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
    /// Requests sent since the start; a watch counts once, when it is opened.
    pub requests: u64,
    /// Requests open now: mostly watches.
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

/// [`AgentStatus::api`] where no API server is configured.
pub const NO_API: &str = "none";

/// [`AgentStatus::api`] where one is configured, and only a running agent would ask it.
pub const API_NOT_ASKED: &str = "not asked: no agent runs";

/// One daemon on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    pub namespace: String,
    pub name: String,
    /// Where its definition was read; `None`: only its manifest is known.
    pub source: Option<Source>,
    /// Its mode; `None`: it is not ours.
    pub mode: Option<Mode>,
    /// The hash of the revision that runs, or that is to run.
    pub revision: String,
    /// The instance's pod name without the node's; empty if there is none.
    pub pod: String,
    /// The instance's pod UID; empty if there is none.
    pub uid: String,
    pub state: State,
    /// Whether it is ready; `None`: unknown.
    pub ready: Option<bool>,
    /// Since when it is in that state (RFC 3339).
    pub since: Option<String>,
    /// The reason, in one line; empty if there is none.
    pub reason: String,
    /// The wanted revision, if no instance of it became available here in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedStatus>,
    /// The image that is being pulled for its next instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullStatus>,
    /// The revision that is replacing the running one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<String>,
    pub waiting_for: Vec<Missing>,
    /// Notes, such as pull secrets that were left out.
    pub notes: Vec<String>,
    /// What to do.
    #[serde(default)]
    pub hints: Vec<String>,
    /// Whether it is held and `daemonlet release` ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releasable: bool,
    /// The first field that is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_field: Option<String>,
    /// Volumes of what runs that keep their last data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale_volumes: Vec<StaleVolume>,
    /// Containers that wait for their environment; the others run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_containers: Vec<WaitingContainer>,
    /// Whether the node is to carry the taint `daemonlet.dev/starting` until it is Ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_workload_away: bool,
    /// Whether its next instance waits for the coordinator's approval, or for its rollout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_rollout: bool,
}

impl DaemonStatus {
    /// The status of a DaemonSet of which nothing is here.
    pub fn bare(key: &ObjectKey, source: Option<Source>, state: State, reason: &str) -> Self {
        let ObjectKey { namespace, name } = key.clone();
        Self { namespace, name, source, state, reason: reason.to_owned(), ..Self::default() }
    }

    /// Whether it waits for the daemons that `daemonlet.dev/after` names.
    pub fn waits_for_daemons(&self) -> bool {
        self.waiting_for.iter().any(Missing::is_daemon)
    }

    /// Whether `status` ends with exit code 1 for it.
    pub fn is_bad(&self) -> bool {
        self.state.is_bad() || self.failed.is_some() || !self.stale_volumes.is_empty()
    }
}

/// A part of a running instance that keeps its last data because something that it needs is missing or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaleVolume {
    /// The instance's pod name without the node's.
    pub pod: String,
    /// The volume's name; `daemonlet-env-CONTAINER` for the environment of a container, `manifest` for the manifest.
    pub volume: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// What is missing; empty if something is refused.
    pub missing: Vec<Missing>,
    /// Why, in one line.
    pub reason: String,
}

impl fmt::Display for StaleVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, volume, since, reason, .. } = self;
        match volume.as_str() {
            MANIFEST => write!(f, "the manifest of {pod} is not updated since {since}: {reason}"),
            _ => write!(f, "volume {volume} of {pod} keeps its last data since {since}: {reason}"),
        }
    }
}

/// What a [`StaleVolume`] has as its volume where the manifest cannot be updated.
pub const MANIFEST: &str = "manifest";

/// A container that the kubelet cannot start yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingContainer {
    pub container: String,
    pub missing: Vec<Missing>,
}

/// An image being pulled. Only the runtime knows how much of it has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullStatus {
    pub image: String,
    /// Its number among those to be pulled, from 1.
    pub number: usize,
    /// How many are to be pulled.
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
    pub cause: Cause,
    /// The message of the kubelet, the runtime, or the container's last log line.
    pub message: String,
    /// When that was decided (RFC 3339).
    pub since: String,
}

named! {
    /// The state of a daemon on this node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    pub enum State {
        /// Its manifest is there and its pod runs.
        Running = "running",
        /// Its pod runs, and some of its data is not brought up to date: what that needs is missing or refused.
        Stale = "stale",
        /// Its manifest is there; the kubelet has not started it yet.
        Starting = "starting",
        /// It needs something that is missing (`waitingFor`).
        Waiting = "waiting",
        /// The old instance ends before the new one starts.
        Replacing = "replacing",
        /// Its manifest is gone, its pod is ending.
        Stopping = "stopping",
        /// It should not run on this node.
        #[default]
        NotSelected = "not selected",
        /// The configuration of this node does not select it, and nothing of it runs here.
        LeftAlone = "left alone",
        /// The DaemonSet controller's pod is here; it would return at a boot without it (`bootstrap`).
        StandingBy = "standing by",
        /// It cannot be a static pod, is invalid, or is forbidden by policy.
        Refused = "refused",
        /// The kubelet rejected it, or it crashes.
        Failing = "failing",
        /// The configuration of this node no longer selects it, and it has not been released (`daemonlet release`).
        Held = "held",
        /// The kubelet does not accept its manifest, and has accepted no other revision of it before.
        NotAccepted = "not accepted",
        /// Its DaemonSet was deleted, and its pods stay (orphan).
        Orphaned = "orphaned",
        Unknown = "unknown",
    }
}

impl State {
    /// Whether its pod runs.
    pub fn runs(self) -> bool {
        matches!(self, State::Running | State::Stale)
    }

    /// Whether nothing of it is to run here now, as it should be.
    pub fn is_idle(self) -> bool {
        matches!(self, State::NotSelected | State::LeftAlone | State::StandingBy)
    }

    /// Whether `status` ends with exit code 1 for it.
    pub fn is_bad(self) -> bool {
        matches!(
            self,
            State::Stale | State::Refused | State::Failing | State::NotAccepted | State::Held | State::Unknown
        )
    }
}

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
