//! A daemon whose definition is set aside: it is not rendered.
//!
//! Owns what still happens to its instance: it ends where its placement ends it, and its tokens are renewed. Must not render
//! anything else.

use crate::core::model::Mode;
use crate::core::model::Source;

use super::Planner;
use super::State;

impl Planner<'_> {
    /// Keeps the instance as it is on disk, with its tokens renewed. `reason`: why its definition is not looked at.
    pub(super) fn set_aside(&mut self, mode: Mode, reason: &str) {
        self.plan.summary.source = Some(Source::Api);
        self.plan.summary.mode = Some(mode);
        let definition = self.plan.record.definition().cloned();
        if let Some(definition) = &definition
            && let placement = self.placed(definition)
            && !placement.should_continue_running
            && self.context.node.registered
            && self.awaits_labels_until(definition).is_none()
        {
            return self.unplaced(&placement.reason);
        }
        self.is_set_aside = true;
        let live: Vec<_> = self.plan.record.live().cloned().collect();
        for instance in &live {
            self.refresh(instance);
            self.show(instance);
        }
        // Its readiness changes; the reason that holds it back does not, and is news once.
        self.plan.summary.reason.clear();
        self.plan.summary.state = State::Refused;
        self.plan.summary.refused_field = Some("spec.template".to_owned());
        let stays = if live.is_empty() { "" } else { "; what runs stays as it is, and gets no new data but tokens" };
        self.add_reason(&format!("{reason}{stays}"));
        let key = &self.plan.record.key;
        self.plan
            .summary
            .hints
            .push(format!("change its template, or try this one again: `daemonlet retry {key}` on the node"));
    }
}
