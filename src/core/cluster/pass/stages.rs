//! In which step the rollout of a DaemonSet is.

use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::RevisionWrite;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::steps;
use crate::core::cluster::steps::StepFacts;
use crate::core::cluster::steps::StepLimit;
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

/// The stage of the `current` revision. The way back to the released one has no steps.
pub(super) fn stage(
    daemon: &WatchedDaemon,
    current: Option<&RevisionFact>,
    number: Option<i64>,
    facts: &[NodeFact<'_>],
    now: Timestamp,
) -> Stage {
    let annotations = &daemon.daemon_set.annotations;
    let Some(steps) = annotations.get(STEPS).and_then(|text| steps::parse(text)) else { return Stage::default() };
    let Some(current) = current else { return Stage::default() };
    if RolloutStatus::of(&daemon.status, daemon.generation).released.is_some_and(|r| r.hash == daemon.hash) {
        return Stage::default();
    }
    let before = current.step(number.unwrap_or(current.number));
    let promoted = annotations.get(PROMOTED).and_then(|text| promoted(text, &current.name)?.parse().ok());
    let wanted = || facts.iter().filter(|node| node.should_run);
    let has_it = |node: &&NodeFact<'_>| {
        let mut live = node.instances.iter().filter(|i| !i.ending && i.revision == daemon.wanted);
        live.any(|i| rollout::available(node.ready, i, min_ready(daemon), now))
    };
    let done = wanted().filter(has_it).count();
    let able = wanted().filter(|node| has_it(node) || node.able && node.reachable && !node.failed).count();
    let known = StepFacts { desired: wanted().count(), able, done, promoted, now };
    let (limit, state, look_again) = steps::course(&steps, &before, known);
    let write =
        (state != before || current.step.is_none()).then(|| RevisionWrite::Step { name: current.name.clone(), state });
    // What is paused or outside its window goes to no other step.
    Stage { limit: Some(limit), write, look_again }
}

/// What of a revision is promoted: `NAME/STEP` names both, so that it is void for the next revision.
pub(super) fn promoted<'a>(annotation: &'a str, revision: &str) -> Option<&'a str> {
    annotation.rsplit_once('/').filter(|(name, _)| *name == revision).map(|(_, step)| step)
}

/// Whether people have taken the rollout of this revision back.
pub(super) fn is_aborted(daemon: &WatchedDaemon, current: Option<&RevisionFact>) -> bool {
    rules::aborted(&daemon.daemon_set).is_some_and(|name| current.is_some_and(|current| current.name == name))
}
