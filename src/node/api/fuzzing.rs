//! For fuzz targets: objects as they arrive, and what the store keeps of them.
//!
//! Exists for the fuzzer (`cfg(fuzzing)`) and in debug builds, whose tests replay the seeds. Must do only what the
//! store does.

use serde_json::Value;

use super::object;
use super::object::RawObject;

/// A kind of object, by how it is kept.
#[derive(Clone, Copy, Debug)]
pub enum StoredKind {
    DaemonSet,
    Node,
    Pod,
    /// An object that a daemon refers to.
    Object,
}

/// What the store keeps of `json`; `None`: not an object, or ignored.
pub fn kept(json: &[u8], kind: StoredKind) -> Option<Value> {
    let raw: RawObject = serde_json::from_slice(json).ok()?;
    let kept = match kind {
        StoredKind::DaemonSet => object::keep_daemon_set(raw.value),
        StoredKind::Node => object::keep_node(raw.value),
        StoredKind::Pod => object::keep_pod(raw.value),
        StoredKind::Object => object::keep_all(raw.value),
    };
    kept.map(object::compact)
}
