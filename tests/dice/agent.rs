//! A node and its agent, as far as rollouts look at them.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::json;

use daemonlet::core::cluster::history;
use daemonlet::core::cluster::node_daemons::Approval;
use daemonlet::core::cluster::node_daemons::LeaseTerm;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use daemonlet::core::update_trigger::UpdateTrigger;

use super::KEY;
use super::api::Api;

mod ailment;
mod beside;
mod definition;
mod placed;
mod report;

pub(super) use ailment::Ailment;
use beside::Beside;
pub(super) use beside::Running;
use definition::Definition;
use definition::definition;
pub(super) use definition::hash_of;
use definition::is_refused;
pub(super) use definition::needs_approval;
use definition::status;
use placed::Placed;
pub(super) use placed::ROLE;

/// A new instance is ready after this, if it ever is.
const READY_AFTER: Span = Span::from_secs(3);
/// One that is not ready by then has failed.
const DEADLINE: Span = Span::from_secs(60);

/// A coordinator has listed the Leases after this, and has waited for so long.
const LOOKED_AFTER: Span = Span::from_secs(90);
/// What is written has reached a coordinator after this, unless that is stopped.
pub(super) const KNOWN_AFTER: Span = Span::from_secs(10);
/// The same where that may have been stopped, as long as it keeps the Lease.
pub(super) const SEEN_AFTER: Span = Span::from_secs(40);

/// A node whose pod broke after its agent died: no report says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken {
    since: Timestamp,
    /// Since when a coordinator knows that its agent is dead.
    pub(super) known: Option<Timestamp>,
}

/// What a report is made from.
type ReportedFields = (bool, Vec<(String, Timestamp, Option<Timestamp>, bool)>, [Option<String>; 5]);

pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) running: Option<Running>,
    beside: Option<Beside>,
    /// What its Node is and has been, and what its agent has read of it.
    pub(super) placed: Placed,
    previous: Option<String>,
    failed: Option<String>,
    replacing: Option<String>,
    /// What it replaces at its next boot by, and whether that never gets ready.
    staged: Option<(String, bool)>,
    /// Until when it is drained, and an operator sets what is to be set on it.
    pub(super) triggered: Timestamp,
    /// The agent makes no step until then.
    pub(super) dead: Timestamp,
    pub(super) broken: Option<Broken>,
    /// What is wrong with it, and with which revision.
    ailment: Option<(Ailment, String)>,
    /// When its agent last said that a revision needs an object.
    lacked: Timestamp,
    /// The NodeDaemons that it has read.
    read: Arc<Value>,
    /// The DaemonSet that it has read, and what of it counts.
    seen: Arc<Value>,
    daemon: Option<Definition>,
    /// What its last report was made from, while that has not been changed since.
    reported: Option<ReportedFields>,
    /// Who gave what it has just claimed.
    pub(super) claimed_of: Option<LeaseTerm>,
    /// How often it has made its NodeDaemons, and when it did last.
    reports: usize,
    pub(super) made: Timestamp,
    /// By how much its clock is ahead.
    pub(super) clock: Span,
}

impl Node {
    pub(super) fn new(name: String, number: usize) -> Self {
        let (running, previous, failed, replacing) = (None, None, None, None);
        let uid = format!("n{number}");
        let (staged, triggered, dead) = (None, Timestamp::MIN, Timestamp::MIN);
        let (read, seen, daemon, claimed_of) = (Arc::default(), Arc::default(), None, None);
        let (reports, reported) = (0, None);
        Self {
            name,
            uid,
            running,
            beside: None,
            placed: Placed::default(),
            previous,
            failed,
            replacing,
            staged,
            triggered,
            dead,
            broken: None,
            ailment: None,
            lacked: Timestamp::MIN,
            read,
            seen,
            daemon,
            reported,
            claimed_of,
            reports,
            made: Timestamp::MIN,
            clock: Span::ZERO,
        }
    }

    /// Whether coordinators took it for a node that can take what is approved, when that was given.
    pub(super) fn can_take(&self, approved_at: Timestamp) -> bool {
        let lacks = matches!(self.ailment, Some((Ailment::Lacks, _)));
        self.running.is_some() && self.dead + SEEN_AFTER <= approved_at && !lacks
    }

