//! The plan for a daemon of which only an outdated instance is here: what keeps it, and how it ends.
//!
//! Must not begin a new one while the end of the old one cannot be observed.

use crate::core::model::UpdateStrategy;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::time::Span;

use super::EndObservable;
use super::Planner;
use super::State;
use super::instance::StartFor;
use super::progress::Target;

/// How soon it is looked again whether the end of an old instance can be observed.
const LOOK_AGAIN: Span = Span::from_secs(5);

impl Planner<'_> {
    /// Only an outdated instance is here.
    pub(super) fn replace(&mut self, target: &Target, old: &Instance, misplaced: Option<&str>, surge: bool) {
        let wanted = target.revision.clone();
        let order = old.restart.as_ref().filter(|_| self.is_ordered(old)).map(|order| order.cause.words());
        let former = match self.facts.former_node(old) {
            Some(name) => Some(format!("the node was named {name} when it was made")),
            None if old.daemon_set.is_none() && old.revision == wanted => {
                Some("its UID is that of a node with another name".to_owned())
            }
            None => None,
        };
        let order = order.or(former);
        if let (Some(order), Some(reason)) = (&order, misplaced) {
            self.end_for_restart(old, order, EndConfirmation::Reported);
            return self.show_as(old, State::Stopping, &format!("{order}, and no new one starts here: {reason}"));
        }
        // A roll-back goes on although the node is unhealthy: the failed revision may be the cause.
        let goes_back = target.rollback || self.plan.summary.wanted_revision.as_ref() != Some(&target.revision);
        let misplaced = misplaced.filter(|_| !goes_back || !self.belongs(&target.daemon_set));
        let restart = order.as_ref().and_then(|_| self.restart_target(target, old));
        let target = restart.as_ref().unwrap_or(target);
        let hold = if let Some(reason) = misplaced {
            self.plan.record.staged = None;
            Some(format!("a new instance would not be started here: {reason}"))
        } else if order.is_some() || target.rollback || old.not_accepted {
            None
        } else if old.daemon_set.is_none() && self.facts.is_remembered(&target.daemon_set) {
            Some("no record knows what runs: the API server is asked first".to_owned())
        } else if target.daemon_set.update_strategy == UpdateStrategy::OnDelete && !self.is_by_hand(&wanted) {
            self.plan.record.staged = None;
            Some("the update strategy is OnDelete: the pod keeps its revision until it is deleted".to_owned())
        } else {
            self.not_permitted(target, old, surge)
        };
        if let Some(hold) = hold {
            self.refresh(old);
            self.show(old);
            return self.add_reason(&format!("revision {wanted} waits: {hold}"));
        }
        let at_boot = order.is_none() && self.is_swapped_at_boot(target, old);
        let beside = surge && order.is_none() && !at_boot;
        if let Some(why) = self.in_the_way(target, old, beside) {
            self.stays(old);
            self.plan.summary.state = State::Waiting;
            return self.add_reason(&format!("revision {wanted} cannot start, the old instance stays: {why}"));
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
            let (state, lacks) = (self.plan.summary.state, std::mem::take(&mut self.plan.summary.reason));
            self.stays(old);
            if state == State::Refused {
                self.plan.summary.state = State::Refused;
            }
            if old.revision != target.revision {
                self.note_missing(target);
            }
            return self.add_reason(&format!("revision {wanted} cannot start, the old instance stays: {lacks}"));
        };
        if at_boot {
            // Nothing of either runs before the kubelet does.
            self.plan.replacing = None;
            self.begin_at_boot(target, &prepared);
            let cause = format!("it is replaced by revision {wanted} at this boot");
            self.end_as(&old.uid, &cause, true, EndConfirmation::NeverStarted);
        } else if beside {
            self.refresh(old);
            self.begin(target, &prepared, "a new revision, beside the old one");
        } else {
            let cause = match &order {
                Some(order) => order.clone(),
                None if old.revision == target.revision => "its data changed".to_owned(),
                None => format!("it is replaced by revision {wanted}"),
            };
            let confirmed_by = match self.facts.end_observable(old) {
                EndObservable::By(confirmed_by) => confirmed_by,
                EndObservable::AskRuntime => {
                    self.stays(old);
                    return self.ask_runtime(self.context.now);
                }
                EndObservable::No(why) => return self.cannot_observe_end(old, &cause, &why),
            };
            let returns_as_it_is = order.is_some() || old.revision == target.revision;
            match returns_as_it_is {
                true => self.end_for_restart(old, &cause, confirmed_by),
                false => {
                    self.note_replacement(target);
                    self.end_as(&old.uid, &cause, true, confirmed_by);
                }
            }
            self.ends_for(&old.uid, &prepared.rendering);
            self.show_as(old, State::Replacing, "the old instance ends first");
        }
    }

    /// The end of the old instance could not be observed, and two never run at once: it stays until it can be.
    fn cannot_observe_end(&mut self, old: &Instance, cause: &str, why: &str) {
        self.stays(old);
        self.wake(self.context.now + LOOK_AGAIN);
        self.plan.summary.state = State::Waiting;
        self.plan.summary.hints.push("set runtime-endpoint or kubelet-endpoint; a reboot replaces it, too".to_owned());
        self.add_reason(&format!("its replacement waits ({cause}): {why}"));
    }

    /// The old instance stays, and its claim is returned: the coordinator never withdraws a claim, so the slot would
    /// be lost for ever.
    fn stays(&mut self, old: &Instance) {
        self.plan.replacing = None;
        self.refresh(old);
        self.show(old);
    }
}
