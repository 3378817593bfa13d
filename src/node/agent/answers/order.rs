//! Carrying out what a person ordered, in one place, and what became of it.

use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::core::local_failure::LocalFailure;
use crate::core::model::ObjectKey;
use crate::node::agent::Agent;
use crate::node::agent::decision::Decision;
use crate::node::agent::last_pass::LastPass;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::RecordFate;
use crate::node::agent::records::Records;
use crate::node::agent::state::AgentState;
use crate::node::socket::OrderDeadline;
use crate::node::socket::RequestLine;

/// What became of an order that a person gave.
pub(super) enum OrderFate {
    /// The order is on disk, and nothing failed.
    OnDisk,
    /// The order counts; the next pass tries again what failed.
    Unfinished(LocalFailure),
    /// The order is not on disk: it counts as long as this process runs.
    InMemory(LocalFailure),
    /// The order does not count.
    NotTaken(LocalFailure),
}

impl OrderFate {
    /// What the person has to know about it.
    pub(super) fn rest(&self) -> String {
        match self {
            Self::OnDisk => String::new(),
            Self::NotTaken(why) => why.to_string(),
            Self::Unfinished(why) => format!("counts, but is not done yet and is tried again: {why}"),
            Self::InMemory(why) => {
                format!("counts, but is not on disk yet; if the agent stops before that, it is lost: {why}")
            }
        }
    }
}

/// A pass with an order and without it.
pub(super) struct OrderedPass {
    pub(super) began: Instant,
    pub(super) observation: Observation,
    pub(super) unordered: Decision,
    /// The state that the order leaves, and what follows from it.
    pub(super) ordered: (AgentState, Decision),
}

/// Refuses an order that is too old: its client reports, or has reported, that the agent does not answer.
pub(super) fn refuse_late(line: &RequestLine) -> Result<(), Value> {
    if !line.deadline.is_some_and(OrderDeadline::is_past) {
        return Ok(());
    }
    tracing::warn!("an order is too old and is not carried out: {:?}", line.request);
    Err(json!({"error": "the agent was too slow to begin: nothing is changed"}))
}

/// Carries out a pass with an order, unless the order is too old by now. Gives the records without the order.
pub(super) fn carry_out_order(agent: &mut Agent, pass: OrderedPass, line: &RequestLine) -> Result<Records, Value> {
    let OrderedPass { began, observation, unordered, ordered: (state, ordered) } = pass;
    if let Err(late) = refuse_late(line) {
        agent.carry_out(observation, unordered, began);
        return Err(late);
    }
    agent.state = state;
    agent.carry_out(observation, ordered, began);
    Ok(unordered.state.records)
}

/// What became of an order for `key` in the pass that carried it out. Where the pass failed before it took the
/// daemon's record, the order is forgotten again: the record is that of `unordered`, as observed without it.
pub(super) fn end_order(agent: &mut Agent, key: &ObjectKey, unordered: &Records) -> OrderFate {
    let LastPass { outcome, .. } = &agent.last;
    let Some(failure) = outcome.failures.get(key) else { return OrderFate::OnDisk };
    let why = failure.cause.clone();
    match outcome.records.get(key) {
        Some(RecordFate::OnDisk) => return OrderFate::Unfinished(why),
        Some(RecordFate::InMemory) => return OrderFate::InMemory(why),
        None => {}
    }
    match unordered.get(key) {
        // A part of the order may be on disk nevertheless.
        Some(record) => agent.state.set_record(record.clone()),
        None => drop(agent.state.records.remove(key)),
    }
    OrderFate::NotTaken(why)
}
