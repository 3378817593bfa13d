//! When the folders of ended pods are cleared.
//!
//! Owns how long the kubelet is given to do it itself. Must not clear them.

use std::collections::BTreeSet;

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::AgentState;
use crate::node::agent::outcome::ClearResult;
use crate::node::agent::outcome::EffectOutcome;

/// How long after its end the folder of a pod is cleared, and again if something is mounted there.
const CLEAR_AFTER: Span = Span::from_secs(10);
/// How long after it could not be cleared it is tried again.
const CLEAR_AGAIN: Span = Span::from_secs(60);

impl AgentState {
    /// When the next folder of an ended pod is to be cleared: the kubelet is given time to do it itself.
    pub(in super::super) fn clear_at(&self) -> Option<Timestamp> {
        let ended = self.records.values().flat_map(|r| &r.ended);
        ended.map(|(uid, since)| self.clear_again.get(uid).copied().unwrap_or(*since + CLEAR_AFTER)).min()
    }

    /// The folders that are to be cleared at `now`.
    pub(in super::super) fn to_clear(&self, now: Timestamp) -> BTreeSet<String> {
        let is_due =
            |uid: &str, since: Timestamp| self.clear_again.get(uid).copied().unwrap_or(since + CLEAR_AFTER) <= now;
        let ended = self.records.values().flat_map(|r| &r.ended);
        ended.filter(|(uid, since)| is_due(uid, **since)).map(|(uid, _)| uid.clone()).collect()
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
