//! What a rollout knows of each node.
//!
//! Owns these values. Must not decide who is next.

use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::names::Name;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

use super::RolloutRules;

/// One instance as its agent reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceFact {
    pub revision: Name,
    /// The digest of its overlays, if it has any.
    pub overlays: Option<Name>,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// Whether that is only when the coordinator first saw it: it had been ready for an unknown time.
    pub was_ready: bool,
    /// Whether it was ready when the coordinator first looked: by a clock that is behind it may seem to be so for less long.
    pub is_found: bool,
    /// When it was made.
    pub created: Timestamp,
    pub ending: bool,
}

/// The state of an approval for this daemon on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalFact {
    /// Which revision may run.
    pub revision: Name,
    /// The digest of the overlays that it may run with, if any.
    pub overlays: Option<Name>,
    /// When it was given.
    pub at: Timestamp,
    /// What its node waits for before it claims it: until then it takes no slot and has no time limit.
    pub when: Option<UpdateTrigger>,
}

/// One node as the daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFact<'a> {
    pub name: &'a str,
    /// Whether the daemon may be started there.
    pub should_run: bool,
    /// Whether it may be started there as soon as the node is well. Counters follow `should_run`, as upstream's.
    pub belongs: bool,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether its Ready condition is True or False, not Unknown: its kubelet reports.
    pub reachable: bool,
    /// Whether it can take the wanted revision: it has an agent, which does not refuse it for reasons of its own.
    pub able: bool,
    /// Whether its agent says that the wanted revision needs an object which does not exist.
    pub lacks: bool,
    /// Whether its agent lives, as far as that is known.
    pub agent: AgentLiveness,
    /// Whether its agent reports.
    pub reports: bool,
    /// Whether its agent reports, and leaves the daemon alone though it has had the time to say something of it.
    pub left_alone: bool,
    /// While it has no report: until when it may be in the middle of a replacement that was not reported.
    pub unreported_until: Option<Timestamp>,
    /// Its zone, where one zone comes after the other.
    pub zone: Option<&'a str>,
    /// The value over which those that are updated are spread, if they are.
    pub spread: Option<&'a str>,
    /// Whether it is one of the canary nodes.
    pub canary: bool,
    /// The instances there, oldest first.
    pub instances: &'a [InstanceFact],
    /// The digest of the overlays that its agent wants there, if any.
    pub overlays: Option<Name>,
    /// The approval that stands.
    pub approval: Option<ApprovalFact>,
    /// Whether its agent has claimed one: it replaces.
    pub replacing: bool,
    /// The revision that it claims then, and the digest of its overlays, if any.
    pub claim: Option<(Name, Option<Name>)>,
    /// What starts there again, with the digest of its overlays: its instance has ended to return.
    pub returning: Option<(Name, Option<Name>)>,
    /// Whether its agent starts nothing before the rollout is open to nodes that join.
    pub awaits_rollout: bool,
    /// What its agent starts in place of that at the next boot: it claims an approval that waits for it.
    pub staged: Option<Name>,
    /// Whether the wanted revision has failed there, or cannot be made there.
    pub failed: bool,
    /// Whether an older instance still ends there though the wanted one has been ready for the progress deadline.
    pub ends_late: bool,
    /// Whether what has begun there, or is to start there, has not been available for the progress deadline while its
    /// agent was alive, or what it has claimed has not begun since.
    pub late: bool,
    /// Whether it took the wanted revision and was not well with it when its report was lost, as far as that is known.
    pub broken: bool,
    /// When its agent was last found not to have claimed an approval of the wanted revision in time: others come first.
    pub passed_over: Option<Timestamp>,
    /// Where the API server has just refused to keep its approvals: when they may be tried again. Others come first.
    pub refused_until: Option<Timestamp>,
}

impl NodeFact<'_> {
    /// Whether a revision with these overlays is what is to run there.
    pub fn wants(&self, rules: &RolloutRules, (revision, overlays): (Name, Option<Name>)) -> bool {
        revision == rules.wanted && overlays == self.overlays
    }

    /// Whether nothing runs there because the wanted revision is restarted: it ends, or has ended, to return.
    pub fn restarts(&self, rules: &RolloutRules) -> bool {
        let ends = self.instances.iter().map(InstanceFact::pair);
        self.newest().is_none() && ends.chain(self.returning).any(|pair| self.wants(rules, pair))
    }

    /// Whether nothing runs there because its agent waits for this very rollout.
    pub fn awaits_it(&self) -> bool {
        self.awaits_rollout && self.instances.is_empty() && self.approval.is_none() && !self.replacing
    }

    /// Whether its agent is known to be alive or dead: then its report, or its mirror pod, can be believed.
    pub fn is_liveness_known(&self) -> bool {
        self.agent != AgentLiveness::Unknown
    }

    /// The instances that do not end, oldest first.
    pub(super) fn live(&self) -> impl DoubleEndedIterator<Item = &InstanceFact> {
        self.instances.iter().filter(|instance| !instance.ending)
    }

    pub(super) fn newest(&self) -> Option<&InstanceFact> {
        self.live().next_back()
    }
}

impl InstanceFact {
    /// What it is current by.
    pub fn pair(&self) -> (Name, Option<Name>) {
        (self.revision, self.overlays)
    }
}

impl ApprovalFact {
    /// What may run.
    pub fn pair(&self) -> (Name, Option<Name>) {
        (self.revision, self.overlays)
    }
}
