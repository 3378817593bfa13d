//! Where an instance is in its life, and what confirms its end.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;

/// Where an instance is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Phase {
    /// Its manifest should be in the folder.
    Live,
    /// Its manifest should be gone; the record stays until its sandbox is gone.
    Ending {
        /// Since when.
        since: Timestamp,
        /// Why, for users.
        reason: String,
        /// The boot in which its manifest went: nothing of it outlives that.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        boot: String,
        /// Whether another instance is to take its place.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        returns: bool,
        /// What confirms that it has ended.
        #[serde(default, skip_serializing_if = "EndConfirmation::is_reported")]
        confirmed_by: EndConfirmation,
    },
}

/// What confirms that nothing of an instance runs any more, after its manifest went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndConfirmation {
    /// The container runtime, the kubelet, or its mirror pod.
    #[default]
    Reported,
    /// The container runtime, although it had not listed the instance yet: it had listed others.
    ByRuntime,
    /// No confirmation is needed: nothing of it had run in its boot.
    NeverStarted,
    /// As `Reported`, else its grace period and some more: the kubelet had not accepted it.
    NotAccepted,
    /// As `Reported`, else its grace period and some more: others removed its manifest.
    ByTime,
}

impl EndConfirmation {
    fn is_reported(&self) -> bool {
        *self == EndConfirmation::Reported
    }
}

impl Phase {
    /// An end for good, in a boot that is not known.
    pub fn ending(since: Timestamp, reason: &str) -> Self {
        Phase::Ending {
            since,
            reason: reason.to_owned(),
            boot: String::new(),
            returns: false,
            confirmed_by: EndConfirmation::Reported,
        }
    }

    /// Since when it ends, if it does.
    pub fn since(&self) -> Option<Timestamp> {
        match self {
            Phase::Live => None,
            Phase::Ending { since, .. } => Some(*since),
        }
    }
}
