//! What of a DaemonSet's status is to be written.
//!
//! Owns the comparison with the live status: what is the same is never written, and what is not ours stays.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::conditions;
use crate::core::cluster::counters::Counters;
use crate::core::cluster::released::FirstInstances;
use crate::core::cluster::released::HALTED;
use crate::core::cluster::released::RELEASED;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::json::Json;
use crate::core::time::Timestamp;

/// The status that is to be written, if the live one differs. Without counters only conditions are ours.
pub(super) fn patch(
    daemon: &WatchedDaemon,
    counters: Option<&Counters>,
    facts: &conditions::ConditionFacts<'_>,
    now: Timestamp,
) -> Option<Value> {
    let live = &daemon.status;
    let no_conditions = Vec::new();
    let before = live.get("conditions").and_then(Value::as_array).unwrap_or(&no_conditions);
    let conditions = conditions::merge(before, facts, &now.to_string());
    let mut status = json!({});
    if *before != conditions {
        status["conditions"] = json!(conditions);
    }
    if let Some(counters) = counters {
        let generation = ("observedGeneration".to_owned(), json!(daemon.generation));
        count(&mut status, live, counters, Some(&generation));
    }
    status.as_object().is_some_and(|s| !s.is_empty()).then_some(status)
}

/// Puts in what the live status does not say yet.
fn count(status: &mut Value, live: &Value, counters: &Counters, generation: Option<&(String, Value)>) {
    let wanted = serde_json::to_value(counters).unwrap_or_default();
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
    let differ = |(name, value): &(&String, &Value)| number(live.get(name.as_str())) != number(Some(value));
    let generation = generation.map(|(name, value)| (name, value));
    for (name, value) in wanted.as_object().into_iter().flatten().chain(generation).filter(differ) {
        status[name.as_str()] = value.clone();
    }
}

/// The condition that nothing is decided, if the live status does not say so, and counters by the last definition that was
/// not refused. The observed generation is that one's, too.
pub(super) fn undecided(
    daemon: &WatchedDaemon,
    why: conditions::Undecided<'_>,
    counters: Option<&Counters>,
    now: Timestamp,
) -> Option<Value> {
    let before = daemon.status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = conditions::merge_undecided(&before, why, counters, &now.to_string());
    let mut status = json!({});
    if before != conditions {
        status["conditions"] = json!(conditions);
    }
    counters.into_iter().for_each(|counters| count(&mut status, &daemon.status, counters, None));
    status.as_object().is_some_and(|s| !s.is_empty()).then_some(status)
}

/// The status of a DaemonSet that is let go without our conditions, if it has any: they would no longer be true.
pub(super) fn let_go(daemon: &WatchedDaemon) -> Option<Value> {
    let before = daemon.status.get("conditions")?.as_array()?;
    let kept = conditions::without_ours(before);
    (kept.len() < before.len()).then(|| json!({"conditions": kept}))
}

/// Whether these counters say what the live status does not yet: every node has the current revision, and
/// has it available.
pub(super) fn ends(live: &Value, counters: &Counters) -> bool {
    let before: Counters = serde_json::from_value(live.clone()).unwrap_or_default();
    is_done(counters) && !(is_done(&before) && before.desired_number_scheduled > 0)
}

/// Whether a status with this `patch` says, and the `live` one does not, that the rollout is halted, or that nodes which join
/// are kept on the released revision.
pub(super) fn stops(live: &Value, patch: &Value) -> bool {
    let is_halted = |c: &Value| c.str_at("type") == HALTED && c.str_at("status") == "True";
    let is_held = |c: &Value| c.str_at("type") == RELEASED && FirstInstances::of(c) == FirstInstances::Held;
    let says = |status: &Value, is_so: &dyn Fn(&Value) -> bool| status.list_at("conditions").iter().any(is_so);
    let is_news = |is_so: &dyn Fn(&Value) -> bool| says(patch, is_so) && !says(live, is_so);
    is_news(&is_halted) || is_news(&is_held)
}

fn is_done(counters: &Counters) -> bool {
    counters.updated_number_scheduled == counters.desired_number_scheduled && counters.number_unavailable == 0
}