    /// Whether its agent runs the DaemonSet.
    fn is_ours(&self) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| daemon.is_ours)
    }

    /// It reads the DaemonSet. Of a definition that is refused nothing counts: what it read before stands.
    fn read_daemon_set(&mut self, api: &Api) -> Option<()> {
        let read = api.shared(WatchedKind::DaemonSets, &ObjectKey::new(KEY.0, KEY.1))?;
        if !Arc::ptr_eq(read, &self.seen) {
            self.seen = Arc::clone(read);
            match &mut self.daemon {
                known if !is_refused(read) => *known = Some(Definition::of(read)),
                Some(known) => known.status = status(read, known.generation),
                None => {}
            }
        }
        Some(())
    }

    /// It boots: what is staged takes the place of what ran, and no approval is needed. Gives the revision.
    pub(super) fn boot(&mut self, now: Timestamp) -> Option<String> {
        let (hash, is_bad) = self.staged.take()?;
        let old = self.running.take()?;
        (self.previous, self.beside) = (Some(old.hash), None);
        let is_bad = is_bad || self.is_spoilt(&hash);
        self.running = Some(Running::new(hash.clone(), is_bad, now));
        Some(hash)
    }

    /// Its agent dies until then, and its pod breaks, if that is known to have been ready for a while. Gives whether it is.
    pub(super) fn breaks(&mut self, until: Timestamp, now: Timestamp) -> bool {
        let is_known = |running: &&mut Running| running.reported_ready.is_some_and(|since| since + KNOWN_AFTER <= now);
        let is_alone = self.beside.is_none() && self.dead <= now;
        let Some(running) = self.running.as_mut().filter(is_known).filter(|_| is_alone) else { return false };
        running.ready = None;
        (self.dead, self.broken) = (until, Some(Broken { since: now, known: None }));
        true
    }

    /// A coordinator takes the agent for dead now. Gives whether the node is broken.
    pub(super) fn is_known_dead(&mut self, now: Timestamp) -> bool {
        // What one says that has not looked since is of an earlier death.
        let broken = self.broken.as_mut().filter(|broken| broken.since + LOOKED_AFTER <= now);
        broken.map(|broken| broken.known.get_or_insert(now)).is_some()
    }

    /// Whether a revision has failed on it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The revision that it claims.
    fn claim(&self) -> Option<&String> {
        self.replacing.as_ref().or(self.staged.as_ref().map(|(hash, _)| hash))
    }

    /// Whether it has, or may take, the revision by an approval that waits for a trigger.
    pub(super) fn may_take(&self, api: &Api, hash: &str) -> bool {
        let written = api.get(WatchedKind::NodeDaemons, &ObjectKey::new("", &self.name));
        let is_approved = |it: &&Value| it["spec"]["approvals"][0]["revision"] == hash;
        self.claim().is_some_and(|claim| claim == hash) || written.filter(is_approved).is_some()
    }

    /// One step of the agent: what runs gets ready, a first instance starts, an approval is read, claimed, carried out.
    /// Gives the revision that replaced another.
    pub(super) fn step(&mut self, api: &mut Api, now: Timestamp, reads: bool) -> Option<String> {
        api.agents.insert(self.name.clone(), (now + self.clock).to_string());
        self.broken = None;
        if matches!(self.ailment, Some((Ailment::Lacks, _))) {
            self.lacked = now;
        }
        let key = ObjectKey::new("", &self.name);
        let serves = api.serves(WatchedKind::NodeDaemons);
        if api.get(WatchedKind::NodeDaemons, &key).is_none() {
            self.note_reported(None);
            self.read = Arc::default();
            self.reported = None;
            if serves {
                self.reports += 1;
                self.made = now;
                let uid = format!("{}-{}", self.uid, self.reports);
                let new =
                    json!({"metadata": {"name": self.name, "uid": uid}, "spec": {}, "status": {"agentVersion": "1"}});
                api.put(WatchedKind::NodeDaemons, new);
            }
        }
        // Its watches are late, each by itself.
        if reads || self.running.is_none() {
            self.read_daemon_set(api)?;
            self.placed.read(api, &self.name);
        }
        if !self.is_ours() {
            (self.previous, self.failed) = (None, None);
        }
        if !self.is_ours() || self.placed.is_read_elsewhere() {
            (self.running, self.beside, self.replacing, self.staged) = (None, None, None, None);
            self.report(api, now, reads);
            return None;
        }
        let had_claimed = self.replacing.is_some();
        let daemon = self.daemon.take()?;
        let replaced = self.follow(api, &daemon, had_claimed, now);
        self.daemon = Some(daemon);
        self.report(api, now, reads);
        replaced
    }

    /// What it does by what it has read. Gives the revision that replaced another.
    fn follow(&mut self, api: &mut Api, daemon: &Definition, had_claimed: bool, now: Timestamp) -> Option<String> {
        let key = ObjectKey::new("", &self.name);
        let (wanted, is_bad) = (daemon.hash.as_str(), daemon.is_bad);
        if let Some(running) = &mut self.running {
            if running.ready.is_none() && !running.is_bad && running.created + READY_AFTER <= now {
                running.ready = Some(now);
            }
            let waits = matches!(&self.ailment, Some((Ailment::Waits, revision)) if *revision == running.hash);
            if running.ready.is_none() && running.created + DEADLINE <= now && !waits {
                self.failed = Some(running.hash.clone());
            }
            // It ends with the old instance, which is gone by now.
            if self.replacing.as_ref() == Some(&running.hash) {
                self.replacing = None;
            }
        } else if !daemon.needs_approval() && !self.placed.is_read_tainted() {
            self.running = self.first(api, daemon, now);
        }
        let mut replaced = None;
        let approval = self.approval(daemon);
        let given = approval.as_ref().and_then(|approval| api.given_at(&self.name, &approval.approved_at));
        let target = approval.as_ref().map(|approval| approval.revision.clone());
        let is_new = target.as_ref().is_some_and(|target| self.running.as_ref().is_none_or(|r| r.hash != *target));
        let is_wanted = target.as_deref() == Some(wanted);
        let is_back = target.is_some() && target == self.previous && !daemon.status.is_behind;
        let is_known = is_wanted || is_back;
        self.keep_one(target.as_deref().filter(|_| is_back).unwrap_or(wanted), daemon.surges, now);
        // A node that its taints keep from new instances goes back all the same.
        let is_misplaced = self.placed.is_read_tainted() && !is_back;
        let lacks = |revision: &String| self.running.is_some() && self.ailment(revision) == Some(Ailment::Lacks);
        let is_halted = daemon.status.halted.is_some() && is_wanted;
        let is_stopped = daemon.is_paused || is_halted || is_misplaced || target.as_ref().is_some_and(lacks);
        let when = approval.as_ref().and_then(|approval| approval.when);
        let is_for_boot = when == Some(UpdateTrigger::Boot);
        if is_stopped || !is_for_boot || self.staged.as_ref().is_some_and(|(hash, _)| target.as_ref() != Some(hash)) {
            self.staged = None;
        }
        match approval {
            Some(approval) if is_new && is_known && self.claim() != Some(&approval.revision) => {
                let holds = approval.lease.as_ref().is_some_and(|lease| api.lease.is_held(lease));
                if holds && !is_stopped && (when.is_none() || is_for_boot || now < self.triggered) {
                    let field = if is_for_boot { "staged" } else { "replacing" };
                    let claim = approval.revision;
                    let mut status = self.status(true);
                    self.reported = None;
                    status["daemons"][0][field] = json!(claim);
                    let read = &self.read["metadata"];
                    let metadata = json!({"uid": read["uid"], "resourceVersion": read["resourceVersion"]});
                    let patch = json!({"metadata": metadata, "status": status});
                    if let Ok(read) = api.patch(WatchedKind::NodeDaemons, &key, &patch) {
                        self.read = read;
                        self.claimed_of = approval.lease;
                        match is_for_boot {
                            true => self.staged = Some((claim.clone(), is_bad && claim.as_str() == wanted)),
                            false => self.replacing = Some(claim),
                        }
                    }
                }
            }
            _ => {}
        }
        // What is wanted no more is given back, and what cannot start.
        let lacks = |claim: &String| self.running.is_some() && self.ailment(claim) == Some(Ailment::Lacks);
        if self.replacing.as_ref().is_some_and(lacks) || is_misplaced {
            self.replacing = None;
        }
        self.replacing.take_if(|claim| claim.as_str() != wanted && !(is_back && target.as_ref() == Some(claim)));
        // The old one ends first.
        if let Some(target) = self.replacing.clone().filter(|_| had_claimed || self.running.is_none())
            && self.running.as_ref().is_none_or(|old| old.hash != target)
            && self.ailment(&target) != Some(Ailment::Claims)
        {
            let is_bad = is_bad && target == wanted || self.is_spoilt(&target);
            // What was not known to be available when it was approved costs nothing.
            let old = self.running.take();
            let ready = old.as_ref().and_then(|old| old.reported_ready);
            let is_long = |at| ready.is_some_and(|ready| ready + api.min_ready.available_after(at) <= at);
            let was_available = |at| is_long(at) && self.placed.was_known_ready(at);
            let is_disruption = when.is_none() && given.is_some_and(|given| was_available(given.at));
            let is_approved_install = old.is_none();
            let new = Running::new(target.clone(), is_bad, now);
            self.running = Some(Running { is_disruption, is_approved_install, given, ..new });
            if let Some(old) = old {
                self.previous = Some(old.hash.clone());
                self.beside = daemon.surges.then_some(Beside { running: old, is_ending: false });
                replaced = Some(target);
            }
        }
        replaced
    }

    /// A first instance: of the released revision while nodes are kept on it. Where its ControllerRevision is gone, nothing
    /// while the newer one is paused or halted (R40).
    fn first(&self, api: &Api, daemon: &Definition, now: Timestamp) -> Option<Running> {
        let status = &daemon.status;
        let is_stopped = daemon.is_paused || status.halted.is_some();
        let is_held = status.is_held || status.is_behind || is_stopped;
        let kept = status.released.as_ref().filter(|released| is_held && released.hash != daemon.hash);
        let released = kept.and_then(|released| {
            let revision = api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &released.name))?;
            history::template(&revision["data"])
        });
        if kept.is_some() && released.is_none() && is_stopped {
            return None;
        }
        let (hash, is_bad) = definition(released.as_ref().unwrap_or(&daemon.template));
        let is_bad = is_bad || self.is_spoilt(&hash);
        Some(Running::new(hash, is_bad, now))
    }

    fn approval(&self, daemon: &Definition) -> Option<Approval> {
        let approvals = self.read["spec"].list_at("approvals").iter();
        let mut approvals = approvals.filter_map(|approval| Approval::deserialize(approval).ok());
        approvals.find(|approval| approval.uid == daemon.uid)
    }
}
