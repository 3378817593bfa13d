//! What the agent reports of one daemon.
//!
//! Owns the schema of that part, and the states. Must not gather anything.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::named::named;
use crate::core::record::Cause;
use crate::core::render::Missing;

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
    /// The revision that waits on this node for `daemonlet approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_approve: Option<String>,
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
