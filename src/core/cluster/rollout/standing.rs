//! Approvals that wait for a trigger on their node, without time limit and without a slot until they are claimed.
//!
//! Owns which those are. Must neither give nor withdraw any.

use super::ApprovalFact;
use super::NodeFact;
use super::RolloutRules;
use crate::core::cluster::names::Name;

impl ApprovalFact {
    /// Whether it waits for a trigger on its node.
    pub(super) fn is_standing(&self) -> bool {
        self.when.is_some()
    }

    /// Whether it takes a slot before it is claimed.
    pub(super) fn takes_slot(&self, rules: &RolloutRules) -> bool {
        !self.is_standing() && rules.when.is_none()
    }
}

impl NodeFact<'_> {
    /// Whether it has an approval that stands until its trigger comes, and has not begun to replace.
    pub(super) fn waits_for_trigger(&self) -> bool {
        !self.replacing && self.approval.is_some_and(|approval| approval.is_standing())
    }

    /// The revision that starts there at the next boot though nothing approves it for a rollout to `target`: its agent has yet
    /// to give it back.
    pub fn stray(&self, target: Name) -> Option<Name> {
        let is_given = |staged: Name| staged == target && self.approval.is_some_and(|given| given.revision == staged);
        self.staged.filter(|staged| !is_given(*staged))
    }

    /// Whether a replacement has been given to it, or will be made at its next boot.
    pub(super) fn is_under_way(&self) -> bool {
        self.approval.is_some() || self.replacing || self.staged.is_some()
    }
}
