//! Why a rollout stands still though nodes are left.
//!
//! Owns the texts. Must not decide that it does.

use std::fmt;

use super::RolloutHold;
use super::canary;
use super::taken::Stuck;
use crate::core::cluster::steps::StepStatus;

/// Why no further node is approved for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standstill {
    /// What holds the whole rollout.
    Hold(RolloutHold),
    /// Where the step that it is in stands.
    Step(StepStatus),
    /// No node of the daemon is a canary node; what else holds it, if anything does.
    NoCanary { also: Option<RolloutHold> },
    /// The canary nodes have to be available for a while, and these are not.
    Canary { waiting: Vec<String> },
    /// So many of all nodes are unreachable.
    Outage { unreachable: usize, all: usize },
    /// Nodes of this zone are on their way.
    Zone(String),
    /// So many nodes are kept on the old revision.
    Partition(usize),
    /// These nodes take the budget.
    Taken(Vec<String>),
    /// These nodes take the budget with what they ran before, and it is not their turn.
    OldUnavailable(Vec<String>),
    /// So many nodes are left, and none of them can take it.
    Unable(usize),
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(hold) => hold.fmt(f),
            Self::Step(status) => status.fmt(f),
            Self::NoCanary { also: None } => f.write_str(canary::NONE),
            Self::NoCanary { also: Some(hold) } => write!(f, "{hold}; {}", canary::NONE),
            Self::Canary { waiting } if waiting.is_empty() => {
                f.write_str("the canary nodes have to be available for a while")
            }
            Self::Canary { waiting } => {
                write!(f, "the canary nodes have to be available for a while, and are not: {}", names(waiting))
            }
            Self::Outage { unreachable, all } => write!(f, "{unreachable} of {all} nodes are unreachable"),
            Self::Zone(zone) => write!(f, "zone {zone} is not available yet"),
            Self::Partition(1) => f.write_str("1 node is kept on the old revision"),
            Self::Partition(kept) => write!(f, "{kept} nodes are kept on the old revision"),
            Self::Taken(nodes) => write!(f, "{}: {}", Stuck::Taken.text(), names(nodes)),
            Self::OldUnavailable(nodes) => {
                let why = "where what runs is not available, and whose turn has not come";
                write!(f, "the budget is taken by nodes {why}: {}", names(nodes))
            }
            Self::Unable(1) => f.write_str("1 node cannot take it"),
            Self::Unable(unable) => write!(f, "{unable} nodes cannot take it"),
        }
    }
}

fn names(nodes: &[String]) -> String {
    super::names(&nodes.iter().map(String::as_str).collect::<Vec<_>>())
}
