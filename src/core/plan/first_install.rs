//! The first instance of a DaemonSet that was never released, on a node that never ran it.
//!
//! Owns when it waits for the coordinator's approval (`daemonlet.dev/first-install`). DaemonSets from folders and those
//! that were released once never do.

use crate::core::model::FIRST_INSTALL;
use crate::core::model::Mode;
use crate::core::model::Source;

use super::Permission;
use super::Planner;
use super::Reason;
use super::State;
use super::Withheld;
use super::progress::Target;

impl Planner<'_> {
    /// Whether the target starts only with the coordinator's approval.
    pub(super) fn needs_approval(&self, target: &Target) -> bool {
        let (daemon_set, record) = (&target.daemon_set, &self.plan.record);
        let has_run = !record.instances.is_empty()
            || record.last.is_some()
            || record.previous.is_some()
            || record.good.is_some()
            || record.accepted.is_some();
        !has_run
            && daemon_set.source == Source::Api
            && self.plan.summary.mode == Some(Mode::Static)
            && daemon_set.annotations.contains_key(FIRST_INSTALL)
            && daemon_set.rollout.released.is_none()
            && !self.facts.coordination_is_off(daemon_set)
    }

    /// Whether the target waits for the coordinator's approval; the summary says so. Its images are pulled meanwhile.
    pub(super) fn awaits_first_approval(&mut self, target: &Target) -> bool {
        let withheld = match self.permission(target) {
            Permission::Free => Withheld::NoCoordinator,
            Permission::Withheld(withheld) => withheld,
            Permission::Approved | Permission::Standing(_) | Permission::Staged | Permission::Claimed => return false,
        };
        let Some(waits) = self.withheld(target, withheld) else { return false };
        self.plan.summary.state = State::Waiting;
        self.plan.summary.revision.clone_from(&target.revision);
        self.add_reason(Reason::AwaitsFirstApproval(waits));
        true
    }

    /// Whether the approval of the target, which can start, is still to be claimed. The target does not start without.
    pub(super) fn claims_approval(&mut self, target: &Target) -> bool {
        match self.permission(target) {
            Permission::Claimed => return false,
            Permission::Approved => self.plan.replacing = Some(target.revision.clone()),
            Permission::Free | Permission::Standing(_) | Permission::Staged | Permission::Withheld(_) => {}
        }
        self.plan.summary.state = State::Waiting;
        self.add_reason(Reason::BeingClaimed);
        true
    }
}
