//! Which renderings are whole again, and which ones a pass used.
//!
//! Owns whose turn it is where not all have room. Must not render.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::ObjectKey;

use super::RenderCache;
use super::cached::CachedRendering;
use super::known_rendering::UsedRendering;

impl RenderCache {
    /// The outcomes of `daemons` are rendered anew when they are next asked for: of those that are bounded as many as have
    /// room, one at least, in turn.
    pub(in crate::node::agent) fn make_whole(&mut self, daemons: &BTreeSet<ObjectKey>) {
        let mut weights: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        for entry in self.renderings.get_mut().values() {
            if let Some(key) = daemons.get(&entry.daemon_set.key) {
                *weights.entry(key).or_default() += entry.weight;
            }
        }
        let (bounded, mut chosen): (BTreeMap<_, _>, BTreeMap<_, _>) =
            weights.into_iter().partition(|(_, weight)| *weight > 0);
        let room = self.room.get_mut();
        let is_behind = |key: &ObjectKey| room.last.as_ref().is_some_and(|last| key > last);
        let (first, then): (Vec<_>, Vec<_>) = bounded.into_iter().partition(|(key, _)| is_behind(key));
        let (mut taken, mut turn) = (room.taken, BTreeSet::new());
        for (key, weight) in first.into_iter().chain(then) {
            if !turn.is_empty() && taken + weight > room.most {
                break;
            }
            taken += weight;
            turn.insert(key.clone());
            room.last = Some(key.clone());
            chosen.insert(key, weight);
        }
        room.turn = turn;
        self.renderings.get_mut().retain(|_, entry| !chosen.contains_key(&entry.daemon_set.key));
    }

    /// The renderings of this pass, for a recording.
    pub(in crate::node::agent) fn used(&self) -> Vec<UsedRendering> {
        let renderings = self.renderings.borrow();
        let used = renderings.iter().filter(|(_, entry)| entry.used == self.pass);
        let mut used: Vec<UsedRendering> = used
            .map(|((_, incarnation, view), CachedRendering { daemon_set, rendering, .. })| UsedRendering {
                daemon_set: Arc::clone(daemon_set),
                incarnation: *incarnation,
                view: *view,
                rendering: Arc::clone(rendering),
            })
            .collect();
        used.sort_by(|a, b| a.name().cmp(&b.name()));
        used
    }
}
