//! Whether an instance of a changed template may replace the current one now.
//!
//! Owns what a coordinator's approval means on the node. If the cluster has approvals, DaemonSets of the API change
//! only by an approval that the agent has claimed. A first instance never waits. An instance that ended for another
//! reason returns at its own revision. Restarts for changed data need no approval: they change no revision, so only
//! `update-jitter` spreads them.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::LastRun;

use super::Data;
use super::EndObservable;
use super::Permission;
use super::Planner;
use super::instance::StartFor;
use super::progress::Target;

impl Planner<'_> {
    fn permission(&self, target: &Target) -> Permission {
        // The stock controller does the rollouts of a `bootstrap` daemon; ours need no approval.
        match target.daemon_set.source {
            _ if self.summary.mode == Some(Mode::Bootstrap) => Permission::Free,
            Source::Api if !target.rollback => self.facts.permission(&target.daemon_set, &target.revision),
            _ => Permission::Free,
        }
    }

    /// Remembers which revision ran here, if it is not the wanted one.
    pub(super) fn note_previous(&mut self, daemon_set: &DaemonSet, desired: &str) {
        if daemon_set.source != Source::Api {
            return;
        }
        let old = self.record.live().filter(|i| i.revision != desired && !i.orphaned).last();
        let Some((old, template)) = old.and_then(|old| Some((old, old.daemon_set.as_ref()?))) else { return };
        if self.record.previous.as_ref().is_none_or(|p| p.revision != old.revision) {
            self.record.previous = Some(LastRun { revision: old.revision.clone(), daemon_set: Arc::clone(template) });
        }
    }

    /// The revision to return to, if the cluster withdraws the rollout.
    pub(super) fn taken_back(&mut self, daemon_set: &DaemonSet, desired: &str) -> Option<Target> {
        let approved = self.facts.approved(daemon_set).filter(|approved| *approved != desired)?;
        let previous = self.record.previous.as_ref().filter(|p| p.revision == approved)?;
        let target = Target {
            daemon_set: Arc::clone(&previous.daemon_set),
            revision: previous.revision.clone(),
            data: Data::Current,
            rollback: false,
        };
        self.summary.wanted_revision = Some(desired.to_owned());
        Some(target)
    }

    /// Why the target may not replace `old` yet, if so; its images are pulled meanwhile. `beside`: it starts while
    /// `old` runs.
    pub(super) fn not_permitted(&mut self, target: &Target, old: &Instance, beside: bool) -> Option<String> {
        let permission = match old.revision == target.revision {
            true => Permission::Free,
            false => self.permission(target),
        };
        match permission {
            Permission::Free if self.is_by_hand(&target.revision) => None,
            Permission::Free => self.not_yet(&target.daemon_set, &target.revision),
            Permission::Claimed => {
                self.replacing = Some(target.revision.clone());
                None
            }
            Permission::Withheld => {
                let daemon_set = self.last_admitted(&target.daemon_set);
                let rendering = self.facts.rendering(daemon_set, self.record.next_incarnation, target.data);
                self.pull = rendering.result.is_ok().then_some(rendering);
                self.summary.awaits_approval = true;
                Some("the coordinator has not approved it for this node yet".to_owned())
            }
            // A rendering that could not start is not claimed.
            Permission::Approved => {
                let before = self.summary.clone();
                if self.in_the_way(target, old, beside).is_some()
                    || self.prepare(target, StartFor::Replacement).is_none()
                {
                    // The replacement itself hits the same obstacle and reports it.
                    self.summary = before;
                    return None;
                }
                match self.facts.end_observable(old) {
                    EndObservable::No(_) if !beside => return None,
                    EndObservable::AskRuntime if !beside => self.ask_runtime(),
                    _ => self.replacing = Some(target.revision.clone()),
                }
                Some("its approval is being claimed".to_owned())
            }
        }
    }

    /// Asks the container runtime before the next decision.
    pub(super) fn ask_runtime(&mut self) {
        self.asks_runtime = true;
        self.wake(self.context.now);
    }

    /// Whether an administrator asked on this node to try the revision now.
    pub(super) fn is_by_hand(&self, revision: &str) -> bool {
        self.record.by_hand.as_deref() == Some(revision)
    }

    /// While the claimed replacement is under way, the claim is reported.
    pub(super) fn note_claim(&mut self, target: &Target) {
        if self.permission(target) == Permission::Claimed {
            self.replacing = Some(target.revision.clone());
        }
    }

    fn is_withheld(&self, target: &Target) -> bool {
        target.daemon_set.update_strategy != UpdateStrategy::OnDelete
            && matches!(self.permission(target), Permission::Withheld | Permission::Approved)
    }

    /// The revision with which an instance is restarted if the target is not permitted: its own.
    pub(super) fn restart_target(&self, target: &Target, old: &Instance) -> Option<Target> {
        if old.revision == target.revision || !self.is_withheld(target) {
            return None;
        }
        let data = if old.pinned { Data::Rollback } else { Data::Current };
        let daemon_set = old.daemon_set.clone()?;
        Some(Target { daemon_set, revision: old.revision.clone(), data, rollback: false })
    }

    /// What last ran here, if nothing runs and the target is not permitted.
    pub(super) fn or_last(&mut self, target: Target) -> Target {
        let Some(last) = self.record.last.clone() else { return target };
        if self.record.live().next().is_some() || last.revision == target.revision || !self.is_withheld(&target) {
            return target;
        }
        self.summary.wanted_revision = Some(target.revision);
        Target { daemon_set: last.daemon_set, revision: last.revision, data: Data::Current, rollback: false }
    }

    /// Ends an instance that will return, at its own revision if no other is permitted.
    pub(super) fn end_for_restart(&mut self, instance: &Instance, reason: &str, confirmed_by: EndConfirmation) {
        if let Some(daemon_set) = instance.daemon_set.clone() {
            self.record.last = Some(LastRun { revision: instance.revision.clone(), daemon_set });
        }
        self.end_as(&instance.uid, reason, true, confirmed_by);
    }
}
