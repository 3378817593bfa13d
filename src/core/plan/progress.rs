//! Which revision should run here: the wanted one, or the last good one if the wanted one failed.
//!
//! Owns the judgement of revisions. Its invariants:
//! * A revision fails only if no instance of it became available within its progress deadline *and* there is evidence
//!   of what is wrong. Unknown readiness is no evidence.
//! * The deadline covers all its instances: one that the kubelet does not accept is tried again and again.
//! * A revision is good once an instance of it has been available for 30 s (or its deadline, if shorter), as a
//!   crashing container is ready for moments. Without any source of readiness it is good once it ran steadily until
//!   the deadline, or at once if no other revision has been good.
//! * Data that changed under a good instance becomes the data of a roll-back only if the instance ran with it for a
//!   while and no other revision was wanted. So data and template that change together are rolled back together.
//! * A revision that the kubelet does not accept has failed at once (`not_accepted`).
//! * A failed revision is not tried again until the template changes (with `restart-on: config` also the data), or an
//!   administrator asks for it.

use std::sync::Arc;

use crate::core::annotations::progress_deadline;
use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::model::PROGRESS_DEADLINE;
use crate::core::model::RESTART_ON;
use crate::core::model::RETRY;
use crate::core::model::ROLLBACK;
use crate::core::model::UpdateStrategy;
use crate::core::record::Cause;
use crate::core::record::DataCandidate;
use crate::core::record::FailedRevision;
use crate::core::record::Good;
use crate::core::record::Instance;
use crate::core::record::Progress;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Action;
use super::Data;
use super::Planner;
use super::Readiness;
use super::Reason;
use super::ready::Availability;
use super::ready::STEADY;
use super::reason::Fallback;

/// The default progress deadline; upstream's default for Deployments.
const DEFAULT_DEADLINE: Span = Span::from_mins(10);
/// How long a good instance must run with changed data before a roll-back returns to that data.
const DATA_GOOD_AFTER: Span = Span::from_secs(30);
/// How soon to look again at an unavailable instance, and at a late one.
const LOOK_AGAIN: Span = Span::from_secs(5);
const LOOK_AGAIN_LATE: Span = Span::from_secs(10);

/// What should run here.
pub(super) struct Target {
    /// The DaemonSet to render.
    pub(super) daemon_set: Arc<DaemonSet>,
    pub(super) revision: String,
    /// The data to render it with.
    pub(super) data: Data,
    /// Whether this is the good revision, because the wanted one failed.
    pub(super) rollback: bool,
}

