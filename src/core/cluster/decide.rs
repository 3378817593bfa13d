//! The coordinator's decision: an observation and what is remembered in, requests and reports out.
//!
//! Owns what of a plan is sent now, in which order, and what waits: for its turn, for a back-off, or for an answer.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;

use super::observation::ClusterObservation;
use super::observation::Leadership;
use super::pass;
use super::pass::Settings;
use super::pass::Write;
use super::requests;
use super::requests::Call;
use super::requests::ClusterRequest;
use super::requests::RequestTarget;
use super::requests::SendError;
use super::snapshot::StockPodClaim;
use super::snapshot::WatchedKind;
use super::state::CoordinatorState;

/// Writes at one time: the rest is decided anew from what these did.
const WRITES: usize = 256;
/// Pods that are looked up at one time.
const LOOKUPS: usize = 64;

/// What a pass does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterDecision {
    /// What is sent, in order.
    pub requests: Vec<ClusterRequest>,
    /// What is reported.
    pub reports: Vec<Notice>,
    /// When to look again though nothing happens.
    pub next_look: Option<Timestamp>,
    /// What is remembered; `None`: as it was.
    pub(super) memory: Option<Memory>,
}

/// What a decision leaves to the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// See [`pass::ClusterPlan::passed_over`].
    pub(super) passed_over: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// What is wanted, whether it is sent or waits.
    pub(super) wanted: BTreeSet<RequestTarget>,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A watch failed.
    Unreadable(WatchedKind, String),
    /// An approval is withdrawn because no agent claimed it in time: DaemonSet and node.
    Unclaimed(ObjectKey, String),
    /// A pod that an agent reports could not be looked up.
    LookupFailed(StockPodClaim, SendError),
    /// A write was decided from an old version.
    Outdated(RequestTarget, String),
    /// A write failed and is tried again.
    WriteFailed {
        /// What it was about.
        target: RequestTarget,
        /// How it failed.
        error: SendError,
        /// Whether it did not fail so the last time.
        is_new: bool,
    },
}

/// Decides. Nothing is written from half of a list, which is the state of two moments, and none while an answer is
/// missing: an approval that is on its way takes a slot of the budget that no snapshot shows yet.
pub fn decide(observation: &ClusterObservation, state: &CoordinatorState, settings: &Settings) -> ClusterDecision {
    let (view, now) = (&observation.snapshot, observation.now);
    let mut decision = ClusterDecision { reports: state.reports.clone(), ..ClusterDecision::default() };
    if observation.leadership == Leadership::Following || !view.is_complete() || state.is_writing() {
        return decision;
    }
    let plan = pass::plan(view, state, settings, now);
    let unclaimed = plan.unclaimed.into_iter().map(|(key, node)| Notice::Unclaimed(key, node));
    decision.reports.extend(unclaimed);
    let mut looks: Vec<Timestamp> = plan.look_again.into_iter().collect();
    let mut sent: Vec<(RequestTarget, String, Call)> = Vec::new();
    let mut writes: Vec<(RequestTarget, Write)> = plan.writes.into_iter().map(|w| (requests::target(&w), w)).collect();
    let wanted = writes.iter().map(|(target, _)| target.clone()).collect();
    // Each in the order that it has; what is refused for good must not keep anything else from its turn.
    writes.sort_by_key(|(target, _)| state.retries.has_failed(target));
    for (target, write) in writes {
        if sent.len() == WRITES {
            break;
        }
        let turn = match &write {
            Write::Status { key, nodes, at_once: false, .. } => state.pace.waits(key, *nodes, now),
            _ => None,
        };
        let Some((version, call)) = requests::call(view, write) else { continue };
        match state.retries.waits(&target, &version, now).or(turn) {
            Some(at) => looks.push(at),
            None => sent.push((target, version, call)),
        }
    }
    sent.extend(plan.lookups.into_iter().take(LOOKUPS).map(|claim| {
        let pod = ObjectKey::new(&claim.key.namespace, &claim.pod);
        (RequestTarget::Pod(claim), String::new(), Call::GetPod(pod))
    }));
    decision.next_look = looks.into_iter().min();
    let numbered = (state.sent + 1..).zip(sent);
    decision.requests =
        numbered.map(|(number, (target, version, call))| ClusterRequest { number, target, version, call }).collect();
    decision.memory = Some(Memory { passed_over: plan.passed_over, wanted });
    decision
}

#[cfg(test)]
mod tests;
