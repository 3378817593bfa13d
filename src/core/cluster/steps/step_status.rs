//! Where a rollout in steps stands, for people.
//!
//! Owns the texts. Must not decide how far it goes.

use std::fmt;

use crate::core::cluster::requests::SendError;
use crate::core::cluster::rollout::names;
use crate::core::model::PROMOTED;
use crate::core::time::Timestamp;

/// Characters that are shown of a void promotion.
const SHOWN: usize = 32;

/// A step, among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlace {
    /// Its number, from 1 on.
    pub number: usize,
    /// How many steps there are.
    pub last: usize,
    /// How many nodes have the revision at its end.
    pub nodes: usize,
    /// Nodes that should run the daemon.
    pub desired: usize,
}

/// Where a rollout in steps stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// Its steps were changed, and it does not go on for now.
    Changed,
    /// Not all nodes of the step have the revision available: these do not.
    Waits { place: StepPlace, unavailable: Vec<String> },
    /// It was reached without some nodes, which is noted before any node follows: the next pass goes on.
    Begins(StepPlace),
    /// Too many nodes are away.
    Frozen(StepPlace),
    /// Its nodes have the revision, for so long; what a promotion says that is none of these steps.
    Holds { place: StepPlace, until: Timestamp, void: Option<String> },
    /// That it is in this step cannot be noted on this ControllerRevision.
    Unwritten { step: usize, revision: String, why: SendError },
}

impl StepStatus {
    /// Whether nodes of the step are on their way, as far as they can take the revision: its hold has not begun.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Waits { .. })
    }
}

impl fmt::Display for StepPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, last, nodes, desired } = self;
        write!(f, "step {number} of {last} ({nodes} of {desired} nodes)")
    }
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str(
                "its steps were changed, and no other node follows while nodes are unreachable or have a dead agent, or \
                 something else holds the rollout",
            ),
            Self::Begins(place) => place.fmt(f),
            Self::Waits { place, unavailable } if unavailable.is_empty() => place.fmt(f),
            Self::Waits { place, unavailable } => {
                let shown = names(&unavailable.iter().map(String::as_str).collect::<Vec<_>>());
                write!(f, "{place}: it is not available on {shown}")
            }
            Self::Frozen(place) => write!(f, "{place}: too many nodes are unreachable or have a dead agent"),
            Self::Holds { place, until, void } => {
                write!(f, "{place} holds until {until}, or `kubectl daemonlet promote`")?;
                let Some(void) = void else { return Ok(()) };
                let shown: String = void.chars().take(SHOWN).collect();
                write!(f, " ({PROMOTED} names {shown:?}, which is none of these steps)")
            }
            // Since when it holds is another time at each attempt: it is not named.
            Self::Unwritten { step, revision, why } => {
                write!(f, "step {step} cannot be noted on ControllerRevision {revision}: {why}")
            }
        }
    }
}
