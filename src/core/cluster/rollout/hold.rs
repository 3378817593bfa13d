//! What holds a whole rollout, whichever nodes are left.
//!
//! Owns the texts. Must not decide that it does.

use std::fmt;

use crate::core::cluster::released::Halted;
use crate::core::model::COORDINATION;
use crate::core::model::STEPS;
use crate::core::model::TOPOLOGY_KEY;
use crate::core::model::WINDOW;

/// Why no node is approved, and unclaimed approvals are withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutHold {
    Paused,
    /// Its owner lets each node follow by itself.
    Uncoordinated,
    /// The update strategy.
    OnDelete,
    /// People have taken the rollout back.
    Aborted,
    /// The revision failed on too many nodes.
    Halted(Halted),
    /// The value of this annotation is not understood.
    Value {
        annotation: &'static str,
        value: String,
    },
    /// The annotation for the window is not understood; why.
    Window(String),
    /// No annotation of ours has this name; the known one that is like it.
    UnknownAnnotation {
        name: String,
        near: Option<String>,
    },
    /// This annotation does not go with the one for steps.
    ExcludedBySteps(&'static str),
    /// It is outside this window.
    OutsideWindow(String),
    /// The nodes of a retry of all are not named on this ControllerRevision; why they cannot be.
    RetryUnnamed {
        revision: String,
        why: Option<String>,
    },
    /// The status has lost the released revision.
    ReleasedLost,
    /// No node has this label, by which zones are told apart.
    NoZone(String),
    /// The released revision failed with its overlays on so many nodes.
    FailedOverlays(usize),
    /// The current revision has no ControllerRevision yet.
    NoControllerRevision,
}

impl fmt::Display for RolloutHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("paused"),
            Self::Uncoordinated => write!(f, "each node follows by itself ({COORDINATION}: none)"),
            Self::OnDelete => f.write_str("the update strategy is OnDelete"),
            Self::Aborted => f.write_str("its rollout was aborted"),
            Self::Halted(halted) => halted.fmt(f),
            Self::Value { annotation, value } => write!(f, "the annotation {annotation} is not understood: {value:?}"),
            Self::Window(why) => write!(f, "the annotation {WINDOW} is not understood: {why}"),
            Self::UnknownAnnotation { name, near } => {
                let near = near.iter().map(|near| format!(" (did you mean {near}?)")).collect::<String>();
                write!(f, "this version does not know the annotation {name}{near}")
            }
            Self::ExcludedBySteps(excluded) => {
                write!(f, "the annotation {STEPS} excludes {excluded}: write one of them")
            }
            Self::OutsideWindow(window) => write!(f, "outside its window ({window})"),
            Self::RetryUnnamed { revision, why: Some(why) } => {
                write!(f, "the nodes that are retried cannot be named on ControllerRevision {revision}: {why}")
            }
            Self::RetryUnnamed { revision, why: None } => {
                write!(f, "the nodes that are retried are not named on ControllerRevision {revision} yet")
            }
            Self::ReleasedLost => {
                f.write_str("its status no longer names the released revision; that is written again first")
            }
            Self::NoZone(label) => {
                write!(f, "no node that the daemon is for has the label {label} (annotation {TOPOLOGY_KEY})")
            }
            Self::FailedOverlays(nodes) => write!(f, "the revision failed with its overlays on {nodes} nodes"),
            Self::NoControllerRevision => f.write_str("its ControllerRevision is not in the API yet"),
        }
    }
}
