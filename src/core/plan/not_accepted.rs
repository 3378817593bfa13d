//! Revisions whose manifest the kubelet does not accept.
//!
//! Owns what follows: such a revision has failed at once, and the last one that the kubelet accepted returns, whatever
//! `daemonlet.dev/rollback` says: the failed revision cannot run at all. Without such a revision it stays, and is tried again
//! when another kubelet or another manifest may fare better. A revision that the kubelet accepted before, or rejected in
//! its own words, is tried again with a back-off: it has read the manifest.

use crate::core::record::AcceptedRevision;
use crate::core::record::Cause;
use crate::core::record::FailedRevision;
use crate::core::record::Failure;
use crate::core::record::Instance;
use crate::core::record::RestartCause;
use crate::core::record::RestartOrder;

use super::Accepted;
use super::Data;
use super::Planner;
use super::progress::Target;

impl Planner<'_> {
    /// Notes which live instances the kubelet has accepted, and which not.
    pub(super) fn judge_acceptance(&mut self, desired: &str) {
        let mut live: Vec<Instance> = self.plan.record.live().filter(|i| !i.orphaned).cloned().collect();
        live.sort_by_key(|i| i.incarnation);
        for instance in &live {
            match self.facts.accepted(instance) {
                Accepted::No(why) if instance.restart.is_none() => {
                    self.not_accepted(instance, why.to_string(), desired);
                }
                Accepted::Yes => self.was_accepted(instance),
                _ if instance.started => self.was_accepted(instance),
                _ => {}
            }
        }
    }

    fn was_accepted(&mut self, instance: &Instance) {
        self.plan.record.instances.iter_mut().filter(|i| i.uid == instance.uid).for_each(|i| i.not_accepted = false);
        if self.is_not_accepted(&instance.revision) {
            (self.plan.record.failed, self.plan.record.progress) = (None, None);
        }
        let is_known = self.plan.record.accepted.as_ref().is_some_and(|a| a.revision == instance.revision);
        if !is_known && instance.daemon_set.is_some() {
            self.plan.record.accepted =
                Some(AcceptedRevision { revision: instance.revision.clone(), daemon_set: None });
        }
    }

    fn not_accepted(&mut self, instance: &Instance, reason: String, desired: &str) {
        let now = self.context.now;
        let cause = RestartCause::NotAccepted { reason: reason.clone() };
        if instance.started || self.was_read(&instance.revision) {
            return self.plan.record.order_restart(&instance.uid, cause, now, self.facts.surroundings(instance).then);
        }
        if instance.revision != desired || self.plan.record.failed.is_some() {
            return;
        }
        let Some(known) = self.plan.record.instances.iter_mut().find(|i| i.uid == instance.uid) else { return };
        if known.not_accepted {
            // It was forgiven: another one is tried.
            known.restart = Some(RestartOrder { cause, at: now, due: now });
            return;
        }
        known.not_accepted = true;
        self.plan.record.progress = None;
        self.plan.record.failed = Some(FailedRevision {
            revision: desired.to_owned(),
            data_version: None,
            failure: Failure { cause: Cause::NotAccepted, message: reason },
            conditions: Some(self.facts.acceptance_conditions()),
            at: now,
        });
    }

    /// Whether the kubelet has read a manifest of the revision before: it accepted it, or rejected it in its own words.
    pub(super) fn was_read(&self, revision: &str) -> bool {
        let accepted = self.plan.record.accepted.as_ref().map(|accepted| &accepted.revision);
        let good = self.plan.record.good.as_ref().map(|good| &good.revision);
        [accepted, good, self.plan.record.rejected.as_ref()].into_iter().flatten().any(|read| read == revision)
    }

    /// Whether a revision failed because the kubelet did not accept it.
    pub(super) fn is_not_accepted(&self, revision: &str) -> bool {
        let failed = self.plan.record.failed.as_ref().filter(|failed| failed.revision == revision);
        failed.is_some_and(|failed| failed.failure.cause == Cause::NotAccepted)
    }

    /// Whether an instance that the kubelet did not accept may be accepted now. A rejection may have gone unnoticed while no API
    /// server answered: then the instance is tried once more when one does, if nothing runs in its stead.
    pub(super) fn may_be_accepted_now(&self, failed: &FailedRevision) -> bool {
        let Some(before) = &failed.conditions else { return false };
        let now = self.facts.acceptance_conditions();
        let has_api_again = now.has_api && !before.has_api;
        now.differs(before) || has_api_again && self.last_accepted(&failed.revision).is_none()
    }

    /// The last revision that the kubelet accepted, if it is another one than `desired`.
    pub(super) fn last_accepted(&self, desired: &str) -> Option<Target> {
        let accepted = self.plan.record.accepted.as_ref().filter(|accepted| accepted.revision != desired)?;
        let mut carried = self.plan.record.instances.iter().filter(|i| i.revision == accepted.revision);
        let daemon_set = accepted.daemon_set.clone().or_else(|| carried.find_map(|i| i.daemon_set.clone()))?;
        let kept = self.plan.record.good.as_ref().filter(|good| good.revision == accepted.revision);
        let data = match kept.is_some_and(|good| good.has_rollback_data) {
            true => Data::Rollback,
            false => Data::Current,
        };
        Some(Target { daemon_set, revision: accepted.revision.clone(), data, rollback: true })
    }

    /// Why the instance does not run, if the kubelet did not accept it.
    pub(super) fn why_not_accepted(&self, instance: &Instance) -> Option<String> {
        let failed = self.plan.record.failed.as_ref().filter(|failed| failed.revision == instance.revision)?;
        let is_it =
            self.plan.record.instance(&instance.uid).is_some_and(|i| i.not_accepted) && failed.conditions.is_some();
        is_it.then(|| failed.failure.message.clone())
    }
}
