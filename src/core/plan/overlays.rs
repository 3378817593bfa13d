//! What overlays mean for a plan. They are part of an instance's revision.

use std::sync::Arc;

use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::overlays;
use crate::core::overlays::KnownList;

use super::Note;
use super::Planner;
use super::progress::Target;

impl Planner<'_> {
    /// Notes which overlays apply here. Their list is looked at whatever the rendering waits for: what is looked at no
    /// more is not known, and another revision.
    pub(super) fn note_overlays(&mut self, daemon_set: &DaemonSet) {
        self.plan.references.extend(overlays::config_map(daemon_set));
        self.plan.overlays_digest = match &daemon_set.overlays {
            None => Some(String::new()),
            Some(overlays) => overlays.reported().map(str::to_owned),
        };
        if let Some(overlays) = &daemon_set.overlays {
            self.plan.overlays = Some(Arc::clone(overlays));
            self.plan.summary.notes.push(Note::Overlays(Arc::clone(overlays)));
        }
    }

    /// Whether no instance of `daemon_set` may start because its mode has no overlays; the summary says so.
    pub(super) fn has_overlays_in_bootstrap(&mut self, daemon_set: &DaemonSet) -> bool {
        let is_refused = daemon_set.overlays.is_some() && self.plan.summary.mode == Some(Mode::Bootstrap);
        if is_refused {
            self.refuse(&[overlays::bootstrap()]);
        }
        is_refused
    }
}

/// Whether the list of overlays is not known: no approval helps.
pub(super) fn are_missing(daemon_set: &DaemonSet) -> bool {
    daemon_set.overlays.as_ref().is_some_and(|overlays| matches!(overlays.known, KnownList::Missing { .. }))
}

/// Whether `revision` may be that of the target: it has the same template, and which overlays apply is not known now.
pub(super) fn is_in_doubt(revision: &str, target: &Target) -> bool {
    let known = target.daemon_set.overlays.as_ref().map(|overlays| &overlays.known);
    is_same_template(revision, &target.revision)
        && matches!(known, Some(KnownList::Last(_) | KnownList::Missing { .. }))
}

/// Whether both have the same template, whatever overlays apply.
pub(super) fn is_same_template(one: &str, other: &str) -> bool {
    template_hash(one) == template_hash(other)
}
