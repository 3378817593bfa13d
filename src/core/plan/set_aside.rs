//! A daemon whose definition is set aside: it is not rendered.
//!
//! Owns what still happens to its instance: it ends where its placement ends it, and its tokens are renewed. Must not render
//! anything else.

use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::placement::Placement;
use crate::core::set_aside::HeldBack;

use super::Hint;
use super::Planner;
use super::Reason;
use super::Reasons;
use super::State;

impl Planner<'_> {
    /// Keeps the instance as it is on disk, with its tokens renewed. `reason`: why its definition is not looked at.
    pub(super) fn set_aside(&mut self, mode: Mode, reason: &HeldBack) {
        self.plan.summary.source = Some(Source::Api);
        self.plan.summary.mode = Some(mode);
        let definition = self.plan.record.definition().cloned();
        if let Some(definition) = &definition
            && let Placement { misfit: Some(misfit), should_continue_running: false, .. } = self.placed(definition)
            && self.context.node.registered
            && self.awaits_labels_until(definition).is_none()
        {
            return self.unplaced(Reason::Misplaced(misfit));
        }
        self.is_set_aside = true;
        let live: Vec<_> = self.plan.record.live().cloned().collect();
        for instance in &live {
            self.refresh(instance);
            self.show(instance);
        }
        // Its readiness changes; the reason that holds it back does not, and is news once.
        self.plan.summary.reasons = Reasons::default();
        self.plan.summary.state = State::Refused;
        self.plan.summary.refused_field = Some("spec.template".to_owned());
        let stays = (!live.is_empty()).then_some(Reason::RunsOnWithTokens);
        self.add_reasons([Reason::SetAside(reason.clone())].into_iter().chain(stays));
        self.plan.summary.hints.push(Hint::Retry(self.plan.record.key.clone()));
    }
}
