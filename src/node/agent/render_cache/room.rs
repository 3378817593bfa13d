//! Room for what is rendered for DaemonSets of namespaces that are not trusted, as long as it can be written.
//!
//! Owns how much of it is whole at one time. What has no room keeps all that is compared, and is rendered
//! again in a later pass if it is to be written.

use std::collections::BTreeSet;

use crate::core::bounds;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::render::RenderOptions;

use super::cached::CachedRendering;

#[derive(Default)]
pub(super) struct RenderRoom {
    /// So much may be whole.
    pub(super) most: usize,
    /// What is whole, in bytes.
    pub(super) taken: usize,
    /// Those whose turn it is: they have their room.
    pub(super) turn: BTreeSet<ObjectKey>,
}

impl RenderRoom {
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
