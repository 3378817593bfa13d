//! What the coordinator remembers from pass to pass while it holds the Lease.
//!
//! None of it is needed for correctness: a coordinator that takes over goes on from what the API shows.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::broken::NodeVerdict;
use super::broken::Suspects;
use super::certificates::NotApproved;
use super::claims::CheckedClaims;
use super::decide::ClusterDecision;
use super::decide::Notice;
use super::events::TroubleEvents;
use super::liveness::Liveness;
use super::node_daemons::LeaseTerm;
use super::observation::ClusterObservation;
use super::observation::Leadership;
use super::pace::Pace;
use super::pass::Lacking;
use super::pass::NodeDelay;
use super::pass::PassedOver;
use super::released::KnownHalt;
use super::requests::CoordinatorReply;
use super::requests::RequestOutcome;
use super::requests::RequestTarget;
use super::requests::RevisionChange;
use super::requests::SendError;
use super::retries::Retries;
use super::rollout::UNCLAIMED;
use super::snapshot::ClusterSnapshot;
use super::snapshot::NodeReport;

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorState {
    leadership: Leadership,
    /// How far the wall clock, by which windows open and close, is ahead of the time of this term; negative: behind.
    pub(super) ahead: Span,
    /// Nodes whose agents did not claim an approval in time, by DaemonSet: others come first.
    pub(super) passed_over: BTreeMap<ObjectKey, PassedOver>,
    /// See [`super::pass::ClusterPlan::unmentioned`].
    pub(super) unmentioned: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// See [`super::pass::ClusterPlan::older_unavailable`].
    pub(super) older_unavailable: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// See [`super::pass::ClusterPlan::delays`].
    pub(super) delays: BTreeMap<ObjectKey, BTreeMap<String, NodeDelay>>,
    /// See [`super::pass::ClusterPlan::halts`].
    pub(super) halts: BTreeMap<ObjectKey, KnownHalt>,
    /// See [`super::pass::ClusterPlan::broken`].
    pub(super) broken: BTreeMap<ObjectKey, Suspects>,
    /// See [`super::pass::ClusterPlan::unread`].
    pub(super) unread: BTreeMap<ObjectKey, Timestamp>,
    /// See [`super::pass::ClusterPlan::awaited`].
    pub(super) awaited: BTreeMap<ObjectKey, Timestamp>,
    /// See [`super::pass::ClusterPlan::lacking`].
    pub(super) lacking: BTreeMap<ObjectKey, Lacking>,
    /// DaemonSets that were logged because too few agents run them.
    pub(super) few: BTreeSet<ObjectKey>,
    /// Nodes that were logged because their agent reports too many daemons.
    pub(super) left_out: BTreeSet<String>,
    /// Nodes without a report, since when.
    pub(super) unreported: BTreeMap<String, Timestamp>,
    /// How it was when everything was first listed.
    first_reports: Option<FirstReports>,
    /// Nodes whose approvals were written in this term: they name the Lease, if the resource has a place for it.
    pub(super) approved: BTreeSet<String>,
    pub liveness: Liveness,
    pub(super) claims: CheckedClaims,
    pub(super) pace: Pace,
    pub(super) retries: Retries,
    /// See [`super::pass::ClusterPlan::decided`].
    pub(super) decided: BTreeMap<ObjectKey, String>,
    /// Requests that have no answer yet, by number: what each is about, and the version it was decided from.
    open: BTreeMap<u64, (RequestTarget, String)>,
    /// How many requests there were.
    pub(super) sent: u64,
    /// Certificate requests that are reported as not approved, and why.
    pub(super) not_approved: BTreeMap<String, NotApproved>,
    /// What goes wrong, and the events that were written about it.
    pub(super) events: TroubleEvents,
    /// Why an event could not be written the last time.
    event_failed: Option<SendError>,
    /// Why the Leases could not be read the last time.
    leases_failed: Option<SendError>,
    /// Since when this process holds the Lease.
    pub(super) leads_since: Option<Timestamp>,
    pub(super) totals: Totals,
    /// What is to be logged of the last observation.
    pub(super) notices: Vec<Notice>,
}

/// The agents' reports when everything was first listed.
#[derive(Clone, Copy, Debug)]
struct FirstReports {
    at: Timestamp,
    /// Whether most nodes had none: the resource is new, and their agents have yet to make them.
    are_few: bool,
}

