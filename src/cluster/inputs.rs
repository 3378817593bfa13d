//! What the coordinator observes.
//!
//! Owns the watches, which run while the Lease is held, and the snapshot that they fill. Its one `await` is the only
//! one between two decisions; its clock is theirs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::observation::ClusterObservation;
use crate::core::cluster::observation::Leadership;
use crate::core::cluster::observation::WatchHealth;
use crate::core::cluster::requests::CoordinatorReply;
use crate::core::cluster::snapshot::Change;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::KINDS;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::cluster::term_clock::TermClock;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::Selection;

use super::CoordinatorOptions;
use super::lease::Held;
use super::watch;

/// How long changes are gathered before a pass: a burst of them is one.
const GATHER: Duration = Duration::from_millis(20);
/// A pass is made at least this often, whatever happens.
const PERIOD: Duration = Duration::from_secs(30);
/// Objects that are read whole at one time: each may have a megabyte.
const READS: usize = 8;
/// Of these, objects of namespaces that are not trusted.
const TENANT_READS: usize = 6;

/// A GET that fails as one did within this time says nothing new.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Something that happened.
pub(super) enum ClusterEvent {
    /// The Lease is held for a while, or is not.
    Lease(Option<Held>),
    /// In this term: a watch brought a change.
    Changed(u64, Change),
    /// In this term: a watch failed; with the message, if it differs from the last.
    Unreadable(u64, WatchedKind, Option<String>),
    /// In this term: an object of this kind could not be read.
    ReadFailed(u64, WatchedKind, ApiFailure),
    /// A request ended; with what it shows of the object.
    Replied(u64, CoordinatorReply, Option<Change>),
    /// In this term: an object was read, or could not be.
    Read(u64, (WatchedKind, ObjectKey), Option<Change>),
}

/// How the last GET of each kind that failed did so, and when.
#[derive(Default)]
struct FailedReads(BTreeMap<WatchedKind, (FailureKind, Instant)>);

impl FailedReads {
    /// Takes one more, and gives whether it is to be logged: messages differ from object to object, and all are tried
    /// again and again.
    fn is_news(&mut self, kind: WatchedKind, failure: FailureKind, now: Instant) -> bool {
        let before = self.0.insert(kind, (failure, now));
        before.is_none_or(|(before, at)| before != failure || now - at > KNOWN_FOR)
    }
}

/// Where events are sent.
pub(super) type ClusterEvents = mpsc::Sender<ClusterEvent>;

/// What happens, gathered into observations.
pub(super) struct ClusterInputs {
    client: kube::Client,
    selection: Selection,
    /// What is being read whole.
    reading: BTreeSet<(WatchedKind, ObjectKey)>,
    failed_reads: FailedReads,
    /// Whether ControllerRevisions are watched already.
    follows_revisions: bool,
    options: CoordinatorOptions,
    received: mpsc::Receiver<ClusterEvent>,
    events: ClusterEvents,
    snapshot: Arc<ClusterSnapshot>,
    watches: BTreeMap<WatchedKind, WatchHealth>,
    held: Option<Held>,
    term: u64,
    /// What runs while the Lease is held; it ends when this is dropped.
    running: Option<(LeaseTerm, JoinSet<()>)>,
    /// When the last observation was made, by the steady clock and by that of the term.
    made: (Instant, Timestamp),
    /// When this began.
    began: Instant,
    clock: TermClock,
    /// How far the wall clock was ahead of the term's then; negative: behind.
    ahead: Span,
}

impl ClusterInputs {
    /// The inputs of a coordinator that does not hold the Lease yet, and where to send events. `client`: reads what is
    /// of the `selection`.
    pub(super) fn new(
        options: &CoordinatorOptions,
        client: kube::Client,
        selection: Selection,
    ) -> (Self, ClusterEvents) {
        let (events, received) = mpsc::channel(1024);
        let inputs = Self {
            client,
            selection,
            reading: BTreeSet::new(),
            failed_reads: FailedReads::default(),
            follows_revisions: false,
            options: options.clone(),
            received,
            events: events.clone(),
            snapshot: Arc::default(),
            watches: BTreeMap::new(),
            held: None,
            term: 0,
            running: None,
            made: (Instant::now(), clock::now()),
            began: Instant::now(),
            clock: TermClock::default(),
            ahead: Span::ZERO,
        };
        (inputs, events)
    }

