//! What the agent reports: the value behind `daemonlet status [--json]`.
//!
//! Owns the schema. Must not gather anything. The JSON is a contract: fields are only added, and [`SCHEMA_VERSION`]
//! grows when a field changes its meaning or is removed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::core::metrics;
use crate::core::named::named;

mod daemon;

pub use daemon::DaemonStatus;
pub use daemon::FailedStatus;
pub use daemon::MANIFEST;
pub use daemon::PullStatus;
pub use daemon::StaleVolume;
pub use daemon::State;
pub use daemon::WaitingContainer;

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
    pub api: ApiLink,
    /// Since when the API is in that state (RFC 3339).
    pub api_since: Option<String>,
    /// Connections and requests to the API server, if one is configured.
    pub api_use: Option<ApiUse>,
    #[serde(default)]
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

/// The connection to the API server; a report has its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ApiLink {
    #[error("connected")]
    Connected,
    #[error("connecting")]
    Connecting,
    /// None is configured.
    #[error("none")]
    NotConfigured,
    /// One is configured, and only a running agent would ask it.
    #[error("not asked: no agent runs")]
    NotAsked,
    /// Why there is no connection.
    #[error("{0}")]
    Failing(String),
}

impl From<String> for ApiLink {
    fn from(words: String) -> Self {
        let known = [Self::Connected, Self::Connecting, Self::NotConfigured, Self::NotAsked];
        known.into_iter().find(|link| link.to_string() == *words).unwrap_or(Self::Failing(words))
    }
}

impl From<ApiLink> for String {
    fn from(link: ApiLink) -> Self {
        link.to_string()
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
