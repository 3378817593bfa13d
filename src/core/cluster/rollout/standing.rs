//! Approvals that wait for a trigger on their node, without time limit and without a slot until they are claimed.
//!
//! Owns which those are. Must neither give nor withdraw any.

use super::ApprovalFact;
use super::NodeFact;
use super::RolloutRules;

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

    /// Whether a replacement has been given to it, or will be made at its next boot.
    pub(super) fn is_under_way(&self) -> bool {
        self.approval.is_some() || self.replacing || self.staged
    }
}
