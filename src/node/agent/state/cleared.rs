//! When the folders of ended pods are cleared.
//!
//! Owns how long the kubelet is given to do it itself. Must not clear them.

use std::collections::BTreeSet;

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::AgentState;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::ClearResult;
use crate::node::agent::outcome::EffectOutcome;

/// How long after its end the folder of a pod is cleared, and again if something is mounted there.
const CLEAR_AFTER: Span = Span::from_secs(10);
/// How long after it could not be cleared it is tried again.
const CLEAR_AGAIN: Span = Span::from_secs(60);

impl AgentState {
    /// When the next folder of an ended pod is to be cleared: the kubelet is given time to do it itself.
    pub(in super::super) fn clear_at(&self, observation: &Observation) -> Option<Timestamp> {
        self.clearable(observation).map(|(_, at)| at).min()
    }

    /// The folders that are to be cleared now.
    pub(in super::super) fn to_clear(&self, observation: &Observation) -> BTreeSet<String> {
        let due = self.clearable(observation).filter(|(_, at)| *at <= observation.now);
        due.map(|(uid, _)| uid.clone()).collect()
    }

    /// The ended pods, and when their folders are to be cleared: not of one that a manifest has, or may have.
    fn clearable<'a>(&'a self, observation: &'a Observation) -> impl Iterator<Item = (&'a String, Timestamp)> {
        let scan = observation.manifests.current();
        let ended = self.records.values().flat_map(|r| &r.ended);
        let ended = ended.filter(move |(uid, _)| scan.is_some_and(|scan| !scan.has(uid)));
        ended.map(|(uid, since)| (uid, self.clear_again.get(uid).copied().unwrap_or(*since + CLEAR_AFTER)))
    }

    /// Takes note of what became of the folders.
    pub(super) fn note_cleared(&mut self, outcome: &EffectOutcome, now: Timestamp) {
        for (uid, result) in &outcome.cleared {
            match result {
                ClearResult::Gone => {
                    self.clear_again.remove(uid);
                    for (key, record) in &mut self.records {
                        if record.ended.remove(uid).is_some() {
                            self.unsaved.insert(key.clone());
                        }
                    }
                }
                ClearResult::Mounted => drop(self.clear_again.insert(uid.clone(), now + CLEAR_AFTER)),
                ClearResult::Failed => drop(self.clear_again.insert(uid.clone(), now + CLEAR_AGAIN)),
            }
        }
    }
}
