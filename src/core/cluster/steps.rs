//! A rollout in steps: so many nodes, then a hold, then more.
//!
//! Owns the annotation `daemonlet.dev/steps` and how a rollout goes through its steps. Which step a revision is in is a
//! fact about it, and outlives the coordinator. Must not choose nodes.

use serde::Deserialize;
use serde::Serialize;

use crate::core::annotations::int_or_percent;
use crate::core::duration;
use crate::core::model::IntOrPercent;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::rfc3339;

use super::rollout::resolve;

mod step_status;

pub use step_status::StepPlace;
pub use step_status::StepStatus;

/// Annotation of a ControllerRevision: the step that its rollout is in, and since when it holds there.
pub const STEP_ANNOTATION: &str = "daemonlet.dev/step";

/// Steps that a rollout has at most.
const STEPS: usize = 64;
/// Bytes of the annotation at most: a ControllerRevision repeats it, and what is too long there is not read.
const BYTES: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// How many nodes have the revision at its end; of a percentage rounded up, and at least one.
    pub nodes: IntOrPercent,
    /// How long they have to have it before the next step.
    pub hold: Span,
}

/// Reads `1, 10m; 5%, 30m; 100%`: a number or a share of nodes, and a Go duration where the rollout holds after it.
/// `None`: it is something else, a step is not larger than the one before, or it is too long.
pub fn parse(text: &str) -> Option<Vec<RolloutStep>> {
    if text.len() > BYTES {
        return None;
    }
    let steps: Option<Vec<RolloutStep>> = text.split(';').take(STEPS + 1).map(step).collect();
    let steps = steps.filter(|steps| steps.len() <= STEPS)?;
    let grows = steps.windows(2).all(|pair| match (pair[0].nodes, pair[1].nodes) {
        (IntOrPercent::Int(a), IntOrPercent::Int(b)) | (IntOrPercent::Percent(a), IntOrPercent::Percent(b)) => a < b,
        // Which is larger depends on the cluster.
        _ => true,
    });
    let is_some = |step: &RolloutStep| !matches!(step.nodes, IntOrPercent::Int(0) | IntOrPercent::Percent(0));
    (grows && steps.iter().all(is_some)).then_some(steps)
}

fn step(text: &str) -> Option<RolloutStep> {
    let (nodes, hold) = parts(text);
    let hold = hold.map_or(Some(Span::ZERO), duration::parse)?;
    Some(RolloutStep { nodes: int_or_percent(nodes)?, hold })
}

/// How many nodes a step has, and how long it holds, as they are written.
fn parts(text: &str) -> (&str, Option<&str>) {
    match text.split_once(',') {
        Some((nodes, hold)) => (nodes.trim(), Some(hold.trim())),
        None => (text.trim(), None),
    }
}

/// The first number or duration that is none in steps that [`parse`] does not understand, in words.
pub fn misfit(text: &str) -> Option<String> {
    text.split(';').take(STEPS).map(parts).find_map(|(nodes, hold)| {
        let hold = hold.filter(|hold| duration::parse(hold).is_none());
        match int_or_percent(nodes) {
            None => Some(format!("{nodes:?} is neither a number of nodes nor a percentage up to 100%")),
            Some(_) => {
                hold.map(|hold| format!("{hold:?} is no Go duration, which has hours (h), minutes (m) and seconds (s)"))
            }
        }
    })
}

