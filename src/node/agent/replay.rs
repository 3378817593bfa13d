//! Recorded passes, decided again by this program: every recording is a test.
//!
//! Owns the comparison. A pass is decided from its own state and observation; so one that differs says nothing about the
//! next.

use std::collections::BTreeMap;
use std::collections::HashMap;

use ciborium::Value;
use serde::Deserialize;

use crate::config::Config;
use crate::core::time::Timestamp;
use crate::node::recording::read::Limits;
use crate::node::recording::read::Recording;

use super::decide;
use super::observation::Observation;
use super::recorder::InputsByAddress;
use super::recorder::RecordedDecision;
use super::render_cache::KnownRendering;
use super::render_cache::RenderCache;
use super::state::AgentState;

pub use crate::node::recording::read::ReadError;

/// The most memory of the values of all passes, one after the other: it bounds the time.
const MAX_READ: usize = 16 << 30;
/// The most differences of one pass that are listed.
const MOST: usize = 20;
/// A value in a list of differences has at most so many characters.
const LONGEST: usize = 120;

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// The program that made the recording.
    pub version: String,
    pub passes: usize,
    /// Passes that came too fast to be recorded.
    pub missed: u64,
    /// Passes that this program cannot decide: a part has another form here; when, and which.
    pub unreadable: Vec<(Timestamp, String)>,
    pub differences: Vec<DecisionDifference>,
}

/// Where today's decision differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionDifference {
    pub at: Timestamp,
    /// As `daemons.kube-system/net.actions[0].Start.reason`.
    pub path: String,
    pub recorded: String,
    pub today: String,
}

#[derive(Deserialize)]
struct ReadPass {
    config: String,
    state: AgentState,
    inputs: InputsByAddress,
    observation: Observation,
    decision: Value,
    renderings: Vec<KnownRendering>,
}

/// Decides every pass of `recording` again.
///
/// # Errors
/// When it is no recording, or one of another format.
pub fn replay(recording: &[u8]) -> Result<ReplayReport, ReadError> {
    let recording = Recording::open(recording)?;
    let mut report = ReplayReport {
        version: recording.version.clone(),
        missed: recording.missed,
        passes: recording.frames().len(),
        ..ReplayReport::default()
    };
    let mut read = 0_usize;
    for (at, root) in recording.frames() {
        let mut limits = Limits::default();
        let value = recording.value(root, &mut limits)?;
        read += limits.used();
        if read > MAX_READ {
            return Err(ReadError::TooLarge);
        }
        match decide_again(&value, recording.has_values) {
            Ok((recorded, today)) => {
                let mut found = Vec::new();
                compare(&recorded, &today, String::new(), &mut found);
                let differences =
                    found.into_iter().map(|(path, recorded, today)| DecisionDifference { at, path, recorded, today });
                report.differences.extend(differences);
            }
            Err(why) => report.unreadable.push((at, why)),
        }
    }
    Ok(report)
}

/// The recorded decision and today's.
fn decide_again(pass: &Value, has_values: bool) -> Result<(Value, Value), String> {
    let words = |error: ciborium::value::Error| match error {
        ciborium::value::Error::Custom(text) => text.escape_debug().to_string(),
    };
    let ReadPass { config, mut state, inputs, observation, decision, renderings } =
        pass.deserialized().map_err(words)?;
    let config = Config::from_toml(config).map_err(|error| error.to_string())?;
    inputs.restore(&mut state, &observation);
    let is_closed = |known: &KnownRendering| known.is_secret || !has_values;
    let recorded: HashMap<_, _> = renderings.into_iter().filter(is_closed).map(KnownRendering::into_entry).collect();
    let mut cache = RenderCache::with_recorded(recorded);
    let today = decide::decide(&observation, &state, &config, &mut cache);
    let today = Value::serialized(&RecordedDecision::of(&today, observation.now)).map_err(words)?;
    Ok((decision, today))
}

fn compare(recorded: &Value, today: &Value, path: String, found: &mut Vec<(String, String, String)>) {
    if recorded == today || found.len() >= MOST {
        return;
    }
    match (recorded, today) {
        (Value::Map(one), Value::Map(other)) => {
            let (one, other) = (by_name(one), by_name(other));
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            for name in names {
                if found.len() >= MOST {
                    return;
                }
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(one, other, below, found),
                    (one, other) => found.push((below, shown(one.copied()), shown(other.copied()))),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                if found.len() >= MOST {
                    return;
                }
                let below = format!("{path}[{index}]");
                match (one.get(index), other.get(index)) {
                    (Some(one), Some(other)) => compare(one, other, below, found),
                    (one, other) => found.push((below, shown(one), shown(other))),
                }
            }
        }
        _ => found.push((path, shown(Some(recorded)), shown(Some(today)))),
    }
}

fn by_name(members: &[(Value, Value)]) -> BTreeMap<String, &Value> {
    members.iter().map(|(name, value)| (text(name), value)).collect()
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(nothing)".to_owned() };
    let text = text(value);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A value as a person reads it.
fn text(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Text(text) => text.escape_debug().to_string(),
        Value::Integer(number) => i128::from(*number).to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(is) => is.to_string(),
        Value::Null => "none".to_owned(),
        Value::Array(items) => format!("[{}]", list(items.iter().map(text).collect())),
        Value::Map(members) => {
            let member = |(name, value): &(Value, Value)| format!("{}: {}", text(name), text(value));
            format!("{{{}}}", list(members.iter().map(member).collect()))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
pub(super) mod tests;
