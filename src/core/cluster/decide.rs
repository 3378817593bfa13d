//! The coordinator's decision: an observation and what is remembered in, requests and reports out.
//!
//! Owns what of a plan is sent now, and what waits: for its turn, for a back-off, or for an answer.

mod turns;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;

use super::broken::Suspects;
use super::certificates;
use super::certificates::NotApproved;
use super::events;
use super::events::Trouble;
use super::events::TroubleEvents;
use super::observation::ClusterObservation;
use super::observation::Leadership;
use super::pass;
use super::pass::FewAgents;
use super::pass::ObjectWrite;
use super::pass::PassedOver;
use super::pass::Settings;
use super::released::KnownHalt;
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
/// Of these, writes that concern no trusted namespace: nothing else is decided until they are answered.
const TENANT_WRITES: usize = 64;
/// Pods that are looked up at one time.
const LOOKUPS: usize = 64;

/// What a pass does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterDecision {
    /// What is sent, in order.
    pub requests: Vec<ClusterRequest>,
    /// What is reported.
    pub notices: Vec<Notice>,
    /// When to look again though nothing happens.
    pub next_look: Option<Timestamp>,
    /// What is remembered; `None`: as it was.
    pub memory: Option<Memory>,
}

/// What a decision leaves to the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// See [`pass::ClusterPlan::passed_over`].
    pub(super) passed_over: BTreeMap<ObjectKey, PassedOver>,
    /// See [`pass::ClusterPlan::unmentioned`].
    pub(super) unmentioned: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// See [`pass::ClusterPlan::older_unavailable`].
    pub(super) older_unavailable: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// See [`pass::ClusterPlan::delays`].
    pub(super) delays: BTreeMap<ObjectKey, BTreeMap<String, pass::NodeDelay>>,
    /// See [`pass::ClusterPlan::halts`].
    pub(super) halts: BTreeMap<ObjectKey, KnownHalt>,
    /// See [`pass::ClusterPlan::decided`].
    pub(super) decided: BTreeMap<ObjectKey, String>,
    /// See [`pass::ClusterPlan::broken`].
    pub(super) broken: BTreeMap<ObjectKey, Suspects>,
    /// See [`pass::ClusterPlan::unread`].
    pub(super) unread: BTreeMap<ObjectKey, Timestamp>,
    /// See [`pass::ClusterPlan::awaited`].
    pub(super) awaited: BTreeMap<ObjectKey, Timestamp>,
    /// See [`pass::ClusterPlan::lacking`].
    pub(super) lacking: BTreeMap<ObjectKey, pass::Lacking>,
    /// DaemonSets that too few agents run: each is logged once.
    pub(super) few: BTreeSet<ObjectKey>,
    /// Nodes whose agent reports too many daemons: each is logged once.
    pub(super) left_out: BTreeSet<String>,
    /// What goes wrong, and the events that were written about it.
    pub(super) events: TroubleEvents,
    /// What is wanted, whether it is sent or waits.
    pub(super) wanted: BTreeSet<RequestTarget>,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A watch failed, or a GET of one of its objects.
    Unreadable(WatchedKind, String),
    /// An approval is withdrawn because no agent claimed it in time: DaemonSet and node.
    Unclaimed(ObjectKey, String),
    /// Too few agents say that they run a DaemonSet without a mode.
    FewAgents(FewAgents),
    /// An agent reports more daemons than are taken from one: its node, and how many are left out.
    LeftOut(String, usize),
    /// A certificate request was approved: its name, and the node that it is for.
    Approved(String, String),
    /// A certificate request is not approved.
    NotApproved {
        name: String,
        /// Who asks.
        user: String,
        why: NotApproved,
    },
    /// A pod that an agent reports could not be looked up.
    LookupFailed(StockPodClaim, SendError),
    /// The agents' Leases could not be read.
    LeasesUnread(SendError),
    /// An event could not be written.
    EventFailed(Trouble, SendError),
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

