//! Room for what is rendered for DaemonSets of namespaces that are not trusted, as long as it can be written.
//!
//! Owns which of it is whole at one time, and whose turn it is. What has no room keeps all that is compared, and is rendered
//! again in a later pass if it is to be written.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::bounds;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::render::RenderOptions;

use super::CachedRendering;
use super::RenderCache;

#[derive(Default)]
pub(super) struct RenderRoom {
    /// So much may be whole.
    most: usize,
    /// What is whole, in bytes.
    taken: usize,
    /// Those whose turn it is: they have their room.
    turn: BTreeSet<ObjectKey>,
    /// The last one that had its turn: those behind it come first.
    last: Option<ObjectKey>,
}

impl RenderRoom {
    /// Whether what is rendered for `daemon_set` is bounded.
    pub(super) fn bounds(daemon_set: &DaemonSet, options: &RenderOptions) -> bool {
        bounds::of(&daemon_set.key.namespace, daemon_set.author(), &options.rules) == &bounds::TENANT
    }

    /// Takes the room for a rendering of `weight` of the daemon `key`, if there is room.
    pub(super) fn take(&mut self, key: &ObjectKey, weight: usize) -> bool {
        let is_free = self.taken == 0 || self.taken + weight <= self.most;
        let has_room = weight == 0 || is_free || self.turn.contains(key);
        self.taken += if has_room { weight } else { 0 };
        has_room
    }

    /// There is room for `most`, and only what of `renderings` is whole takes any.
    pub(super) fn count<'a>(&mut self, most: usize, renderings: impl Iterator<Item = &'a CachedRendering>) {
        self.most = most;
        self.taken = renderings.filter(|entry| entry.rendering.is_whole()).map(|entry| entry.weight).sum();
    }

    /// Nothing is whole.
    pub(super) fn clear(&mut self) {
        (self.taken, self.turn) = (0, BTreeSet::new());
    }
}

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
}
