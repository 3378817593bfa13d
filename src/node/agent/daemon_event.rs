//! An event on a DaemonSet, as a value: deciding sends no events.
//!
//! Owns its form. Must not depend on its readers.

use crate::core::model::ObjectKey;
use crate::core::plan::DaemonPlan;
use crate::node::api::EventKind;

/// An event on a DaemonSet, whose cause is in its reason.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct DaemonEvent {
    pub(super) daemon: ObjectKey,
    pub(super) kind: EventKind,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) note: String,
}

impl DaemonEvent {
    /// An event on the DaemonSet of `daemon`.
    pub(super) fn new(
        daemon: &DaemonPlan,
        kind: EventKind,
        reason: &'static str,
        action: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self { daemon: daemon.key.clone(), kind, reason, action, note: note.into() }
    }
}