impl Planner<'_> {
    /// Judges the instances, and records which revision is good and which failed.
    pub(super) fn judge(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) {
        self.follow_retry(daemon_set, desired);
        self.forgive(daemon_set, desired);
        self.judge_acceptance(desired);
        let mut live: Vec<Instance> = self.plan.record.live().filter(|i| !i.orphaned).cloned().collect();
        live.sort_by_key(|i| i.incarnation);
        let mut serves = None;
        for instance in &live {
            // Without a probe, a crashing container is ready for a moment, too.
            let least = STEADY.min(deadline_of(daemon_set));
            let availability = self.availability(daemon_set, instance, least);
            if availability == Availability::No {
                continue;
            }
            let proven = availability == Availability::Ready || self.time_is_over(daemon_set, instance, desired);
            if proven {
                self.has_been_available(instance, desired);
            }
            serves = Some((instance, proven));
        }
        if let Some((instance, proven)) = serves.filter(|(i, _)| !i.pinned) {
            let again = |f: &FailedRevision| {
                f.revision == instance.revision
                    && f.data_version.as_ref().is_none_or(|version| *version == instance.data_version)
            };
            if proven && self.plan.record.failed.as_ref().is_some_and(again) {
                self.plan.record.failed = None;
            }
            if proven || self.plan.record.good.as_ref().is_none_or(|good| good.revision == instance.revision) {
                self.remember_good(daemon_set, instance, desired);
            }
        }
        if let Some(newest) = live.last() {
            self.watch_deadline(daemon_set, newest, desired);
        }
        self.plan.summary.failed.clone_from(&self.plan.record.failed);
    }

    /// Forgets that a revision failed which was set aside here, once for each order of the cluster to try it again.
    fn follow_retry(&mut self, daemon_set: &DaemonSet, desired: &str) {
        let order = daemon_set.annotations.get(RETRY);
        let is_for = |order: &&String| order.split_once('/').is_some_and(|(hash, _)| hash == template_hash(desired));
        let Some(order) = order.filter(is_for).filter(|order| self.plan.record.retry.as_ref() != Some(order)) else {
            return;
        };
        self.plan.record.retry = Some(order.clone());
        let is_aside = self.plan.record.live().all(|instance| instance.revision != desired);
        if is_aside && self.plan.record.failed.as_ref().is_some_and(|failed| failed.revision == desired) {
            self.plan.record.failed = None;
            self.plan.record.progress = None;
        }
    }

    /// Forgets a failure once the failed revision is no longer wanted.
    fn forgive(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) {
        let approved = self.facts.approved(daemon_set);
        if self
            .plan
            .record
            .by_hand
            .as_deref()
            .is_some_and(|by_hand| by_hand != desired && approved.as_deref() != Some(by_hand))
        {
            self.plan.record.by_hand = None;
        }
        let Some(failed) = &self.plan.record.failed else { return };
        // Unknown data does not count as other data.
        let today = || self.data_version(daemon_set, Data::Current);
        let other_data = || failed.data_version.is_some() && today().is_some_and(|t| Some(t) != failed.data_version);
        if failed.revision != desired || other_data() || self.may_be_accepted_now(failed) {
            self.plan.record.failed = None;
            self.plan.record.progress = None;
        }
    }

    /// The version of the data that a new instance would get; `None` while it is unknown.
    fn data_version(&self, daemon_set: &Arc<DaemonSet>, data: Data) -> Option<String> {
        let rendering = self.facts.rendering(self.last_admitted(daemon_set), self.plan.record.next_incarnation, data);
        let rendered = rendering.result.as_ref().ok().filter(|rendered| rendered.pod.waiting_for.is_empty())?;
        Some(rendered.pod.data_version.clone())
    }

    fn has_been_available(&mut self, instance: &Instance, desired: &str) {
        let now = self.context.now;
        if let Some(known) = self.plan.record.instances.iter_mut().find(|i| i.uid == instance.uid) {
            known.available.get_or_insert(now);
        }
        if instance.revision == desired {
            self.plan.record.progress = None;
        }
    }

    fn remember_good(&mut self, daemon_set: &DaemonSet, instance: &Instance, desired: &str) {
        let Some(own) = &instance.daemon_set else { return };
        let rendering = self.facts.rendering(own, instance.incarnation, Data::Current);
        let Ok(rendered) = &rendering.result else { return };
        let version = &rendered.pod.data_version;
        // An instance that is to be restarted for changed data still runs with its old data.
        let to_restart = restarts_on_data(daemon_set) && *version != instance.data_version;
        if !rendered.pod.waiting_for.is_empty() || to_restart {
            return;
        }
        let now = self.context.now;
        let keeps = rolls_back(daemon_set);
        // It may have changed together with the template. (With OnDelete a revision may stay for years.)
        let in_doubt = instance.revision != desired && daemon_set.update_strategy != UpdateStrategy::OnDelete;
        let good = self.plan.record.good.as_mut().filter(|good| good.revision == instance.revision);
        let changed = match good {
            None => true,
            Some(good) if good.data_version == *version => {
                good.candidate = None;
                keeps && !good.has_rollback_data
            }
            Some(_) if in_doubt => false,
            Some(good) => {
                let since = match &good.candidate {
                    Some(candidate) if candidate.data_version == *version => candidate.since,
                    _ => {
                        good.candidate = Some(DataCandidate { data_version: version.clone(), since: now });
                        now
                    }
                };
                if now < since + DATA_GOOD_AFTER {
                    self.wake(since + DATA_GOOD_AFTER);
                }
                now >= since + DATA_GOOD_AFTER
            }
        };
        if changed {
            self.plan.record.good = Some(Good {
                revision: instance.revision.clone(),
                data_version: version.clone(),
                has_rollback_data: keeps,
                candidate: None,
                daemon_set: None,
            });
            if keeps {
                self.plan.actions.push(Action::Keep { rendering: super::shrunk(&rendering) });
            }
        }
    }

    /// Decides whether the newest instance of the wanted revision has exceeded its deadline.
    fn watch_deadline(&mut self, daemon_set: &Arc<DaemonSet>, instance: &Instance, desired: &str) {
        let known = self.plan.record.instance(&instance.uid);
        let judged = known.is_none_or(|i| i.available.is_some()) || self.plan.record.failed.is_some();
        // A container that waits for its environment is no fault of the revision.
        let waits = self.gate.is_closed() || known.is_some_and(|i| !i.waiting.is_empty());
        if judged || waits || instance.pinned || instance.revision != desired {
            return;
        }
        let at = self.deadline_at(daemon_set, instance, desired);
        if self.context.now < at {
            return self.wake(at.min(self.context.now + LOOK_AGAIN));
        }
        let same_template = self.plan.record.good.as_ref().is_some_and(|good| good.revision == desired);
        let today = || self.data_version(daemon_set, Data::Current);
        let data_version = match restarts_on_data(daemon_set) {
            // It is about to be replaced because its data changed.
            true if today().is_some_and(|today| today != instance.data_version) => return,
            true => Some(instance.data_version.clone()),
            false => today().filter(|_| same_template),
        };
        let ready = matches!(self.facts.readiness(instance), Readiness::Ready { .. });
        let failure = self.facts.failure(instance).filter(|f| !ready && f.cause.blames_revision());
        match failure {
            Some(mut failure) => {
                if failure.cause == Cause::NotAccepted && self.was_read(desired) {
                    // Without an API server, a rejection of the pod is not reported.
                    failure.cause = Cause::Admission;
                }
                let revision = desired.to_owned();
                self.plan.record.progress = None;
                let at = self.context.now;
                self.plan.record.failed =
                    Some(FailedRevision { revision, data_version, failure, conditions: None, at });
            }
            None => self.wake(self.context.now + LOOK_AGAIN_LATE),
        }
    }

    /// The deadline of the wanted revision. It counts from its first instance, without the time that the node was off.
    fn deadline_at(&mut self, daemon_set: &DaemonSet, instance: &Instance, desired: &str) -> Timestamp {
        let data_version = restarts_on_data(daemon_set).then(|| instance.data_version.clone());
        let same = |p: &&Progress| p.revision == desired && p.data_version == data_version;
        let since = self.plan.record.progress.as_ref().filter(same).map_or(instance.created, |p| p.since);
        self.plan.record.progress = Some(Progress { revision: desired.to_owned(), data_version, since });
        since.max(self.context.booted) + deadline_of(daemon_set)
    }

    /// Whether there is no evidence against the instance up to its deadline.
    fn time_is_over(&mut self, daemon_set: &DaemonSet, instance: &Instance, desired: &str) -> bool {
        let judged = self.plan.record.instance(&instance.uid).is_none_or(|i| i.available.is_some());
        judged || instance.revision != desired || self.deadline_at(daemon_set, instance, desired) <= self.context.now
    }

    /// What should run: the wanted revision, or the good one if that failed and a roll-back is configured.
    pub(super) fn target(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) -> Target {
        let wanted = Target {
            daemon_set: Arc::clone(daemon_set),
            revision: desired.to_owned(),
            data: Data::Current,
            rollback: false,
        };
        let Some(failed) = self.plan.record.failed.clone() else { return wanted };
        let failure = failed.failure.clone();
        let unavailable = |fallback| Reason::Unavailable { revision: desired.to_owned(), failure, fallback };
        if self.is_not_accepted(desired) {
            let Some(target) = self.last_accepted(desired) else { return wanted };
            self.plan.summary.wanted_revision = Some(desired.to_owned());
            let (revision, message, back) = (desired.to_owned(), failed.failure.message, target.revision.clone());
            self.add_reason(Reason::BackFromNotAccepted { revision, message, back });
            return target;
        }
        if !rolls_back(daemon_set) {
            self.add_reason(unavailable(Fallback::NoRollback));
            return wanted;
        }
        let other = |good: &Good| {
            good.revision != desired || failed.data_version.as_ref().is_some_and(|v| *v != good.data_version)
        };
        let good = self.plan.record.good.as_ref().filter(|good| other(good));
        let of = |good: &Good| {
            let carried = self.plan.record.instances.iter().find(|i| i.revision == good.revision);
            good.daemon_set.clone().or_else(|| carried.and_then(|i| i.daemon_set.clone()))
        };
        let Some((good, good_set)) = good.and_then(|good| Some((good.clone(), of(good)?))) else {
            self.add_reason(unavailable(match &self.plan.record.good {
                Some(good) if good.revision == desired => Fallback::NoOtherGood,
                _ => Fallback::NoneGood,
            }));
            return wanted;
        };
        self.plan.summary.wanted_revision = Some(desired.to_owned());
        self.add_reason(unavailable(Fallback::Good(good.revision.clone())));
        let data = if good.has_rollback_data { Data::Rollback } else { Data::Current };
        Target { daemon_set: good_set, revision: good.revision, data, rollback: true }
    }
}

/// The progress deadline.
pub(super) fn deadline_of(daemon_set: &DaemonSet) -> Span {
    daemon_set.annotations.get(PROGRESS_DEADLINE).and_then(|text| progress_deadline(text)).unwrap_or(DEFAULT_DEADLINE)
}

/// Whether the DaemonSet asks for a roll-back.
pub(super) fn rolls_back(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(ROLLBACK).is_some_and(|v| v == "auto")
}

/// Whether changed data gives a new instance.
pub(super) fn restarts_on_data(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(RESTART_ON).is_some_and(|v| v == "config")
}
