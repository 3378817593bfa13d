//! Daemons held at their definitions: a newer one is refused, or this node's configuration no longer selects it.
//!
//! Owns what still happens to them: the data stays fresh, placement ends them, and an instance that is lost or ordered away
//! returns at its own revision. Must not take a newer template.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::sources::DesiredReason;
use crate::core::sources::Hold;

use super::Action;
use super::Hint;
use super::Planner;
use super::Reason;
use super::Reasons;
use super::State;

impl Planner<'_> {
    /// `ask`: the API server is asked whether the DaemonSet is still there.
    pub(super) fn held(&mut self, daemon_set: &Arc<DaemonSet>, mode: Mode, why: &Hold, ask: bool) {
        self.plan.summary.source = Some(daemon_set.source.clone());
        self.plan.summary.mode = Some(mode);
        if ask {
            self.plan.actions.push(Action::Confirm { reason: Reason::MayBeHidden });
        }
        if self.take_definition(daemon_set, true) || mode == Mode::Bootstrap && self.is_handed_over(daemon_set) {
            return;
        }
        self.may_return = self.plan.record.definition().is_some();
        self.order_retries();
        let live: Vec<_> = self.plan.record.live().cloned().collect();
        match live.as_slice() {
            [one] if !self.is_ordered(one) => {
                self.refresh(one);
                self.show(one);
            }
            _ => {
                let misplaced = self.misplaced(daemon_set);
                self.run(daemon_set, misplaced.as_ref());
            }
        }
        if !matches!(self.plan.summary.state, State::Failing | State::Refused) {
            // Its readiness changes; the reason that holds it does not, and is news once.
            self.plan.summary.reasons = Reasons::default();
        }
        match why {
            Hold::Refused(refusal) => {
                self.add_field_hints(refusal.errors());
                self.hold_refused(why, Hint::CorrectDaemonSet);
            }
            Hold::Overlays(errors) => {
                self.add_field_hints(errors.iter().take(1));
                self.hold_refused(why, Hint::CorrectOverlays);
            }
            Hold::Narrowed(reason) if self.plan.record.runs() => {
                self.plan.summary.state = State::Held;
                self.add_reasons([Reason::NoLongerSelected(reason.clone()), Reason::StaysAsItIs]);
                self.hint_release();
            }
            Hold::Forbidden(errors) if self.plan.record.runs() => {
                self.plan.summary.state = State::Held;
                self.add_field_hints(errors);
                self.add_reasons([Reason::NoLongerAllowed(errors.clone()), Reason::StaysAsItIs]);
                self.hint_release();
            }
            Hold::Undefined(reason) | Hold::Narrowed(reason) => {
                self.add_reason(Reason::Desired(reason.clone()));
                self.hint_release();
            }
            Hold::Forbidden(_) => {}
        }
    }

    /// A DaemonSet of the API whose definition is not read. The instance stays as it is.
    pub(super) fn refused(&mut self, mode: Mode, errors: &[FieldError]) {
        self.keep(State::Refused, []);
        self.plan.summary.source = Some(Source::Api);
        self.plan.summary.mode = Some(mode);
        self.plan.summary.reasons = Reasons::default();
        self.refuse(errors);
        if self.plan.record.runs() {
            self.add_reason(Reason::RunsOn);
        }
    }

    fn hold_refused(&mut self, why: &Hold, hint: Hint) {
        self.plan.summary.state = State::Refused;
        self.plan.summary.hints.push(hint);
        let stays = self.plan.record.runs().then_some(Reason::RunsOn);
        let why = Reason::Desired(DesiredReason::Hold(Box::new(why.clone())));
        self.add_reasons([why].into_iter().chain(stays));
    }

    /// Hints how a daemon that the configuration no longer selects is released, or one that is to return and that nothing says
    /// how to make.
    pub(super) fn hint_release(&mut self) {
        let record = &self.plan.record;
        let is_stuck = record.has_ended_to_return() && record.definition().is_none();
        if record.runs() || is_stuck {
            self.plan.summary.let_go(&self.plan.record.key);
        }
    }
}
