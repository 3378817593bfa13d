//! What a person can do about the state of a daemon.
//!
//! Owns the texts. Must not decide anything.

use crate::core::model::FIRST_INSTALL;
use crate::core::model::ObjectKey;
use crate::core::owners;

/// One hint; printed in one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Hint {
    /// The hint of a field.
    #[error("{0}")]
    Field(String),
    #[error("to end it: `daemonlet release {0}`, or policy.release = [\"{0}\"]")]
    Release(ObjectKey),
    #[error("change its template, or try this one again: `daemonlet retry {0}` on the node")]
    Retry(ObjectKey),
    #[error("correct the DaemonSet; until then its last valid version counts")]
    CorrectDaemonSet,
    #[error("correct the list of overlays, or the DaemonSet")]
    CorrectOverlays,
    #[error("set node.kubelet-version, or let the agent read its Node")]
    GiveKubeletVersion,
    #[error("{}", owners::FIX)]
    KeepControllerAway,
    #[error("with maxSurge 0 the old instance goes first; or give the new revision another host port")]
    NoSurge,
    #[error("give one of the two another host port")]
    OtherHostPort,
    #[error("set runtime-endpoint or kubelet-endpoint; a reboot replaces it, too")]
    GiveEndpoint,
    #[error("kubectl drain {0} --ignore-daemonsets --delete-emptydir-data")]
    Drain(String),
    #[error("run `daemonlet approve {0}` on this node")]
    Approve(ObjectKey),
    #[error("resume the rollout, or write a template that works")]
    ResumeRollout,
    #[error(
        "apply nodedaemons.yaml and rbac.yaml of this version, or annotate the DaemonSet \
         daemonlet.dev/coordination=none to let each node change by itself"
    )]
    ServeNodeDaemons,
    #[error("apply nodedaemons.yaml of this version")]
    UpdateNodeDaemons,
    #[error("apply nodedaemons.yaml of this version, and run a coordinator of this version")]
    UpdateCoordinator,
    #[error("install a coordinator, or remove the annotation {FIRST_INSTALL}", FIRST_INSTALL = FIRST_INSTALL)]
    InstallCoordinator,
    #[error("mend these first: {0} more hints are left out")]
    More(usize),
}
