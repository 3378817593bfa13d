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

/// Whose renderings are written in a pass.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::node::agent) struct WriteTurn {
    /// The daemons that have their turn.
    pub(in crate::node::agent) chosen: BTreeSet<ObjectKey>,
    /// The last of those that are bounded, if others wait.
    pub(in crate::node::agent) last: Option<ObjectKey>,
}

impl RenderCache {
    /// Which of the daemons `written` are written in this pass: of those that are bounded as many as have room, one at
    /// least, and those behind `last` first. Depends on what this pass rendered, not on what of it is whole.
    pub(in crate::node::agent) fn turn(&self, written: &BTreeSet<ObjectKey>, last: Option<&ObjectKey>) -> WriteTurn {
        let mut weights: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        let renderings = self.renderings.borrow();
        for entry in renderings.values().filter(|entry| entry.used == self.pass) {
            if let Some(key) = written.get(&entry.daemon_set.key) {
                *weights.entry(key).or_default() += entry.weight;
            }
        }
        let (bounded, free): (Vec<_>, Vec<_>) = weights.into_iter().partition(|(_, weight)| *weight > 0);
        let is_behind = |key: &ObjectKey| last.is_some_and(|last| key > last);
        let (first, then): (Vec<_>, Vec<_>) = bounded.into_iter().partition(|(key, _)| is_behind(key));
        let (most, mut taken) = (self.room.borrow().most, 0_usize);
        let mut waiting = first.into_iter().chain(then).peekable();
        let mut turn = Vec::new();
        while let Some((key, weight)) = waiting.next_if(|(_, weight)| taken == 0 || taken + weight <= most) {
            taken += weight;
            turn.push(key);
        }
        let last = waiting.peek().and(turn.last().copied().cloned());
        let chosen = free.into_iter().map(|(key, _)| key).chain(turn).cloned().collect();
        WriteTurn { chosen, last }
    }

    /// What of the daemons `chosen` is not whole is rendered anew when it is next asked for; what is bounded of others is
    /// given up.
    pub(in crate::node::agent) fn make_whole(&mut self, chosen: BTreeSet<ObjectKey>) {
        self.renderings.get_mut().retain(|_, entry| {
            let (is_chosen, is_whole) = (chosen.contains(&entry.daemon_set.key), entry.rendering.is_whole());
            if !is_chosen && is_whole && entry.weight > 0 {
                entry.rendering = Arc::new(entry.rendering.shrunk());
            }
            is_whole || !is_chosen
        });
        self.room.get_mut().turn = chosen;
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
