//! Render options with a version.
//!
//! Owns that equal versions are equal options. Must not know what they say.

use crate::core::render::RenderOptions;

/// Render options with a version that grows whenever they change.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct VersionedOptions {
    options: RenderOptions,
    version: u64,
}

impl VersionedOptions {
    /// Starts with `options`.
    pub(in crate::node::agent) fn new(options: RenderOptions) -> Self {
        Self { options, version: 1 }
    }

    /// Changes them.
    pub(in crate::node::agent) fn set(&mut self, change: impl FnOnce(&mut RenderOptions)) {
        let before = self.options.clone();
        change(&mut self.options);
        self.version += u64::from(before != self.options);
    }

    /// The options and their version.
    pub(in crate::node::agent) fn get(&self) -> (&RenderOptions, u64) {
        (&self.options, self.version)
    }
}
