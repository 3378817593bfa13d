//! The gates of pods that start after others, as a decision moves them.
//!
//! Owns which of them close and open in a pass. Must not move one: `super::executor` does.

use std::collections::BTreeSet;

use crate::core::pass::Plan;
use crate::core::plan::Action;

use super::observation::Observation;

/// The gates that a decision moves, by the pods' UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gates {
    close: BTreeSet<String>,
    open: BTreeSet<String>,
}

impl Gates {
    /// The changes in `plan`. In the first pass of a process every other gate of ours opens: an earlier one may have left it
    /// closed, and nothing else may be known of its pod.
    pub(super) fn of(plan: &Plan, observation: &Observation, is_first: bool) -> Self {
        let mut gates = Self::default();
        for action in plan.daemons.iter().flat_map(|daemon| &daemon.actions) {
            match action {
                Action::CloseGate { uid, .. } => drop(gates.close.insert(uid.clone())),
                Action::OpenGate { uid, .. } => drop(gates.open.insert(uid.clone())),
                _ => {}
            }
        }
        if is_first {
            let ours = observation.manifests.current().into_iter().flat_map(|scan| scan.ours.values());
            let gated = ours.filter(|manifest| manifest.has_gate && !manifest.uid.is_empty());
            gates.open.extend(gated.map(|manifest| manifest.uid.clone()));
            gates.open.retain(|uid| !gates.close.contains(uid));
        }
        gates
    }

    /// Those that close.
    pub(super) fn closing(&self) -> impl Iterator<Item = &String> {
        self.close.iter()
    }

    /// Those that open.
    pub(super) fn opening(&self) -> impl Iterator<Item = &String> {
        self.open.iter()
    }

    /// Whether the gate of this pod closes.
    pub(super) fn closes(&self, uid: &str) -> bool {
        self.close.contains(uid)
    }
}