/// Decides. Nothing is rolled out from half of a list, which is the state of two moments, and nothing is written while
/// an answer is missing: an approval that is on its way takes a slot of the budget that no snapshot shows yet.
pub fn decide(observation: &ClusterObservation, state: &CoordinatorState, settings: &Settings) -> ClusterDecision {
    let (view, now) = (&observation.snapshot, observation.now);
    let mut decision = ClusterDecision { notices: state.notices.clone(), ..ClusterDecision::default() };
    if observation.leadership == Leadership::Following {
        return decision;
    }
    let leases = (view.is_complete() && state.liveness.is_due(now)).then(|| {
        let (target, version) = (RequestTarget::Leases, String::new());
        ClusterRequest { number: state.sent + 1, target, version, call: Call::ListLeases }
    });
    let leases_due = state.liveness.due().filter(|at| view.is_complete() && *at > now);
    if state.is_writing() {
        // Agents are not dead because the answers to many writes take long.
        decision.requests.extend(leases);
        decision.next_look = leases_due;
        return decision;
    }
    // The liveness of agents is read first: the last report of a dead agent may be outdated.
    let is_known = view.is_complete() && state.liveness.has_begun(now);
    let plan = is_known.then(|| pass::plan(view, state, settings, now));
    let is_planned = plan.is_some();
    let plan = plan.unwrap_or_default();
    let new = plan.few.iter().filter(|few| !state.few.contains(&few.key));
    decision.notices.extend(new.map(|few| Notice::FewAgents(few.clone())));
    let few = plan.few.iter().map(|few| few.key.clone()).collect();
    let left_out = view.left_out();
    let new = left_out.iter().filter(|(node, _)| !state.left_out.contains(*node));
    decision.notices.extend(new.map(|(node, count)| Notice::LeftOut(node.clone(), *count)));
    let left_out = left_out.into_keys().collect();
    let (approvals, not_approved) = certificates::plan(view);
    decision.notices.extend(plan.unclaimed.into_iter().map(|(key, node)| Notice::Unclaimed(key, node)));
    for (name, why) in not_approved.into_iter().filter(|(name, why)| state.not_approved.get(*name) != Some(why)) {
        let user = view.certificate_requests.get(name).map(|request| request.user.clone()).unwrap_or_default();
        decision.notices.push(Notice::NotApproved { name: name.to_owned(), user, why });
    }
    let mut wake_ups: Vec<Timestamp> = plan.look_again.into_iter().collect();
    let mut sent: Vec<(RequestTarget, String, Call)> = Vec::new();
    let writes = approvals.into_iter().chain(plan.writes);
    let writes: Vec<(RequestTarget, ObjectWrite)> = writes.map(|write| (requests::target(&write), write)).collect();
    // A node that is tried after others keeps its back-off.
    let refused = plan.refused.into_iter().map(RequestTarget::Approvals);
    let wanted = writes.iter().map(|(target, _)| target.clone()).chain(refused).collect();
    let mut of_tenants = 0;
    for (of, target, write) in turns::ordered(view, state, writes) {
        if sent.len() == WRITES || of.is_some() && of_tenants == TENANT_WRITES {
            break;
        }
        let turn = match &write {
            ObjectWrite::Status { key, nodes, at_once: false, .. } => state.pace.waits(key, *nodes, now),
            _ => None,
        };
        let Some((version, call)) = requests::call(view, write) else { continue };
        match state.retries.waits(&target, &version, now).or(turn) {
            Some(at) => wake_ups.push(at),
            None => {
                of_tenants += usize::from(of.is_some());
                sent.push((target, version, call));
            }
        }
    }
    sent.extend(plan.lookups.into_iter().take(LOOKUPS).map(|claim| {
        let pod = ObjectKey::new(&claim.key.namespace, &claim.pod);
        (RequestTarget::Pod(claim), String::new(), Call::GetPod(pod))
    }));
    sent.extend(leases.map(|leases| (leases.target, leases.version, leases.call)));
    wake_ups.extend(leases_due);
    let event_plan = state.events.plan(plan.troubles, now);
    wake_ups.extend(event_plan.look_again);
    sent.extend(event_plan.due.into_iter().map(|(trouble, nodes)| {
        let (name, event, series) = events::body(&trouble, nodes, now);
        let call = Call::Event(ObjectKey::new(&trouble.key.namespace, &name), event, series);
        (RequestTarget::Event(trouble), String::new(), call)
    }));
    let (mirrors, next) = state.liveness.lookups(plan.mirrors, now);
    wake_ups.extend(next);
    sent.extend(mirrors.into_iter().map(|look| {
        let call = Call::GetPod(look.pod.clone());
        (RequestTarget::Mirror(look), String::new(), call)
    }));
    decision.next_look = wake_ups.into_iter().min();
    let numbered = (state.sent + 1..).zip(sent);
    decision.requests =
        numbered.map(|(number, (target, version, call))| ClusterRequest { number, target, version, call }).collect();
    let (passed_over, unmentioned, halts, events) = (plan.passed_over, plan.unmentioned, plan.halts, event_plan.next);
    let (decided, broken, delays, unread, awaited, lacking) =
        (plan.decided, plan.broken, plan.delays, plan.unread, plan.awaited, plan.lacking);
    decision.memory = is_planned.then_some(Memory {
        passed_over,
        unmentioned,
        older_unavailable: plan.older_unavailable,
        delays,
        halts,
        decided,
        broken,
        unread,
        awaited,
        lacking,
        few,
        left_out,
        events,
        wanted,
    });
    decision
}

#[cfg(test)]
mod tests;
