//! Definitions of the sources with the overlays that apply to the node in them.
//!
//! Owns the exchange of one for the other. Must not decide which applies.

use std::sync::Arc;

use crate::core::model::DaemonSet;

use super::ApiState;
use super::FolderState;

impl<'a> FolderState<'a> {
    /// The definition in force, if there is one.
    pub fn daemon_set(&self) -> Option<&'a Arc<DaemonSet>> {
        match self {
            Self::Present { daemon_set, .. } => Some(daemon_set),
            Self::Absent | Self::Unsure { .. } => None,
        }
    }

    /// The same with `daemon_set` in place of its definition.
    pub fn with<'b>(self, daemon_set: Option<&'b Arc<DaemonSet>>) -> FolderState<'b>
    where
        'a: 'b,
    {
        match (self, daemon_set) {
            (Self::Present { fingerprint, .. }, Some(daemon_set)) => FolderState::Present { daemon_set, fingerprint },
            (other, _) => other,
        }
    }
}

impl<'a> ApiState<'a> {
    /// The definition, if there is one.
    pub fn daemon_set(&self) -> Option<&'a Arc<DaemonSet>> {
        match self {
            Self::Present(daemon_set) => Some(daemon_set),
            _ => None,
        }
    }

    /// The same with `daemon_set` in place of its definition.
    pub fn with<'b>(self, daemon_set: Option<&'b Arc<DaemonSet>>) -> ApiState<'b>
    where
        'a: 'b,
    {
        match (self, daemon_set) {
            (Self::Present(_), Some(daemon_set)) => ApiState::Present(daemon_set),
            (other, _) => other,
        }
    }
}