    /// Term and Lease of the last observation: requests may be sent for as long as the Lease is held.
    pub(super) fn term(&self) -> (u64, Option<Held>) {
        (self.term, self.held.clone())
    }

    /// Waits until something happens, at most until `next_look`, and gathers what happens with it.
    pub(super) async fn collect(&mut self, next_look: Option<Timestamp>) -> ClusterObservation {
        let wait = next_look.map_or(PERIOD, |at| (at - self.made.1).to_duration().min(PERIOD));
        let at_last = self.made.0 + wait;
        let mut until = self.until(at_last);
        let (mut replies, mut unreadable) = (Vec::new(), Vec::new());
        let (mut from_watches, mut unread) = (BTreeMap::new(), BTreeSet::new());
        let mut is_first = true;
        while let Ok(Some(event)) = tokio::time::timeout_at(until, self.received.recv()).await {
            let mut is_news = true;
            match event {
                ClusterEvent::Lease(held) => {
                    let term = |held: &Option<Held>| held.as_ref().map(|held| held.term.clone());
                    // That it was renewed decides nothing.
                    is_news = term(&held) != term(&self.held);
                    self.held = held;
                    if is_first {
                        until = self.until(at_last);
                    }
                }
                ClusterEvent::Changed(term, change) if term == self.term => {
                    from_watches.insert(change.kind(), false);
                    is_news = Arc::make_mut(&mut self.snapshot).take(change);
                }
                ClusterEvent::Unreadable(term, kind, why) if term == self.term => {
                    from_watches.insert(kind, true);
                    unreadable.extend(why.map(|why| (kind, why)));
                }
                ClusterEvent::ReadFailed(term, kind, failure) if term == self.term => {
                    unread.insert(kind);
                    is_news = self.failed_reads.is_news(kind, failure.kind, Instant::now());
                    unreadable.extend(is_news.then(|| (kind, watch::unread(kind, &failure))));
                }
                ClusterEvent::Replied(term, reply, change) if term == self.term => {
                    if let Some(change) = change {
                        Arc::make_mut(&mut self.snapshot).take(change);
                    }
                    replies.push(reply);
                }
                ClusterEvent::Read(term, of, change) if term == self.term => {
                    self.reading.remove(&of);
                    is_news = change.is_some();
                    change.map(|change| Arc::make_mut(&mut self.snapshot).take(change));
                    // There may be thousands: the next ones do not wait for a pass.
                    self.read_outlines();
                }
                // Events of an earlier term are ignored.
                ClusterEvent::Changed(..)
                | ClusterEvent::Unreadable(..)
                | ClusterEvent::ReadFailed(..)
                | ClusterEvent::Replied(..)
                | ClusterEvent::Read(..) => is_news = false,
            }
            if is_news && std::mem::take(&mut is_first) {
                until = Instant::now() + GATHER;
            }
        }
        self.read_clocks();
        let now = self.made.1;
        for (kind, has_failed) in from_watches {
            let progress = self.watches.entry(kind).or_default();
            match has_failed {
                true => progress.failed = Some(now),
                false => progress.last_event = Some(now),
            }
        }
        for kind in unread {
            self.watches.entry(kind).or_default().failed = Some(now);
        }
        self.follow_the_lease();
        self.follow_revisions();
        self.read_outlines();
        // It may be that of another term.
        let (now, ahead) = (self.made.1, self.ahead);
        Arc::make_mut(&mut self.snapshot).heed_clocks(now);
        let leadership = match &self.running {
            Some((lease, _)) => Leadership::Leading { term: self.term, lease: lease.clone() },
            None => Leadership::Following,
        };
        let (snapshot, watches) = (Arc::clone(&self.snapshot), self.watches.clone());
        ClusterObservation { now, ahead, leadership, snapshot, unreadable, watches, replies }
    }

