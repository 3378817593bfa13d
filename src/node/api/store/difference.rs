//! Whether an object is another than the one that is kept.
//!
//! Must not count a write of what the store leaves out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::snapshot::Entry;

pub(super) fn put_one(place: &mut Option<Entry>, entry: Entry) -> bool {
    let changed = place.as_ref().is_none_or(|old| differs(&old.value, &entry.value));
    if changed {
        *place = Some(entry);
    }
    changed
}

pub(super) fn put<K: Ord>(map: &mut BTreeMap<K, Entry>, key: K, entry: Entry) -> bool {
    let changed = map.get(&key).is_none_or(|old| differs(&old.value, &entry.value));
    if changed {
        map.insert(key, entry);
    }
    changed
}

/// Whether two states of an object differ in more than their resource version, which also changes when parts are
/// written that the store leaves out (a status, a heartbeat).
pub(super) fn differs(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old != new };
    old.len() != new.len()
        || old.iter().any(|(key, old)| match (key.as_str(), new.get(key)) {
            (_, None) => true,
            ("metadata", Some(new)) => metadata_differs(old, new),
            (_, Some(new)) => old != new,
        })
}

fn metadata_differs(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old != new };
    old.len() != new.len() || old.iter().any(|(key, old)| key != "resourceVersion" && new.get(key) != Some(old))
}
