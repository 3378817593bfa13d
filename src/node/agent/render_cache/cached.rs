//! A rendering in the cache, and what it was made from.
//!
//! Owns its form. Must not say when it counts: the cache does.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;
use crate::core::plan::Data;
use crate::core::rendering::RenderResult;

/// What a rendering was made from.
pub(super) struct Made {
    /// The epoch in which all objects were last found unchanged, if all of them follow it.
    pub(super) epoch: u64,
    pub(super) options: u64,
    pub(super) objects: Vec<(ObjectRef, u64)>,
    pub(super) tokens: Vec<(TokenRequest, u64)>,
}

/// A rendering, for as long as passes use it.
pub(super) struct CachedRendering {
    /// Held so that the address it is found by stays its own.
    pub(super) daemon_set: Arc<DaemonSet>,
    pub(super) made: Made,
    pub(super) rendering: Arc<RenderResult>,
    /// How much room it takes while it is whole, in bytes; 0: it is not bounded.
    pub(super) weight: usize,
    pub(super) used: u64,
}

/// Which view of the objects was rendered with: whether the instance runs, and whose data.
pub(in crate::node::agent) type RenderView = (bool, Data);