impl RolloutStep {
    /// How many nodes it has, as it is written.
    pub fn size(&self) -> String {
        match self.nodes {
            IntOrPercent::Int(nodes) => nodes.to_string(),
            IntOrPercent::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// Which hold is ended by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion<'a> {
    None,
    /// That of the step with this number.
    Of(usize),
    /// That of a step which is none of these, as it is written.
    Void(&'a str),
}

impl<'a> Promotion<'a> {
    /// As the annotation says it of a revision, `STEP/SIZE`: it counts while the step with this number has this size.
    pub fn of(written: Option<&'a str>, steps: &[RolloutStep]) -> Self {
        let Some(written) = written else { return Self::None };
        let number = written.split_once('/').and_then(|(number, size)| {
            let number: usize = number.parse().ok()?;
            let step = steps.get(number.checked_sub(1)?)?;
            (int_or_percent(size) == Some(step.nodes)).then_some(number)
        });
        number.map_or(Self::Void(written), Self::Of)
    }

    /// As a void one is written.
    fn void(self) -> Option<String> {
        match self {
            Self::None | Self::Of(_) => None,
            Self::Void(written) => Some(written.to_owned()),
        }
    }
}

/// The step that a revision's rollout is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Its number, from 1 on.
    pub step: usize,
    /// Since when all nodes of the step have the revision, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339")]
    pub since: Option<Timestamp>,
    /// The revision's number: a template that comes back has another, and begins anew.
    pub number: i64,
    /// The steps that it is one of, as they are written.
    #[serde(default)]
    pub of: String,
    /// How many nodes it had when that was noted; 0: it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl StepState {
    /// The first step of a revision of this number.
    pub fn first(number: i64, of: &str) -> Self {
        Self { step: 1, since: None, number, of: of.to_owned(), size: 0 }
    }

    /// That of a ControllerRevision of this number, by its annotation; `None`: its rollout begins.
    pub fn of(annotation: Option<&str>, number: i64) -> Option<Self> {
        let known = annotation.and_then(|text| serde_json::from_str::<Self>(text).ok());
        known.filter(|known| known.number == number && known.step > 0)
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How far a rollout may go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLimit {
    /// How many nodes may have the revision.
    pub nodes: usize,
    /// Whether there is no step after it.
    pub is_last: bool,
    /// Where it stands.
    pub status: StepStatus,
}

/// What is known of the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepFacts<'a> {
    /// Nodes that should run the daemon.
    pub(super) desired: usize,
    /// Those of them that can take the revision, or have it.
    pub(super) able: usize,
    /// Those of these that are unreachable and do not have it.
    pub(super) away: usize,
    /// Those of them that have it.
    pub(super) have: usize,
    /// Nodes that have it as far as is known: also where it is restarted, the node is not well or has not reported yet.
    pub(super) kept: usize,
    /// Those of them that have it available.
    pub(super) done: usize,
    /// Those of them that have it, and on which it failed or which are away for good: the step does not wait for them.
    pub(super) lost: usize,
    /// Those that have it and not available.
    pub(super) unavailable: &'a [&'a str],
    /// Whether so many nodes are away, or have a dead agent, that the others do not speak for the step.
    pub(super) is_frozen: bool,
    /// Whether it is outside its window: a step may begin its hold, and no step follows another.
    pub(super) is_closed: bool,
    /// Whether a hold is ended by hand.
    pub(super) promoted: Promotion<'a>,
    /// The time.
    pub(super) now: Timestamp,
}

/// Where a rollout is that was in `state`, by these `steps` (`of`: as they are written): how far it may go, the state
/// now, and when to look again.
pub(super) fn course(
    (steps, of): (&[RolloutStep], &str),
    state: &StepState,
    facts: StepFacts<'_>,
) -> (StepLimit, StepState, Option<Timestamp>) {
    let mut state = state.clone();
    let last = steps.len().max(1);
    let size = |step: &RolloutStep| resolve(&step.nodes, facts.desired).max(1);
    let before = (state.of != of).then(|| parse(&state.of).unwrap_or_default());
    if let Some(before) = before.filter(|before| before != steps) {
        if facts.is_frozen || facts.is_closed {
            let limit = StepLimit { nodes: facts.have, is_last: false, status: StepStatus::Changed };
            return (limit, state, None);
        }
        // It goes on in the first step that is not smaller than what is there, and larger than what has held already.
        let of_before = |number: usize| before.get(number.checked_sub(1)?).map(size);
        let passed = of_before(state.step - 1).unwrap_or(0);
        let goes_on = |step: &RolloutStep| size(step) >= facts.have && size(step) > passed;
        let at = steps.iter().position(goes_on).unwrap_or(last - 1);
        // A hold that has begun goes on.
        let is_same = of_before(state.step) == steps.get(at).map(size);
        let since = state.since.take().filter(|_| is_same);
        (state.step, state.since, state.of) = (at + 1, since, of.to_owned());
    }
    state.step = state.step.min(last);
    loop {
        let step = steps.get(state.step - 1);
        let nodes = step.map_or(facts.desired, size);
        let is_last = state.step == last;
        let place = StepPlace { number: state.step, last, nodes, desired: facts.desired };
        let is_promoted = facts.promoted == Promotion::Of(state.step);
        let limit = |status: StepStatus| StepLimit { nodes, is_last, status };
        let waits = || {
            let unavailable = facts.unavailable.iter().map(|&node| node.to_owned()).collect();
            limit(StepStatus::Waits { place, unavailable })
        };
        // Where fewer nodes can take it than the step has, those are enough. One at least shows that it works, or a
        // person says so.
        let begun = facts.done + facts.lost;
        // A promotion does not wait for nodes that are away.
        let able = if is_promoted { facts.able.saturating_sub(facts.away) } else { facts.able };
        let is_shown = facts.done > 0 || is_promoted && begun > 0;
        let is_done = is_shown && begun >= nodes.min(able + facts.lost);
        // If the step has grown, the added nodes have their time, too.
        let has_grown = state.size > 0 && nodes > state.size && !is_done;
        // If nodes have left it, those that take their places have their time, too.
        let is_short = facts.kept < state.size.min(nodes).min(facts.able + facts.lost);
        state.since = state.since.filter(|_| !has_grown && !is_short);
        state.size = state.since.map_or(0, |_| nodes);
        if is_last || !is_done && state.since.is_none() {
            return (waits(), state, None);
        }
        if facts.is_frozen {
            return (limit(StepStatus::Frozen(place)), state, None);
        }
        // A clock that was set back makes no hold longer.
        let since = state.since.filter(|since| *since <= facts.now).unwrap_or(facts.now);
        (state.since, state.size) = (Some(since.in_whole_seconds()), nodes);
        if facts.is_closed {
            return (waits(), state, None);
        }
        let until = since + step.map_or(Span::ZERO, |step| step.hold);
        let is_over = is_promoted || until <= facts.now;
        if !is_over {
            let holds = StepStatus::Holds { place, until, void: facts.promoted.void() };
            return (limit(holds), state, Some(until));
        }
        if !is_done {
            return (waits(), state, None);
        }
        (state.step, state.since, state.size) = (state.step + 1, None, 0);
    }
}

#[cfg(test)]
mod tests;
