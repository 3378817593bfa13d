//! When nodes follow a rollout whose hold an operator has ended.
//!
//! Owns the words. Must not write anything.

use serde_json::Value;

use crate::core::annotations;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::rollout::RolloutHold;
use crate::core::escape;
use crate::core::json::Json;
use crate::core::model::COORDINATION;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;
use crate::core::model::UPDATE;
use crate::core::model::WINDOW;
use crate::core::time::Timestamp;
use crate::core::window::Window;

use super::obeyed::is_uncoordinated;

/// Bytes of an annotation that are shown.
const SHOWN: usize = 128;

/// When nodes follow, as far as the DaemonSet says at `now`.
pub(super) fn when(daemon_set: &Value, key: &ObjectKey, now: Timestamp) -> String {
    let held = held(daemon_set, key, now);
    match is_on_delete(daemon_set) {
        true => format!("nodes follow{held}"),
        false => {
            let once = "once those that have it are available and nothing else holds the rollout";
            format!("nodes follow {once}{}{held}", trigger(daemon_set))
        }
    }
}

/// What else nodes that take a revision wait for, as a clause; empty: nothing.
pub(super) fn held(daemon_set: &Value, key: &ObjectKey, now: Timestamp) -> String {
    let closed = daemon_set["metadata"]["annotations"][WINDOW].as_str();
    let is_closed = |text: &&str| Window::parse(text).is_ok_and(|window| !window.contains(now));
    let mut held = match closed.filter(is_closed) {
        _ if is_on_delete(daemon_set) => {
            "; the update strategy is OnDelete, so that is for each only when its pod is deleted".to_owned()
        }
        Some(text) if !is_uncoordinated(daemon_set) => {
            format!("; it is outside its window ({}), so that is not before it opens", escape::short(text, SHOWN))
        }
        _ => String::new(),
    };
    if is_paused(daemon_set) {
        held += &format!("; it is paused, so that is after `kubectl daemonlet resume {key}`");
    }
    held
}

/// What nodes do while it is paused.
pub(super) fn under_pause(daemon_set: &Value) -> String {
    let generation = daemon_set.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
    let status = daemon_set.get("status").unwrap_or(&Value::Null);
    let asks_first = daemon_set["metadata"]["annotations"].get(FIRST_INSTALL).is_some();
    let join = match RolloutStatus::of(status, generation).released {
        _ if is_uncoordinated(daemon_set) => format!("start with the newest revision ({COORDINATION}: none)"),
        None if asks_first => format!("wait ({FIRST_INSTALL})"),
        _ if is_on_delete(daemon_set) => "start with the newest revision (OnDelete)".to_owned(),
        None => "start with the newest revision, as none was released yet".to_owned(),
        Some(_) => "start with the released revision".to_owned(),
    };
    format!("nodes that have claimed their approval finish, nodes that join {join}")
}

/// Why nothing is rolled out, if an annotation that bounds the rollout is not understood.
pub(super) fn unbounded(daemon_set: &Value) -> Option<RolloutHold> {
    let annotations = daemon_set.at(["metadata", "annotations"]).and_then(Value::as_object);
    let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
    annotations::unbounded(&annotations.into_iter().flatten().filter_map(text).collect())
}

/// What each node waits for, if it waits for a trigger.
pub(super) fn trigger(daemon_set: &Value) -> String {
    let update = daemon_set["metadata"]["annotations"][UPDATE].as_str();
    update.map_or_else(String::new, |update| format!(", each when its trigger comes ({UPDATE}: {update})"))
}

pub(super) fn is_paused(daemon_set: &Value) -> bool {
    daemon_set["metadata"]["annotations"][PAUSED].as_str().is_some_and(|value| value != "false")
}

pub(super) fn is_on_delete(daemon_set: &Value) -> bool {
    daemon_set.str_at(["spec", "updateStrategy", "type"]) == "OnDelete"
}