    fn read_clocks(&mut self) {
        let now = Instant::now();
        let (at, ahead) = self.clock.read(Span::from(now - self.began), clock::now());
        (self.made, self.ahead) = ((now, at), ahead);
    }

    /// When the next observation is made if nothing happens: `at_last`, or when the Lease ends.
    fn until(&self, at_last: Instant) -> Instant {
        let held = self.held.as_ref().filter(|_| self.running.is_some());
        held.map_or(at_last, |held| at_last.min(held.until()))
    }

    /// Reads the objects of which only an outline is known and that are needed whole.
    fn read_outlines(&mut self) {
        let Some((_, running)) = &mut self.running else { return };
        while running.try_join_next().is_some() {}
        let is_of_tenant = |(_, key): &(WatchedKind, ObjectKey)| !self.snapshot.trusts(&key.namespace);
        let mut of_tenants = self.reading.iter().filter(|of| is_of_tenant(of)).count();
        for of in self.snapshot.unread() {
            if self.reading.len() >= READS || is_of_tenant(of) && of_tenants >= TENANT_READS {
                break;
            }
            if self.reading.insert(of.clone()) {
                of_tenants += usize::from(is_of_tenant(of));
                if of.0 == WatchedKind::DaemonSets {
                    self.selection.add(&of.1);
                }
                running.spawn(watch::read(of.clone(), self.client.clone(), self.term, self.events.clone()));
            }
        }
    }

    /// Starts to watch ControllerRevisions once the DaemonSets are known: whose they are decides how much is kept of them.
    fn follow_revisions(&mut self) {
        let Some((_, running)) = &mut self.running else { return };
        if !self.follows_revisions && self.snapshot.is_listed(WatchedKind::DaemonSets) {
            self.follows_revisions = true;
            running.spawn(watch::follow(WatchedKind::Revisions, self.client.clone(), self.term, self.events.clone()));
        }
    }

    /// Starts watching when the Lease is acquired, and stops when it is lost.
    fn follow_the_lease(&mut self) {
        let held = self.held.as_ref().filter(|held| self.made.0 < held.until());
        let held = held.map(|held| held.term.clone());
        if held.as_ref() == self.running.as_ref().map(|(lease, _)| lease) {
            return;
        }
        self.clock = TermClock::default();
        self.read_clocks();
        let CoordinatorOptions { lease_name: lease, identity, settings, approve_nodes, trusted_namespaces, .. } =
            &self.options;
        self.term += 1;
        let snapshot = ClusterSnapshot::new(settings.default_node_selector.clone());
        self.snapshot = Arc::new(snapshot.trusting(trusted_namespaces.clone()));
        self.running = None;
        self.watches.clear();
        self.reading.clear();
        self.failed_reads = FailedReads::default();
        self.follows_revisions = false;
        self.selection.retain(|_| false);
        let Some(held) = held else {
            tracing::warn!(lease, "{identity} does not hold the Lease any more");
            return;
        };
        tracing::info!(lease, "{identity} coordinates now");
        let more = approve_nodes.then_some(WatchedKind::CertificateRequests);
        let kinds = KINDS.into_iter().filter(|kind| *kind != WatchedKind::Revisions).chain(more);
        let watches = watch::start(kinds, &self.client, self.term, &self.events);
        self.running = Some((held, watches));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_fail_one_after_the_other_are_logged_once() {
        let (mut failed, began) = (FailedReads::default(), Instant::now());
        let mut at =
            |seconds, failure| failed.is_news(WatchedKind::Revisions, failure, began + Duration::from_secs(seconds));
        assert!(at(0, FailureKind::Forbidden));
        assert!(!at(0, FailureKind::Forbidden) && !at(50, FailureKind::Forbidden) && !at(100, FailureKind::Forbidden));
        assert!(at(101, FailureKind::Timeout), "it fails otherwise");
        assert!(!at(102, FailureKind::Timeout) && at(163, FailureKind::Timeout), "it had been read meanwhile");
    }
}