/// What is counted since the process started.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) passes: u64,
    /// Writes, by their outcome.
    pub(super) writes: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn count(&mut self, outcome: &RequestOutcome) {
        let outcome = match outcome {
            RequestOutcome::Written => "written",
            RequestOutcome::Outdated(_) => "outdated",
            RequestOutcome::NotSent => "not sent",
            RequestOutcome::Failed(SendError::Refused(_)) => "refused",
            RequestOutcome::Failed(SendError::Unanswered(_)) => "unanswered",
            RequestOutcome::Pod(_) | RequestOutcome::Leases(_) => return,
        };
        *self.writes.entry(outcome).or_default() += 1;
    }
}

impl CoordinatorState {
    /// Takes in an observation.
    pub fn absorb(&mut self, observation: &ClusterObservation) {
        if observation.leadership != self.leadership {
            let totals = std::mem::take(&mut self.totals);
            let (leadership, sent) = (observation.leadership.clone(), self.sent);
            let leads_since = (leadership != Leadership::Following).then_some(observation.now);
            *self = Self { leadership, sent, leads_since, totals, ..Self::default() };
        }
        self.totals.passes += 1;
        self.ahead = observation.ahead;
        let unreadable = observation.unreadable.iter();
        self.notices = unreadable.map(|(kind, why)| Notice::Unreadable(*kind, why.clone())).collect();
        for reply in &observation.replies {
            self.answered(reply, observation.now);
        }
        let view = &observation.snapshot;
        self.follow_reports(view, observation.now);
        self.liveness.follow(view, observation.now);
        self.claims.retain(view);
        self.pace.retain(|key| view.daemons.contains_key(key));
        self.not_approved.retain(|name, _| view.certificate_requests.contains_key(name));
    }

    /// Notes which nodes have no agent that reports, and since when, as far as this process has seen. A report that says
    /// nothing yet is none: its agent has just made it.
    pub(super) fn follow_reports(&mut self, view: &ClusterSnapshot, now: Timestamp) {
        let since = std::mem::take(&mut self.unreported);
        if !view.is_complete() {
            return;
        }
        let is_unreported = |report: Option<&NodeReport>| report.is_none_or(|report| report.said == 0);
        let unreported =
            view.nodes.iter().filter(|(_, entry)| is_unreported(entry.report.as_ref())).map(|(name, _)| name);
        let unreported: Vec<&String> = unreported.collect();
        // A clock that was set back makes no node wait longer.
        let begin = |name: &String| since.get(name).copied().filter(|at| *at <= now).unwrap_or(now);
        let are_few = 2 * unreported.len() > view.nodes.len();
        self.first_reports.get_or_insert(FirstReports { at: now, are_few });
        self.unreported = unreported.into_iter().map(|name| (name.clone(), begin(name))).collect();
    }

    /// Whether a node had no report when everything was first listed, nor had most others.
    pub(super) fn has_yet_to_report(&self, node: &str) -> bool {
        let first = self.first_reports.filter(|first| first.are_few);
        first.is_some_and(|first| self.unreported.get(node) == Some(&first.at))
    }

    /// Whether a node without a report may have an agent: not, if it alone had none when everything was first listed, or for a
    /// minute.
    pub(super) fn may_yet_report(&self, node: &str, now: Timestamp) -> bool {
        let had_none = |since: Timestamp| self.first_reports.is_some_and(|first| first.at == since && !first.are_few);
        self.unreported.get(node).is_some_and(|since| *since + UNCLAIMED > now && !had_none(*since))
    }

