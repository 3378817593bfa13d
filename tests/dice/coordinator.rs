//! A coordinator's process: watches that are late, requests that are on their way, a Lease that it may lose.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use daemonlet::core::cluster::decide::decide;
use daemonlet::core::cluster::node_daemons::LeaseTerm;
use daemonlet::core::cluster::observation::ClusterObservation;
use daemonlet::core::cluster::observation::Leadership;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::requests::ClusterRequest;
use daemonlet::core::cluster::requests::CoordinatorReply;
use daemonlet::core::cluster::requests::RequestOutcome;
use daemonlet::core::cluster::requests::RequestTarget;
use daemonlet::core::cluster::snapshot::Change;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::KINDS;
use daemonlet::core::cluster::snapshot::NodeEntry;
use daemonlet::core::cluster::snapshot::WatchedDaemon;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::state::CoordinatorState;
use daemonlet::core::cluster::term_clock::TermClock;
use daemonlet::core::model::MODE_LABEL;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use serde_json::json;

use super::START;
use super::api::Api;
use super::clocks::Given;
use super::given;
use super::lost::Lost;
use super::slots;

/// As the coordinator's Lease has them.
const GIVE_UP: Span = Span::from_secs(7);
const DURATION: Span = Span::from_secs(15);

#[derive(Default)]
pub(super) struct Process {
    /// Another for each process.
    identity: usize,
    state: CoordinatorState,
    snapshot: Arc<ClusterSnapshot>,
    /// How much of the API server's log its watches have delivered.
    seen: usize,
    held: Option<(LeaseTerm, Timestamp)>,
    running: Option<LeaseTerm>,
    /// Whether the watches of this term have begun.
    is_listed: bool,
    term: u64,
    /// Requests on their way.
    sent: VecDeque<Sent>,
    replies: Vec<CoordinatorReply>,
    /// Stopped in its tracks until then; what it was about to send goes out when it wakes.
    pub(super) frozen: Timestamp,
    /// It is stopped when it is about to send an approval; what it was about to send goes out when it wakes.
    pub(super) trap: Trap,
    /// Nodes that are deleted while they are not well, as it sees that.
    pub(super) lost: Lost,
    /// By how much its clock is ahead.
    pub(super) clock: Span,
    /// The time of its term, and when that began.
    time: TermClock,
    began: Timestamp,
    /// A law that its last pass broke.
    pub(super) broken: Option<String>,
}

/// A request on its way.
#[derive(Clone, Debug)]
struct Sent {
    /// The term in which it was decided.
    term: u64,
    request: ClusterRequest,
    /// Whether the DaemonSet was let go, as far as the process had read: then nothing of it is claimed.
    is_let_go: bool,
}

/// Whether a process is stopped between its look at the Lease and a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trap {
    #[default]
    None,
    /// At the next approval.
    Set,
    /// It was: the next write is not looked at the Lease for.
    Sprung,
}

impl Process {
    /// One that makes its first step then.
    pub(super) fn new(identity: usize, frozen: Timestamp) -> Self {
        Self { identity, frozen, ..Self::default() }
    }

    /// Whether it is stopped here and now.
    pub(super) fn springs(&mut self) -> bool {
        let is_approval = |sent: &Sent| matches!(sent.request.target, RequestTarget::Approvals(_));
        let springs = self.trap == Trap::Set && self.sent.front().is_some_and(is_approval);
        if springs {
            self.trap = Trap::Sprung;
        }
        springs
    }

    /// Whether it takes the agent of a node for dead.
    pub(super) fn knows_dead(&self, node: &str) -> bool {
        self.running.is_some() && self.state.liveness.dead_since(node).is_some()
    }

    /// Takes or renews the Lease, if it can.
    pub(super) fn renew(&mut self, api: &mut Api, now: Timestamp) {
        let (lease, me) = (&mut api.lease, self.identity);
        if lease.holder != Some(me) {
            if lease.holder.is_some() && now - lease.renewed < DURATION {
                self.held = None;
                return;
            }
            lease.holder = Some(me);
            lease.transitions += 1;
        }
        lease.renewed = now;
        self.held = Some((lease.term(), now));
    }

    /// It is stopped in order, and gives the Lease back.
    pub(super) fn stop(&self, api: &mut Api) {
        api.lease.holder.take_if(|holder| *holder == self.identity);
    }

    /// The watches deliver up to so many changes.
    pub(super) fn watch(&mut self, api: &Api, most: usize, now: Timestamp) {
        if self.running.is_some() && api.is_read(now) {
            self.list(api);
            let news = api.log.iter().skip(self.seen).take(most).cloned();
            self.seen += news.map(|change| Arc::make_mut(&mut self.snapshot).take(as_watched(change))).count();
            self.read(api);
        }
    }

