//! What goes wrong with a revision of a DaemonSet.
//!
//! Owns the texts, which are the same for all nodes and at all times. Must not decide what goes wrong.

use std::fmt;

use crate::core::bounds::DAEMON_SETS;
use crate::core::cluster::released::HaltCause;
use crate::core::cluster::rollout::Stuck;
use crate::core::record::Cause;
use crate::core::status::State;

use super::TroubleReason;

/// A cause: of one kind there is one event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleCause {
    /// It failed on a node; none: the cause is one that only another version knows.
    Failed(Option<Cause>),
    /// An agent refuses it.
    Refused,
    /// It fails where it started.
    Failing,
    ImageNotPulled,
    ApprovalNotClaimed,
    OldDoesNotEnd,
    ObjectMissing,
    ApprovalsRefused,
    /// The Node of one that was not well with it was deleted.
    NodeDeleted,
    /// One that was not well with it may not run it any more, or its agent leaves it alone.
    TakenAway,
    Stuck(Stuck),
    AgentDead,
    /// An agent reports and writes no Lease.
    LeaseNotWritten,
    NoAgent,
    LeftAlone,
    /// Nodes that are kept on the released revision have nothing, and cannot start it.
    ReleasedNotStarted,
    /// Nodes start nothing though nothing holds it.
    Waits,
    /// For no other cause that is known.
    Late,
    /// A node has an older revision than the wanted one, which is not available there.
    OlderUnavailable,
    /// What is to be noted on this ControllerRevision is refused.
    HaltUnwritten(String),
    BrokenUnwritten(String),
    StepUnwritten(String),
    /// The status of the DaemonSet is refused.
    StatusUnwritten,
    NoControllerRevision,
    /// Why it was halted.
    Halted(HaltCause),
    TooFewAgents,
    TooManyApprovals,
    /// This namespace has more than are coordinated there.
    TooManyDaemonSets(String),
}

impl TroubleCause {
    /// The reason of the event about it.
    pub fn reason(&self) -> TroubleReason {
        match self {
            Self::Halted(_) => TroubleReason::RolloutHalted,
            Self::TooFewAgents => TroubleReason::TooFewAgents,
            Self::TooManyApprovals => TroubleReason::TooManyApprovals,
            Self::TooManyDaemonSets(_) => TroubleReason::TooManyDaemonSets,
            _ => TroubleReason::Degraded,
        }
    }

    /// As the event has it. The message of the API server may be another at each attempt, which would make another event.
    pub fn note(&self) -> String {
        match self {
            Self::HaltUnwritten(_) | Self::BrokenUnwritten(_) | Self::StepUnwritten(_) | Self::NoControllerRevision => {
                format!("{self}; the condition Degraded says why")
            }
            Self::StatusUnwritten => format!("{self}; the coordinator's log says why"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for TroubleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unwritten = |f: &mut fmt::Formatter<'_>, what, revision: &str| {
            write!(f, "{what} cannot be noted on ControllerRevision {revision}")
        };
        f.write_str(match self {
            Self::Failed(cause) => cause.map_or("other", Cause::as_str),
            Self::Refused => State::Refused.as_str(),
            Self::Failing => State::Failing.as_str(),
            Self::ImageNotPulled => "image cannot be pulled",
            Self::ApprovalNotClaimed => "approval not claimed",
            Self::OldDoesNotEnd => "an older instance does not end",
            Self::ObjectMissing => "needs an object that does not exist",
            Self::ApprovalsRefused => "the API server refuses to keep its approvals",
            Self::NodeDeleted => "its Node was deleted after it took the revision and before it was available",
            Self::TakenAway => "it was taken away after the node took the revision and before it was available",
            Self::Stuck(stuck) => stuck.text(),
            Self::AgentDead => "agent does not renew its Lease",
            Self::LeaseNotWritten => "agent writes no Lease",
            Self::NoAgent => "no agent",
            Self::LeftAlone => "left alone by its agent",
            Self::ReleasedNotStarted => "cannot start the released revision, and NodeDaemons says why,",
            Self::Waits => "waits to start, and NodeDaemons says for what,",
            Self::Late => "not available within the progress deadline",
            Self::OlderUnavailable => "not available with an older revision",
            Self::HaltUnwritten(revision) => return unwritten(f, "its halt", revision),
            Self::BrokenUnwritten(revision) => return unwritten(f, "which nodes it broke", revision),
            Self::StepUnwritten(revision) => return unwritten(f, "its step", revision),
            Self::StatusUnwritten => "its status cannot be written, so its conditions are old",
            Self::NoControllerRevision => {
                "it has no ControllerRevision of the current template, and nothing is rolled out without it"
            }
            Self::Halted(why) => return why.fmt(f),
            Self::TooFewAgents => {
                "agents on too few nodes say that they run it in place of the DaemonSet controller: it is left alone; \
                 hint: label it daemonlet.dev/mode=static if they are to"
            }
            Self::TooManyApprovals => {
                "its rollout waits on nodes that have as many approvals of namespaces that are not trusted as a node may \
                 have; hint: finish the rollouts there that wait for drain, boot or manual, or add the namespace to \
                 policy.trusted-namespaces of the coordinator"
            }
            Self::TooManyDaemonSets(namespace) => {
                return write!(
                    f,
                    "namespace {namespace} has more than {DAEMON_SETS} DaemonSets that are to be coordinated: this one and \
                     all that are counted here are not; hint: delete some, or add the namespace to \
                     policy.trusted-namespaces of the coordinator"
                );
            }
        })
    }
}