    fn answered(&mut self, reply: &CoordinatorReply, now: Timestamp) {
        // A second reply to a request, or one to a request of an earlier term, is ignored.
        let Some((target, version)) = self.open.remove(&reply.number) else { return };
        if !is_read(&target) {
            self.totals.count(&reply.answer);
        }
        match (&reply.answer, target) {
            (RequestOutcome::Pod(pod), RequestTarget::Pod(claim)) => self.claims.answered(claim, pod.as_deref()),
            (RequestOutcome::Pod(pod), RequestTarget::Mirror(look)) => self.liveness.looked_up(&look, pod.as_deref()),
            (RequestOutcome::Leases(leases), RequestTarget::Leases) => {
                self.leases_failed = None;
                self.liveness.listed(leases, now);
            }
            (RequestOutcome::Failed(error), RequestTarget::Leases) => {
                self.liveness.failed(matches!(error, SendError::Refused(_)), now);
                if self.leases_failed.replace(error.clone()).as_ref() != Some(error) {
                    self.notices.push(Notice::LeasesUnread(error.clone()));
                }
            }
            (_, RequestTarget::Leases) => self.liveness.failed(false, now),
            (_, RequestTarget::Mirror(_)) => {}
            (answer, RequestTarget::Event(trouble)) => {
                if *answer != RequestOutcome::Written {
                    self.events.failed(&trouble);
                }
                if let RequestOutcome::Failed(error) = answer
                    && self.event_failed.replace(error.clone()).as_ref() != Some(error)
                {
                    self.notices.push(Notice::EventFailed(trouble, error.clone()));
                }
            }
            (RequestOutcome::Failed(error), RequestTarget::Pod(claim)) => {
                self.notices.push(Notice::LookupFailed(claim, error.clone()));
            }
            (RequestOutcome::Failed(error), target) => {
                let is_new = self.retries.failed(target.clone(), error.clone(), now);
                self.notices.push(Notice::WriteFailed { target, error: error.clone(), is_new });
            }
            (RequestOutcome::Outdated(message), target) => {
                self.notices.push(Notice::Outdated(target.clone(), message.clone()));
                self.retries.outdated(target, version, now);
            }
            (outcome, target) => {
                self.retries.passed(&target);
                match (outcome, target) {
                    (RequestOutcome::Written, RequestTarget::Certificate(name, node)) => {
                        self.notices.push(Notice::Approved(name, node));
                    }
                    (RequestOutcome::Written, RequestTarget::Approvals(node)) => drop(self.approved.insert(node)),
                    (RequestOutcome::Written, RequestTarget::Revision(key, RevisionChange::Broken, _)) => {
                        let suspects = self.broken.get_mut(&key).into_iter();
                        suspects.for_each(|of| of.nodes.retain(|_, suspect| suspect.verdict != NodeVerdict::Lost));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The Lease as this process holds it, if it does.
    pub(super) fn lease(&self) -> Option<&LeaseTerm> {
        match &self.leadership {
            Leadership::Leading { lease, .. } => Some(lease),
            Leadership::Following => None,
        }
    }

    /// Whether a write has no answer yet.
    pub(super) fn is_writing(&self) -> bool {
        self.open.values().any(|(target, _)| !is_read(target))
    }

    /// Takes note of what a decision sends.
    pub fn commit(&mut self, decision: ClusterDecision, now: Timestamp) {
        if let Some(memory) = decision.memory {
            self.decided = memory.decided;
            self.passed_over = memory.passed_over;
            self.unmentioned = memory.unmentioned;
            self.older_unavailable = memory.older_unavailable;
            self.delays = memory.delays;
            self.few = memory.few;
            self.left_out = memory.left_out;
            self.halts = memory.halts;
            self.broken = memory.broken;
            self.unread = memory.unread;
            self.awaited = memory.awaited;
            self.lacking = memory.lacking;
            self.events = memory.events;
            self.retries.retain(&memory.wanted);
        }
        for notice in decision.notices {
            if let Notice::NotApproved { name, why, .. } = notice {
                self.not_approved.insert(name, why);
            }
        }
        for request in decision.requests {
            self.sent = self.sent.max(request.number);
            match &request.target {
                RequestTarget::Pod(claim) => self.claims.asked(claim.clone(), now),
                RequestTarget::Mirror(look) => self.liveness.looking_up(look.clone(), now),
                RequestTarget::Leases => self.liveness.asked(now),
                RequestTarget::Status(key) => self.pace.written(key.clone(), now),
                _ => {}
            }
            self.open.insert(request.number, (request.target, request.version));
        }
    }
}

/// Whether a request changes nothing on which decisions depend.
fn is_read(target: &RequestTarget) -> bool {
    use RequestTarget::Event;
    use RequestTarget::Leases;
    use RequestTarget::Mirror;
    use RequestTarget::Pod;
    matches!(target, Pod(_) | Mirror(_) | Leases | Event(_))
}
