//! What nodes have claimed.
//!
//! Owns when a claim takes away what a node runs. Must neither give nor withdraw approvals.

use super::NodeFact;
use crate::core::cluster::names::Name;

impl NodeFact<'_> {
    /// Whether what runs there ends, if nothing starts beside it: its agent has claimed a replacement, and reports nothing of
    /// that yet. Agents claim a moment before they end the old instance, and report that end seconds later.
    pub fn is_taken_away(&self) -> bool {
        self.claim.is_some_and(|claim| self.live().all(|instance| instance.pair() != claim))
    }

    /// Whether it has claimed another revision than `wanted`, for now or for its next boot: what runs there ends, whatever it is.
    pub fn claims_other(&self, wanted: Name) -> bool {
        self.replaces_by_other(wanted).or(self.staged).is_some_and(|revision| revision != wanted)
    }

    /// The revision that it replaces what it runs by, if it is another one than `wanted`.
    pub fn replaces_by_other(&self, wanted: Name) -> Option<Name> {
        self.claim.map(|(revision, _)| revision).filter(|revision| *revision != wanted)
    }

    /// Whether what runs there was made with other overlays than its agent wants.
    pub fn has_other_overlays(&self) -> bool {
        self.newest().is_some_and(|newest| newest.overlays != self.overlays)
    }
}
