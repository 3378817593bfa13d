//! In which step the rollout of a DaemonSet is.

use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::RevisionWrite;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::Rules;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::steps;
use crate::core::cluster::steps::Promotion;
use crate::core::cluster::steps::StepFacts;
use crate::core::cluster::steps::StepLimit;
use crate::core::cluster::steps::StepState;
use crate::core::model::PROMOTED;
use crate::core::model::STEPS;
use crate::core::time::Timestamp;

use super::min_ready;
use super::rules;

/// How far the rollout may go, if it has steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    pub(super) limit: Option<StepLimit>,
    /// What is to be noted on the ControllerRevision.
    pub(super) write: Option<RevisionWrite>,
    /// When to look again.
    pub(super) look_again: Option<Timestamp>,
}

/// The stage of the `current` revision, which begins anew where it `is_stopped` for good. The way back to the released
/// one has no steps.
pub(super) fn stage(
    rules: &Rules,
    is_stopped: bool,
    daemon: &WatchedDaemon,
    current: Option<&RevisionFact>,
    number: Option<i64>,
    facts: &[NodeFact<'_>],
    now: Timestamp,
) -> Stage {
    let annotations = &daemon.daemon_set.annotations;
    let Some(text) = annotations.get(STEPS) else { return Stage::default() };
    let Some((steps, current)) = steps::parse(text).zip(current) else { return Stage::default() };
    if is_released(daemon) {
        return Stage::default();
    }
    let number = number.unwrap_or(current.number);
    let known = current.step(number);
    let before = known.clone().unwrap_or_else(|| StepState::first(number, text));
    if is_stopped {
        // Whoever lets it go on again begins anew.
        let write = known.filter(|known| known.step > 1 || known.since.is_some());
        let state = StepState::first(number, text);
        let write = write.map(|_| RevisionWrite::Step { name: current.name.clone(), state });
        return Stage { write, ..Stage::default() };
    }
    let written = annotations.get(PROMOTED).and_then(|text| promoted(text, &current.name, number));
    let promoted = Promotion::of(written, &steps);
    let wanted = || facts.iter().filter(|node| node.should_run);
    let has_it = |node: &&NodeFact<'_>| {
        let mut live = node.instances.iter().filter(|i| !i.ending && i.revision == daemon.wanted);
        live.any(|i| rollout::available(node.ready, i, min_ready(daemon), now))
    };
    let done = wanted().filter(has_it).count();
    // Who is only away can take it.
    let able = wanted().filter(|node| has_it(node) || !node.failed && (node.able || !node.reachable)).count();
    let desired = wanted().count();
    let is_frozen = rollout::is_outage(rules, facts);
    let of_nodes = StepFacts { desired, able, done, is_frozen, promoted, now };
    let (limit, state, look_again) = steps::course((&steps, text), &before, of_nodes);
    let write = (known.as_ref() != Some(&state)).then(|| RevisionWrite::Step { name: current.name.clone(), state });
    Stage { limit: Some(limit), write, look_again }
}

/// What of a revision is promoted: `NAME/NUMBER/` and `canary` or `STEP/SIZE`, so that it is void for the next revision,
/// and for this one when it comes back.
pub(super) fn promoted<'a>(annotation: &'a str, revision: &str, number: i64) -> Option<&'a str> {
    annotation.strip_prefix(&format!("{revision}/{number}/"))
}

/// Whether people have taken the rollout of this revision back. Of one that is released there is nothing to take back.
pub(super) fn is_aborted(daemon: &WatchedDaemon, current: Option<&RevisionFact>) -> bool {
    let is_named = |name| current.is_some_and(|current| current.name == name);
    rules::aborted(&daemon.daemon_set).is_some_and(is_named) && !is_released(daemon)
}

/// Whether the wanted revision is the released one.
pub(super) fn is_released(daemon: &WatchedDaemon) -> bool {
    RolloutStatus::of(&daemon.status, daemon.generation).released.is_some_and(|released| released.hash == daemon.hash)
}
