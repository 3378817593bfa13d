//! In which step the rollout of a DaemonSet is.

use crate::core::annotations;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::RevisionWrite;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::released;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::retries::Retries;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutRules;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::steps;
use crate::core::cluster::steps::Promotion;
use crate::core::cluster::steps::StepFacts;
use crate::core::cluster::steps::StepLimit;
use crate::core::cluster::steps::StepState;
use crate::core::cluster::steps::StepStatus;
use crate::core::model::PROMOTED;
use crate::core::model::STEPS;
use crate::core::time::Timestamp;

use super::delays::deadline;
use super::facts;
use super::min_ready;
use super::rules;

/// Whether a rollout goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// It does.
    GoesOn,
    /// Something holds it for now: it stays in its step, and nothing is noted.
    Held,
    /// It is outside its window: it stays in its step, whose hold may begin.
    Closed,
    /// It is halted or aborted: if it goes on, it starts again from the first step.
    Stopped,
}

/// How far the rollout may go, if it has steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    pub(super) limit: Option<StepLimit>,
    /// What is to be noted on the ControllerRevision.
    pub(super) write: Option<RevisionWrite>,
    /// When to look again.
    pub(super) look_again: Option<Timestamp>,
}

/// The stage of the `current` revision. The way back to the released one has no steps.
pub(super) fn stage(
    (rules, advance): (&RolloutRules, Advance),
    daemon: &WatchedDaemon,
    current: Option<&RevisionFact>,
    number: Option<i64>,
    facts: &[NodeFact<'_>],
    retries: &Retries,
    now: Timestamp,
) -> Stage {
    let written = &daemon.daemon_set.annotations;
    let Some(text) = written.get(STEPS) else { return Stage::default() };
    let Some((steps, current)) = steps::parse(text).zip(current) else { return Stage::default() };
    if is_released(daemon) || annotations::is_uncoordinated(&daemon.daemon_set) {
        return Stage::default();
    }
    let number = number.unwrap_or(current.number);
    // The pods of a deleted DaemonSet of this name are no earlier revision of it.
    let is_first = number == 1 && RolloutStatus::of(&daemon.status, daemon.generation).released.is_none();
    if is_first {
        return Stage::default();
    }
    let known = current.step(number);
    let before = known.clone().unwrap_or_else(|| StepState::first(number, text));
    if advance == Advance::Stopped {
        let write = known.filter(|known| known.step > 1 || known.since.is_some());
        let state = StepState::first(number, text);
        let write = write.map(|_| RevisionWrite::Step { name: current.name.clone(), state });
        return Stage { write, ..Stage::default() };
    }
    let promoted = written.get(PROMOTED).and_then(|text| promoted(text, &current.name, number));
    let promoted = Promotion::of(promoted, &steps);
    let (mut desired, mut able, mut away, mut have, mut done, mut lost) = (0, 0, 0, 0, 0, 0);
    let mut unavailable = Vec::new();
    for node in facts.iter().filter(|node| node.should_run) {
        let live = || node.instances.iter().filter(|i| !i.ending && i.revision == daemon.wanted);
        let is_available = live().any(|i| rollout::available(node.ready, i, min_ready(daemon), now));
        let runs_it = live().next().is_some();
        let has_it = runs_it || node.restarts(rules);
        // A node that has just taken it and is away may have been cut off by it: its deadline decides.
        let is_gone = || !node.ready || node.agent == AgentLiveness::Dead;
        let had_time = || live().all(|i| i.created + deadline(daemon) <= now);
        let claims = node.replacing && !has_it;
        let is_lost = match runs_it {
            true => !is_available && (node.failed || is_gone() && had_time()),
            // One that failed there keeps its place in the step, also once its node went back by itself. What is restarted
            // and does not come back is waited for no longer than what runs.
            false => node.failed || has_it && (node.late || is_gone()),
        };
        desired += 1;
        // A node that is only away can take it, and so can one that lacks an object once that exists; not one that starts
        // nothing before the last step.
        let can = (node.able || node.lacks || !node.reachable) && !node.awaits_it();
        let is_able = is_available || !is_lost && !node.failed && can;
        able += usize::from(is_able);
        away += usize::from(is_able && !has_it && !node.reachable);
        have += usize::from(has_it || is_lost);
        done += usize::from(is_available);
        lost += usize::from(is_lost);
        let is_waited_for = has_it || is_lost || claims && node.late;
        unavailable.extend((is_waited_for && !is_available).then_some(node.name));
    }
    // A pod that is restarted and a node that is not well for a moment begin no hold anew.
    let keeps = |n: &&NodeFact<'_>| {
        let belongs = n.should_run || n.belongs;
        belongs && (facts::has_wanted(daemon, n) || n.restarts(rules) || n.unreported_until.is_some() || n.failed)
    };
    let kept = facts.iter().filter(keeps).count();
    let is_away = rollout::is_outage(rules, facts) || rollout::is_silence(rules, facts);
    let (is_frozen, is_closed) = (advance == Advance::Held || is_away, advance == Advance::Closed);
    let unavailable = &*unavailable;
    let of_nodes =
        StepFacts { desired, able, away, have, kept, done, lost, unavailable, is_frozen, is_closed, promoted, now };
    let (mut limit, state, look_again) = steps::course((&steps, text), &before, of_nodes);
    if advance == Advance::Held || is_closed && state.since.is_none() {
        return Stage { limit: Some(limit), ..Stage::default() };
    }
    // A further step that was reached without some nodes is noted before anything is approved of it: the next pass may find
    // that they are not lost.
    let is_further = lost > 0 && state.step > before.step;
    if let Some(noted) = steps.get(before.step.saturating_sub(1)).filter(|_| is_further) {
        (limit.nodes, limit.is_last) = (rollout::resolve(&noted.nodes, desired).max(1).max(have), false);
        if let StepStatus::Waits { place, .. } = limit.status {
            limit.status = StepStatus::Begins(place);
        }
    }
    let target = RequestTarget::Revision(daemon.daemon_set.key.clone(), RevisionChange::Step, current.name.clone());
    if let Some(why) = retries.failure(&target).filter(|_| known.as_ref() != Some(&state)) {
        limit.status = StepStatus::Unwritten { step: state.step, revision: current.name.clone(), why: why.clone() };
    }
    let write = (known.as_ref() != Some(&state)).then(|| RevisionWrite::Step { name: current.name.clone(), state });
    Stage { limit: Some(limit), write, look_again }
}

/// What is promoted of a revision: `NAME/NUMBER/` and `canary` or `STEP/SIZE`, so that it is void for the next
/// revision, and for this one when it comes back.
pub(super) fn promoted<'a>(annotation: &'a str, revision: &str, number: i64) -> Option<&'a str> {
    annotation.strip_prefix(&format!("{revision}/{number}/"))
}

/// Whether people have taken the rollout of this revision back. A released one cannot be taken back, and without
/// coordination each node follows by itself.
pub(super) fn is_aborted(daemon: &WatchedDaemon, current: Option<&RevisionFact>) -> bool {
    // Its ControllerRevision may have been deleted since, and made again under another name.
    let is_named = |name| {
        current.is_some_and(|current| current.name == name) || released::is_aborted(&daemon.status, &daemon.hash)
    };
    rules::aborted(&daemon.daemon_set).is_some_and(is_named)
        && !is_released(daemon)
        && !annotations::is_uncoordinated(&daemon.daemon_set)
}

/// Whether the wanted revision is the released one.
pub(super) fn is_released(daemon: &WatchedDaemon) -> bool {
    RolloutStatus::of(&daemon.status, daemon.generation).released.is_some_and(|released| released.hash == daemon.hash)
}
