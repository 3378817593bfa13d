//! What the node's owner allows: modes and namespaces (`default-mode`, `[policy]`).
//!
//! `core::sources` and the agent use `Policy::covers`; keep that interface.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;

/// Whether a DaemonSet of the API is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covered {
    /// It is, in this mode.
    Yes(Mode),
    /// It is not; why, for people.
    No(String),
}

/// What the node's owner says about DaemonSets that the API has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {}

impl Policy {
    /// Whether `daemon_set`, as the API has it, runs here; `folder` is the folder's definition of the
    /// same namespace/name, whose mode it inherits.
    pub fn covers(&self, daemon_set: &DaemonSet, folder: Option<&Arc<DaemonSet>>) -> Covered {
        match (daemon_set.mode_label(), folder) {
            (Some(mode), _) => Covered::Yes(mode),
            (None, Some(folder)) => Covered::Yes(folder.mode_label().unwrap_or(Mode::Static)),
            (None, None) => Covered::No("it has no label `daemonlet.dev/mode`".to_owned()),
        }
    }
}
