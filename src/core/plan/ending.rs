//! How instances end: the manifest goes, then nothing of the pod runs any more, then it is forgotten.
//!
//! Owns the way from the end of an instance to its last trace. Must not decide which instances end, except those of a daemon that is gone.

use std::sync::Arc;

use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::rendering::RenderResult;
use crate::core::sources::DesiredReason;
use crate::core::time::Span;

use super::Action;
use super::DaemonPlan;
use super::Evidence;
use super::GONE_AFTER;
use super::ManifestFact;
use super::Planner;
use super::Reason;
use super::State;

/// If its manifest is still there so long after its end, an instance counts as running.
const UNREMOVED: Span = Span::from_secs(60);

impl DaemonPlan {
    /// Whether an action needs the record on disk: an end, or a start beside another instance.
    pub fn needs_record(&self, action: &Action) -> bool {
        match action {
            Action::End { .. } => true,
            Action::Start { .. } => self.record.instances.len() > 1,
            _ => false,
        }
    }

    /// The actions before the first that needs the record on disk.
    pub fn done_without_record(&self) -> &[Action] {
        let first = self.actions.iter().position(|action| self.needs_record(action));
        &self.actions[..first.unwrap_or(self.actions.len())]
    }
}

impl Planner<'_> {
    /// Finishes ended instances whose sandboxes are gone; looks again soon at the others.
    pub(super) fn finish_ended(&mut self) {
        let now = self.context.now;
        let ending: Vec<Instance> = self.plan.record.ending().cloned().collect();
        for instance in ending {
            let Phase::Ending { since, reason, confirmed_by, .. } = &instance.phase else { continue };
            if self.facts.manifest(&instance.uid) != ManifestFact::Missing {
                self.ends_again(&instance.uid);
                if now - *since >= UNREMOVED {
                    // Its manifest cannot be removed, so it runs: its data is kept up to date meanwhile.
                    self.refresh_volumes(&instance);
                }
                // The agent crashed between record and removal, or the manifest was put back from outside.
                self.plan.actions.push(Action::End {
                    uid: instance.uid.clone(),
                    pod: instance.pod_name.clone(),
                    reason: Reason::Recorded(reason.clone()),
                    successor: None,
                });
                continue;
            }
            let never_ran = instance.no_room || *confirmed_by == EndConfirmation::NeverStarted;
            let long_enough = instance.started || never_ran || now - *since >= GONE_AFTER;
            match self.facts.sandbox(&instance) {
                Evidence::Gone if long_enough && self.facts.mirror_pod_deletion_pending(&instance) => {
                    self.wake(now + poll_interval(now - *since));
                    self.plan.summary.reasons = [Reason::MirrorPodGoes(instance.pod_name.clone())].into();
                }
                Evidence::Gone if long_enough => self.finish(&instance),
                Evidence::Gone => self.wake(*since + GONE_AFTER),
                Evidence::Running => {
                    self.plan.record.mark_started(&instance.uid);
                    self.wake(now + poll_interval(now - *since));
                    let (pod, why) = (instance.pod_name.clone(), reason.clone());
                    self.plan.summary.reasons = [Reason::Ends { pod, why }].into();
                }
                // Nothing of it has run: its end needs no confirmation.
                Evidence::Unknown(_) if (instance.not_accepted || instance.no_room) && long_enough => {
                    self.finish(&instance)
                }
                Evidence::Unknown(unknown) => {
                    self.wake(now + poll_interval(now - *since));
                    let (pod, why) = (instance.pod_name.clone(), reason.clone());
                    self.plan.summary.reasons = [Reason::EndUnknown { pod, why, unknown }].into();
                }
            }
        }
    }

    fn finish(&mut self, instance: &Instance) {
        self.plan.actions.push(Action::Finish { uid: instance.uid.clone(), pod: instance.pod_name.clone() });
        self.plan.record.instances.retain(|i| i.uid != instance.uid);
        self.plan.record.returns =
            self.plan.record.instances.is_empty() && matches!(instance.phase, Phase::Ending { returns: true, .. });
        self.plan.record.ended.insert(instance.uid.clone(), self.context.now);
    }

    /// The manifest of an instance that had ended is back: earlier evidence of its end does not count any more.
    fn ends_again(&mut self, uid: &str) {
        let (now, here) = (self.context.now, self.context.boot);
        for instance in self.plan.record.instances.iter_mut().filter(|i| i.uid == uid) {
            if let Phase::Ending { since, boot, confirmed_by, .. } = &mut instance.phase
                && (boot != here || *confirmed_by == EndConfirmation::NeverStarted)
            {
                (*since, *boot, *confirmed_by) = (now, here.to_owned(), EndConfirmation::ByTime);
            }
        }
    }

    /// Ends an instance for good.
    pub(super) fn end(&mut self, uid: &str, reason: Reason) {
        self.end_as(uid, reason, false, EndConfirmation::Reported);
    }

    /// `returns`: another instance is to take its place.
    pub(super) fn end_as(&mut self, uid: &str, reason: Reason, returns: bool, confirmed_by: EndConfirmation) {
        let Some(pod) = self.plan.record.instance(uid).map(|i| i.pod_name.clone()) else { return };
        let (since, boot) = (self.context.now, self.context.boot.to_owned());
        let phase = Phase::Ending { since, reason: reason.to_string(), boot, returns, confirmed_by };
        self.plan.record.end(uid, &phase);
        self.plan.actions.push(Action::End { uid: uid.to_owned(), pod, reason, successor: None });
        self.wake(self.context.now + poll_interval(Span::ZERO));
    }

    /// The instance `uid`, whose end is planned, makes room for `next`.
    pub(super) fn ends_for(&mut self, uid: &str, next: &Arc<RenderResult>) {
        for action in &mut self.plan.actions {
            if let Action::End { uid: ends, successor, .. } = action
                && ends == uid
            {
                *successor = Some(Arc::clone(next));
            }
        }
    }

    pub(super) fn gone(&mut self, why: &DesiredReason, by_list: bool, ignore_file: Option<&str>) {
        let reason = Reason::Desired(why.clone());
        if by_list && self.context.removals_held && self.plan.record.live().next().is_some() {
            self.keep(State::Unknown, [reason, Reason::AwaitsSecondList]);
            return;
        }
        self.plan.record.ignored_file = ignore_file.map(str::to_owned);
        self.plan.record.pending_update = None;
        // No former instance returns either, while this one still ends.
        (self.plan.record.last, self.plan.record.previous, self.plan.record.returns) = (None, None, false);
        self.end_returns();
        let live: Vec<String> = self.plan.record.live().filter(|i| !i.orphaned).map(|i| i.uid.clone()).collect();
        for uid in live {
            self.end(&uid, reason.clone());
        }
        if self.plan.record.live().next().is_some() {
            self.keep(State::Orphaned, [Reason::OrphanStays]);
            self.plan.summary.state = State::Orphaned;
            return;
        }
        if self.plan.record.instances.is_empty() {
            self.retire(why);
        }
        self.show_ended(reason);
    }

    /// Nothing of the daemon is here any more. Unless it was deleted it may be selected again, and what was handed over in this
    /// boot still is.
    fn retire(&mut self, why: &DesiredReason) {
        let may_return = matches!(why, DesiredReason::NotCovered(_) | DesiredReason::Undefined { .. });
        let (record, boot) = (&mut self.plan.record, self.context.boot);
        // One that is done waits for no pod: the API server shows whether that is there.
        let is_open = |done: bool, of: &str| may_return && !done && of == boot;
        let hand_over = record.hand_over.take().filter(|hand_over| is_open(hand_over.done, &hand_over.boot));
        let failed = record.failed_hand_over.take().filter(|failed| may_return && failed.boot == boot);
        record.retire();
        (record.hand_over, record.failed_hand_over) = (hand_over, failed);
    }

    /// It is not ours here. Of labels that were taken away, as after a hand-over, only the number is remembered, and what
    /// was released: they may be put back.
    pub(super) fn left(&mut self, reason: &DesiredReason, taken_away: bool) {
        if taken_away && self.plan.record.instances.is_empty() {
            self.plan.record.retire();
        }
        self.keep(State::LeftAlone, [Reason::Desired(reason.clone())]);
    }

    /// An instance that ends already ends for good.
    pub(super) fn end_returns(&mut self) {
        for instance in &mut self.plan.record.instances {
            if let Phase::Ending { returns, .. } = &mut instance.phase {
                *returns = false;
            }
        }
    }

    /// Nothing should run here any more: reports why, or which instance still ends.
    pub(super) fn show_ended(&mut self, reason: Reason) {
        let Some(instance) = self.plan.record.instances.last() else {
            self.plan.summary.state = State::NotSelected;
            return self.add_reason(reason);
        };
        self.plan.summary.state = State::Stopping;
        self.plan.summary.pod.clone_from(&instance.pod_name);
        self.plan.summary.uid.clone_from(&instance.uid);
        self.plan.summary.revision.clone_from(&instance.revision);
        if self.plan.summary.source.is_none() {
            self.plan.summary.source = instance.daemon_set.as_ref().map(|d| d.source.clone());
        }
        if self.plan.summary.reasons.is_empty() {
            self.add_reason(reason);
        }
    }

    pub(super) fn orphaned(&mut self, ignore_file: Option<&str>) {
        self.plan.record.ignored_file = ignore_file.map(str::to_owned);
        for instance in &mut self.plan.record.instances {
            instance.orphaned = true;
        }
        self.keep(State::Orphaned, [Reason::Orphaned]);
        self.plan.summary.state = State::Orphaned;
    }
}

/// When to look again at an instance that ends: often at first, later every second.
fn poll_interval(waited: Span) -> Span {
    match waited.as_millis() {
        ..2_000 => Span::from_millis(50),
        2_000..10_000 => Span::from_millis(200),
        _ => Span::from_secs(1),
    }
}
