//! The law of daemons that run nowhere.

use std::collections::BTreeSet;

use crate::moves::Move;
use crate::moves::Piece;
use crate::moves::Place;
use crate::moves::Version;
use crate::node::Node;
use crate::node::SPACE;

use super::Laws;
use super::WITHOUT;

/// In so long an API server that serves has said all that an agent is to remember, in milliseconds.
pub(super) const SAYS_ALL: i64 = 10_000;

/// Whether a move takes away what was remembered.
pub(super) fn is_forgotten_by(what: Move) -> bool {
    match what {
        Move::Damage { piece, .. } => matches!(piece, Piece::Inputs | Piece::Seal),
        Move::Wipe { place, .. } => matches!(place, Place::State | Place::Var),
        Move::OtherVersion { version } => version == Version::NewFormat,
        _ => false,
    }
}

impl Laws {
    /// A daemon that is wanted and once ran is never long without a manifest.
    pub(super) fn not_without(&mut self, node: &Node, is_up: bool) {
        let passed = node.steady - self.checked_at;
        let here: BTreeSet<&str> = self.manifests.values().map(|manifest| manifest.daemon.as_str()).collect();
        let is_served = node.is_reachable() && node.server.lock().unwrap().refusals.is_empty();
        if is_up && is_served && node.has_folders() {
            self.unknown_for = (self.unknown_for - passed).max(0);
        }
        let has_doubts = node.may_doubt_ends() && !is_served;
        let mut late = None;
        for daemon in &node.daemons {
            let name = format!("{SPACE}/{}", daemon.name);
            // Without its overlays or its ConfigMap nothing starts.
            let is_whole = daemon.overlay.as_ref().is_none_or(crate::overlays::Overlay::is_as_meant);
            let is_whole = is_whole && daemon.has_config;
            // Of what was being replaced when the state folder was lost nothing shows that it ran here.
            let is_forgotten = node.has_older_state() && !here.contains(name.as_str());
            if daemon.wanted().is_none() || daemon.is_on_new_disk || is_forgotten {
                self.placed.remove(&name);
            }
            // An unknown mode changes nothing, and so starts nothing either.
            let may_wait = (node.not_ready.is_some() || daemon.is_mistyped()) && !self.placed.contains(&name);
            // What an API server does not serve of a new DaemonSet is not known, nor whether what no record shows has ended.
            let needs_api = daemon.in_api() && !self.placed.contains(&name) || is_forgotten;
            let may_wait = may_wait || needs_api && !is_served;
            // Without its labels the Node is none that a daemon with a selector starts on.
            let may_wait = may_wait || !node.is_labelled && node.selects(daemon);
            let is_wanted = daemon.has_run && daemon.wanted().is_some() && !may_wait;
            if !is_wanted || here.contains(name.as_str()) || !is_whole {
                self.without.remove(&name);
                continue;
            }
            let without = self.without.entry(name.clone()).or_default();
            *without += if is_up && node.is_clear() && self.unknown_for == 0 && !has_doubts { passed } else { 0 };
            if *without > WITHOUT {
                late = Some(name);
            }
        }
        if let Some(name) = late {
            self.violate(node.steady, "a daemon that is wanted and ran is never long without a manifest", name);
        }
    }
}