    /// The watches begin with a list.
    fn list(&mut self, api: &Api) {
        if std::mem::replace(&mut self.is_listed, true) {
            return;
        }
        let snapshot = Arc::make_mut(&mut self.snapshot);
        for kind in KINDS.into_iter().filter(|kind| api.serves(*kind)) {
            for object in api.list(kind) {
                snapshot.take(as_watched(Change::Present(kind, Box::new(object.clone()), true)));
            }
            snapshot.take(Change::Complete(kind));
        }
        self.seen = api.log.len();
    }

    /// Reads what is not known whole and matters all the same.
    fn read(&mut self, api: &Api) {
        let unread: Vec<_> = self.snapshot.unread().cloned().collect();
        for (kind, key) in unread {
            if let Some(object) = api.get(kind, &key) {
                Arc::make_mut(&mut self.snapshot).take(Change::Read(kind, Box::new(object.clone())));
            }
        }
    }

    /// One pass.
    pub(super) fn pass(&mut self, api: &mut Api, (settings, budget): (&Settings, usize), now: Timestamp) {
        let held = self.held.as_ref().filter(|(_, renewed)| now < *renewed + GIVE_UP).map(|(term, _)| term.clone());
        if held != self.running {
            self.term += 1;
            (self.time, self.began) = (TermClock::default(), now);
            let mut snapshot = ClusterSnapshot::default();
            self.replies.clear();
            self.lost = Lost::default();
            if held.is_some() {
                KINDS.into_iter().for_each(|kind| _ = snapshot.take(Change::Begin(kind)));
            }
            self.snapshot = Arc::new(snapshot);
            self.running = held;
            self.is_listed = self.running.is_none();
            if api.is_read(now) {
                self.list(api);
            }
        }
        let it_is = now;
        let (now, ahead) = self.time.read(it_is - START, it_is + self.clock);
        Arc::make_mut(&mut self.snapshot).heed_clocks(now);
        let leadership = match &self.running {
            Some(lease) => Leadership::Leading { term: self.term, lease: lease.clone() },
            None => Leadership::Following,
        };
        let observation = ClusterObservation {
            now,
            ahead,
            leadership,
            snapshot: Arc::clone(&self.snapshot),
            unreadable: Vec::new(),
            watches: BTreeMap::new(),
            replies: std::mem::take(&mut self.replies),
        };
        self.state.absorb(&observation);
        let decision = decide(&observation, &self.state, settings);
        let view = &observation.snapshot;
        self.lost.look(view, decision.memory.is_some(), now);
        let lost = self.lost.given_against(view, &decision.requests);
        let against = || given::given_against(view, &decision.requests, now + ahead);
        let is_dead = |node: &str| self.state.liveness.dead_since(node).is_some();
        let status = || given::status_against(view, &decision.requests, is_dead, now + ahead);
        let beyond = slots::given_beyond(view, &decision.requests, (budget, now), is_dead);
        let stepped = || given::stepped_against(view, &decision.requests, is_dead, now);
        self.broken = beyond.or(lost).or_else(against).or_else(status).or_else(stepped);
        let given = Given { at: it_is.in_whole_seconds(), ahead: now - it_is, began: self.began };
        let name = |entry: &NodeEntry| Some(entry.node.as_ref()?.view.name.clone());
        let new = slots::new(view, &decision.requests).filter_map(|(entry, new)| Some((name(entry)?, new.approved_at)));
        api.given.extend(new.map(|of| (of, given)));
        let mode = |daemon: &WatchedDaemon| daemon.daemon_set.labels.get(MODE_LABEL).cloned();
        let is_gone = |daemon: &WatchedDaemon| mode(daemon).is_none_or(|mode| mode == "bootstrap");
        let (term, is_let_go) = (self.term, view.daemons.values().all(is_gone));
        self.sent.extend(decision.requests.iter().cloned().map(|request| Sent { term, request, is_let_go }));
        self.state.commit(decision, now);
    }

    /// The oldest request on its way reaches the API server. `checks`: whether it is still checked that the Lease is
    /// held, which a process that is stopped right then does not.
    pub(super) fn deliver(&mut self, api: &mut Api, now: Timestamp, checks: bool) -> bool {
        let Some(Sent { term, request, is_let_go }) = self.sent.pop_front() else { return false };
        let holds = self.held.as_ref().is_some_and(|(_, renewed)| now < *renewed + GIVE_UP);
        let (answer, change) = match holds || !checks {
            true => api.carry_out(request.call, now),
            false => (RequestOutcome::NotSent, None),
        };
        // It was taken back after that was decided.
        api.claim_lost.take_if(|_| is_let_go);
        if term == self.term {
            if let Some(change) = change {
                Arc::make_mut(&mut self.snapshot).take(change);
            }
            self.replies.push(CoordinatorReply { number: request.number, answer });
        }
        true
    }
}

/// As watches deliver it: of a ControllerRevision the metadata alone.
fn as_watched(mut change: Change) -> Change {
    if let Change::Present(WatchedKind::Revisions, object, _) = &mut change {
        **object = json!({"metadata": object["metadata"]});
    }
    change
}
