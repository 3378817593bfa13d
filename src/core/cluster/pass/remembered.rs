//! The released revision, as its ControllerRevision remembers it where the status of the DaemonSet has lost it: another
//! client replaced the conditions, the DaemonSet was let go and is taken back, or it was deleted without its
//! ControllerRevisions and created again.
//!
//! Owns the mark, and what is decided by it. Must not decide which revision is released.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::history::RevisionWrite;
use crate::core::cluster::released;
use crate::core::cluster::released::FirstInstances;
use crate::core::cluster::released::Released;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::json::Json;

use super::revisions;

/// The DaemonSet with the condition `Released` as it is to be written again, where its status has none and a
/// ControllerRevision says which one it was. Its status `Unknown` sets it apart from a written one.
pub(super) fn restored(view: &ClusterSnapshot, daemon: &WatchedDaemon) -> Option<WatchedDaemon> {
    if RolloutStatus::of(&daemon.status, daemon.generation).released.is_some() {
        return None;
    }
    let own = revisions::of(view, daemon).filter_map(|known| Some((known.released?, known)));
    let of_former = revisions::adopted(view, daemon).filter_map(|known| Some((known.released_before?, known)));
    let last = own.max_by_key(|(generation, _)| *generation);
    let (_, last) = last.or_else(|| of_former.max_by_key(|(generation, _)| *generation))?;
    // Everything else in the status is about the template that it was written for.
    let generation = daemon.status.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
    let known = Released { name: last.name.clone(), hash: last.hash.clone(), generation };
    let (_, reason, message) = released::condition(&known, FirstInstances::Held);
    let mut conditions = daemon.status.list_at("conditions").to_vec();
    conditions.retain(|condition| condition.str_at("type") != released::RELEASED);
    conditions.push(json!({"type": released::RELEASED, "status": "Unknown", "reason": reason, "message": message}));
    let mut restored = daemon.clone();
    match restored.status.as_object_mut() {
        Some(status) => drop(status.insert("conditions".to_owned(), json!(conditions))),
        None => restored.status = json!({ "conditions": conditions }),
    }
    restored.released = view.names.find(&last.hash);
    Some(restored)
}

/// The mark of the released revision, if that is to be written: it is the latest of all.
pub(super) fn mark(view: &ClusterSnapshot, daemon: &WatchedDaemon, released: &Released) -> Option<RevisionWrite> {
    let of = revisions::of(view, daemon).find(|known| known.name == released.name && known.hash == released.hash)?;
    let latest =
        revisions::of(view, daemon).filter(|known| known.name != of.name).filter_map(|known| known.released).max();
    if of.released.is_some() && of.released > latest {
        return None;
    }
    let generation = latest.map_or(daemon.generation, |latest| daemon.generation.max(latest + 1));
    Some(RevisionWrite::Released { name: of.name.clone(), generation })
}
