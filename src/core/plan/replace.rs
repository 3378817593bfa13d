//! The plan for a daemon of which only an outdated instance is here: what keeps it, and how it ends.
//!
//! Must not begin a new one while the end of the old one cannot be observed.

use crate::core::model::UpdateStrategy;
use crate::core::placement::Misfit;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::time::Span;

use super::EndObservable;
use super::Hint;
use super::Planner;
use super::Reason;
use super::Reasons;
use super::State;
use super::Unobservable;
use super::instance::StartFor;
use super::progress::Target;

/// How soon it is looked again whether the end of an old instance can be observed.
const LOOK_AGAIN: Span = Span::from_secs(5);

impl Planner<'_> {
    /// Only an outdated instance is here.
    pub(super) fn replace(&mut self, target: &Target, old: &Instance, misplaced: Option<&Misfit>, surge: bool) {
        let wanted = target.revision.clone();
        let order =
            old.restart.as_ref().filter(|_| self.is_ordered(old)).map(|order| Reason::Ordered(order.cause.clone()));
        let former = match self.facts.former_node(old) {
            Some(name) => Some(Reason::FormerNode(name.to_owned())),
            None if old.daemon_set.is_none() && old.revision == wanted => Some(Reason::ForeignUid),
            None => None,
        };
        let order = order.or(former);
        if let (Some(order), Some(misfit)) = (&order, misplaced) {
            self.end_for_restart(old, order.clone(), EndConfirmation::Reported);
            let reason = Reason::NotReturning(Box::new(order.clone()), misfit.clone());
            return self.show_as(old, State::Stopping, [reason]);
        }
        // A roll-back goes on although the node is unhealthy: the failed revision may be the cause.
        let goes_back = target.rollback || self.plan.summary.wanted_revision.as_ref() != Some(&target.revision);
        let misplaced = misplaced.filter(|_| !goes_back || !self.belongs(&target.daemon_set));
        let restart = order.as_ref().and_then(|_| self.restart_target(target, old));
        let target = restart.as_ref().unwrap_or(target);
        let waits: Option<Reasons> = if let Some(misfit) = misplaced {
            self.plan.record.staged = None;
            Some([Reason::NotHere(misfit.clone())].into())
        } else if order.is_some() || target.rollback || old.not_accepted {
            None
        } else if old.daemon_set.is_none() && self.facts.is_remembered(&target.daemon_set) {
            Some([Reason::Unrecorded].into())
        } else if target.daemon_set.update_strategy == UpdateStrategy::OnDelete && !self.is_by_hand(&wanted) {
            self.plan.record.staged = None;
            Some([Reason::OnDelete].into())
        } else {
            self.not_permitted(target, old, surge)
        };
        if let Some(waits) = waits {
            self.refresh(old);
            self.show(old);
            return self.add_reason(Reason::RevisionWaits { revision: wanted, waits });
        }
        let at_boot = order.is_none() && self.is_swapped_at_boot(target, old);
        let beside = surge && order.is_none() && !at_boot;
        if let Some(why) = self.in_the_way(target, old, beside) {
            self.stays(old);
            self.plan.summary.state = State::Waiting;
            return self.add_reason(Reason::CannotStart { revision: wanted, lacks: [why].into() });
        }
        // A running instance has its images: another instance of its revision need not wait for a check of them.
        let same = order.is_some() && old.revision == target.revision;
        let start_for = match (old.not_accepted, same) {
            _ if at_boot => StartFor::Boot,
            (true, _) => StartFor::Nothing,
            (false, true) => StartFor::Restart,
            (false, false) => StartFor::Replacement,
        };
        let Some(prepared) = self.prepare(target, start_for) else {
            // The summary says what the new revision is missing; the old instance stays.
            let (state, lacks) = (self.plan.summary.state, std::mem::take(&mut self.plan.summary.reasons));
            self.stays(old);
            if state == State::Refused {
                self.plan.summary.state = State::Refused;
            }
            if old.revision != target.revision {
                self.note_missing(target);
            }
            return self.add_reason(Reason::CannotStart { revision: wanted, lacks });
        };
        if at_boot {
            // Nothing of either runs before the kubelet does.
            self.plan.replacing = None;
            self.begin_at_boot(target, &prepared);
            self.end_as(&old.uid, Reason::ReplacedAtBoot(wanted), true, EndConfirmation::NeverStarted);
        } else if beside {
            self.refresh(old);
            self.begin(target, &prepared, Reason::BesideOld);
        } else {
            let returns_as_it_is = order.is_some() || old.revision == target.revision;
            let cause = order.unwrap_or(match returns_as_it_is {
                true => Reason::DataChanged,
                false => Reason::Replaced(wanted),
            });
            let confirmed_by = match self.facts.end_observable(old) {
                EndObservable::By(confirmed_by) => confirmed_by,
                EndObservable::AskRuntime => {
                    self.stays(old);
                    return self.ask_runtime(self.context.now);
                }
                EndObservable::No(why) => return self.cannot_observe_end(old, cause, why),
            };
            match returns_as_it_is {
                true => self.end_for_restart(old, cause, confirmed_by),
                false => {
                    self.note_replacement(target);
                    self.end_as(&old.uid, cause, true, confirmed_by);
                }
            }
            self.ends_for(&old.uid, &prepared.rendering);
            self.show_as(old, State::Replacing, [Reason::OldEndsFirst]);
        }
    }

    /// The end of the old instance could not be observed, and two never run at once: it stays until it can be.
    fn cannot_observe_end(&mut self, old: &Instance, cause: Reason, why: Unobservable) {
        self.stays(old);
        self.wake(self.context.now + LOOK_AGAIN);
        self.plan.summary.state = State::Waiting;
        self.plan.summary.hints.push(Hint::GiveEndpoint);
        self.add_reason(Reason::EndUnobservable { cause: Box::new(cause), why });
    }

    /// The old instance stays, and its claim is returned: the coordinator never withdraws a claim, so the slot would
    /// be lost for ever.
    fn stays(&mut self, old: &Instance) {
        self.plan.replacing = None;
        self.refresh(old);
        self.show(old);
    }
}
