//! Whether policy allows a new instance. It never ends a running one.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::policy::Admission;

use super::Planner;

impl Planner<'_> {
    /// Whether a new instance may start; else the summary says which rule forbids it.
    pub(super) fn admitted(&mut self, daemon_set: &Arc<DaemonSet>) -> bool {
        match self.facts.admission(daemon_set) {
            Admission::Allowed(notes) => {
                self.note_all(&notes);
                true
            }
            // A held instance was started under another policy, and returns as it was.
            Admission::Refused(_) if self.may_return => true,
            Admission::Refused(errors) => {
                self.plan.summary.revision = self.facts.revision(daemon_set);
                self.refuse(&errors);
                false
            }
            Admission::Waits(missing) => {
                self.plan.summary.revision = self.facts.revision(daemon_set);
                self.wait_for(&[missing]);
                false
            }
        }
    }

    /// Whether policy refuses a new instance.
    pub(super) fn is_refused(&self, daemon_set: &Arc<DaemonSet>) -> bool {
        !self.may_return && matches!(self.facts.admission(daemon_set), Admission::Refused(_))
    }

    /// Notes for a running instance that it could not start again as it is.
    pub(super) fn note_admission(&mut self, daemon_set: &Arc<DaemonSet>) {
        match self.facts.admission(daemon_set) {
            Admission::Allowed(notes) => self.note_all(&notes),
            Admission::Refused(errors) => {
                let refusal = |e: &FieldError| FieldError {
                    field: "it stays, and a new instance would be refused".to_owned(),
                    reason: e.to_string(),
                    hint: e.hint.clone(),
                };
                let notes: Vec<FieldError> = errors.iter().map(refusal).collect();
                self.note_all(&notes);
            }
            Admission::Waits(_) => {}
        }
    }
}
