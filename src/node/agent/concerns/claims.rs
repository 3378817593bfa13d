//! This node's NodeDaemons: the coordinator's approvals read, the agent's status written.
//!
//! Owns what the agent reports of this node's daemons to the cluster, and when: on change, at most once a second;
//! news that no rollout waits for a little later; a claim at once. A claim is written on the very resource version
//! whose approval was read, here or by the request that writes it, so that a withdrawal and a claim cannot both go
//! through. A write contains only what changed
//! if the agent's last write went through and is what was read last; otherwise it contains the whole status. Without the
//! resource there is nothing to do.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::Precondition;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::core::identity;
use crate::core::model::DaemonSet;
use crate::core::model::NodeView;
use crate::core::plan::Permission;
use crate::core::plan::Withheld;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;
use crate::node::api::FailureKind;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

mod news;
mod status;
mod terms;

pub(in crate::node::agent) use status::status;

/// Between two writes of the status.
const PERIOD: Span = Span::from_secs(1);
/// News that no rollout waits for is written up to so long after it became known, at another moment on each node: often
/// more important news follows and takes it along.
const PATIENCE: Span = Span::from_secs(6);
/// After a write that failed.
const AGAIN: Span = Span::from_secs(5);
/// After a write that was taken and did not come back as it was sent: the resource in the cluster may be older
/// than this agent and drop what it does not know.
const INSIST: Span = Span::from_secs(60);

/// This node's NodeDaemons as last seen, and what is being written.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Claims {
    /// The store's version of what is held here.
    version: u64,
    uid: String,
    resource_version: String,
    spec: Spec,
    live: Status,
    /// Whether the object was there.
    exists: bool,
    /// Whether this process has read it, or that it is not there.
    #[serde(default)]
    is_read: bool,
    /// Whether the API server does not serve the resource, or does not let it be read.
    #[serde(default)]
    is_unserved: bool,
    /// Whether the API server drops which overlays apply.
    #[serde(default)]
    drops_overlays: bool,
    /// The status that is to be written.
    wanted: Status,
    /// Not before.
    next: Timestamp,
    /// Not before, unless a rollout or a reader waits for it; `None` while there is nothing to report.
    patient: Option<Timestamp>,
    /// Whether a write is under way.
    writing: bool,
    /// Whether the last one failed, other than by a conflict.
    failed: bool,
    /// The resource version of the last claim.
    claimed_on: String,
    /// What is being written.
    sent: Option<Status>,
    /// Whether only its changes are.
    #[serde(default)]
    sent_changes: bool,
    /// What was last taken by the API server.
    accepted: Option<Status>,
    /// When that is written again, if it does not show.
    insist_at: Timestamp,
    /// Claims that were given back, or may have been, and are still read.
    returned: BTreeSet<Claim>,
    #[serde(default)]
    terms: terms::Terms,
}

/// Namespace and name of a DaemonSet, and the revision that is claimed.
type Claim = (String, String, String);

fn holds(status: &Status, (namespace, name, revision): &Claim) -> bool {
    let mut of_it = status.daemons.iter().filter(|d| d.namespace == *namespace && d.name == *name);
    of_it.any(|d| d.claim() == Some(revision))
}

fn without_overlays(status: &Status) -> Status {
    let mut status = status.clone();
    for daemon in &mut status.daemons {
        daemon.overlays.clear();
        daemon.instances.iter_mut().for_each(|instance| instance.overlays.clear());
    }
    status
}

impl Claims {
    /// Takes what the API shows.
    fn follow(&mut self, api: &Snapshot) {
        let Some(entry) = &api.node_daemons else {
            self.exists = false;
            self.version = 0;
            (self.spec, self.live, self.returned) = Default::default();
            return;
        };
        if self.exists && self.version == entry.version {
            return;
        }
        let text = |name: &str| entry.value.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let part = |name: &str| entry.value.get(name).cloned().unwrap_or_default();
        self.exists = true;
        self.version = entry.version;
        self.uid = text("/metadata/uid");
        self.resource_version = text("/metadata/resourceVersion");
        self.spec = serde_json::from_value(part("spec")).unwrap_or_default();
        self.live = serde_json::from_value(part("status")).unwrap_or_default();
        self.returned.retain(|claim| holds(&self.live, claim));
    }

    /// Notes as of `now` whether what the API server has taken came back without overlays.
    fn look_for_overlays(&mut self, now: Timestamp) {
        let has_any = |status: &Status| status.daemons.iter().any(|daemon| !daemon.overlays.is_empty());
        let Some(said) = &self.accepted else { return };
        if !has_any(said) || has_any(&self.live) {
            self.drops_overlays = false;
        } else if now >= self.insist_at - INSIST + PATIENCE && self.live == without_overlays(said) {
            self.drops_overlays = true;
        }
    }

    /// Whether something is to be claimed that is not, as far as is known.
    fn claims(&self) -> bool {
        self.wanted.claims(&self.live) || self.returned.iter().any(|claim| holds(&self.wanted, claim))
    }

    /// The revision that is approved for `daemon_set`, with the digest of its overlays.
    pub(in super::super) fn approved(&self, daemon_set: &DaemonSet) -> Option<String> {
        let (key, uid) = (&daemon_set.key, daemon_set.uid.as_deref().unwrap_or_default());
        let mine = |a: &&Approval| a.namespace == key.namespace && a.name == key.name && a.uid == uid;
        self.spec.approvals.iter().find(mine).map(Approval::pair)
    }

    /// Whether an instance of `daemon_set` may be replaced by one of `revision`; `coordinated`: the cluster has
    /// approvals.
    pub(in super::super) fn permission(&self, coordinated: bool, daemon_set: &DaemonSet, revision: &str) -> Permission {
        if !coordinated {
            return Permission::Free;
        }
        let (key, uid) = (&daemon_set.key, daemon_set.uid.as_deref().unwrap_or_default());
        let mine =
            |a: &&Approval| a.namespace == key.namespace && a.name == key.name && a.uid == uid && a.pair() == revision;
        let Some(approval) = self.spec.approvals.iter().find(mine) else {
            return Permission::Withheld(match (self.is_unserved, self.is_read) {
                (true, _) => Withheld::NotServed,
                (false, true) if self.drops_overlays && !identity::overlays_digest(revision).is_empty() => {
                    Withheld::OlderResource
                }
                (false, true) => Withheld::NotApproved,
                (false, false) => Withheld::NotRead,
            });
        };
        let daemon = self.live.daemon(&key.namespace, &key.name, uid);
        // The object may be older than the last write: a claim that was given back does not hold until it is made anew.
        let claim = (key.namespace.clone(), key.name.clone(), revision.to_owned());
        match daemon.filter(|d| d.claim() == Some(revision) && !self.returned.contains(&claim)) {
            Some(daemon) if daemon.replacing.is_some() => Permission::Claimed,
            Some(_) if approval.when == Some(UpdateTrigger::Boot) => Permission::Staged,
            _ => {
                let given = || approval.when.map_or(Permission::Approved, Permission::Standing);
                self.terms.withholds(approval).map_or_else(given, Permission::Withheld)
            }
        }
    }

    /// The status of this node in the cluster.
    pub(in super::super) fn live(&self) -> &Status {
        &self.live
    }

    /// Approvals that have not been claimed, though they wait for nothing.
    pub(in super::super) fn unclaimed(&self) -> usize {
        let claims = |a: &&Approval| {
            let daemon = self.live.daemon(&a.namespace, &a.name, &a.uid);
            daemon.and_then(|d| d.replacing.clone()) == Some(a.pair())
        };
        self.spec.approvals.iter().filter(|a| a.when.is_none() && !claims(a)).count()
    }

    /// When the status is to be written; never while there is nothing to report or a write is under way. A claim does not wait
    /// for its time; it is made once on what was read, unless the last write failed.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        let claims = self.claims();
        if !self.exists || self.writing || (self.wanted == self.live && !claims) {
            return None;
        }
        if !self.failed && self.claimed_on != self.resource_version && claims {
            return Some(Timestamp::MIN);
        }
        let patient = self.patient.filter(|_| !news::matters(&self.wanted, &self.live));
        let next = patient.map_or(self.next, |patient| patient.max(self.next));
        let accepted = self.accepted.as_ref() == Some(&self.wanted);
        Some(if accepted { next.max(self.insist_at) } else { next })
    }

    /// When approvals are looked at again if nothing happens.
    pub(in super::super) fn reads_again(&self) -> Option<Timestamp> {
        self.terms.due()
    }

    /// What the write of what is wanted claims; `None` if it claims nothing that is not claimed yet, as far as is known.
    fn claim_write(&self) -> Option<ClaimWrite> {
        let is_claimed = |a: &&Approval| {
            let claim = (a.namespace.clone(), a.name.clone(), a.pair());
            self.wanted.holds(a) && (!self.live.holds(a) || self.returned.contains(&claim))
        };
        let approvals: Vec<Approval> = self.spec.approvals.iter().filter(is_claimed).cloned().collect();
        let is_none = approvals.is_empty();
        (!is_none).then(|| ClaimWrite { uid: self.uid.clone(), status: self.wanted.clone(), approvals })
    }

    /// The write that is due at `at`, which is under way from now on. A claim binds it to the version that was
    /// read.
    fn send(&mut self, at: Timestamp) -> Option<StatusPatch> {
        self.due().filter(|due| *due <= at)?;
        let claims = self.claims();
        if claims {
            self.claimed_on.clone_from(&self.resource_version);
        }
        for daemon in &self.live.daemons {
            let Some(revision) = daemon.claim().map(str::to_owned) else { continue };
            let claim = (daemon.namespace.clone(), daemon.name.clone(), revision);
            if !holds(&self.wanted, &claim) {
                self.returned.insert(claim);
            }
        }
        let of = Precondition { uid: &self.uid, resource_version: claims.then_some(self.resource_version.as_str()) };
        // A write whose end is not known, or that does not show yet, may have left another status than the one read.
        let patch = match self.accepted.as_ref() == Some(&self.live) {
            true => StatusPatch::changes(&of, &self.live, &self.wanted),
            false => StatusPatch::whole(&of, &self.wanted),
        };
        self.sent_changes = matches!(patch, StatusPatch::Changes(_));
        self.sent = Some(self.wanted.clone());
        self.patient = None;
        self.writing = true;
        Some(patch)
    }

    /// Whether the object is to be made at `at`; that is under way from now on.
    fn create(&mut self, at: Timestamp) -> bool {
        let due = !self.exists && !self.writing && at >= self.next;
        self.writing |= due;
        self.sent_changes &= !due;
        due
    }

    /// Takes the status to be written as of `at`; `spread`: 0 to 1, another on each node.
    pub(in super::super) fn want(&mut self, status: Status, at: Timestamp, spread: f64) {
        self.wanted = status;
        // A clock that was set back makes nothing wait longer.
        (self.next, self.insist_at) = (self.next.min(at + AGAIN), self.insist_at.min(at + INSIST));
        let known = self.patient.filter(|patient| *patient <= at + PATIENCE);
        let patient = known.unwrap_or(at + PATIENCE.mul_f64(0.5 + spread / 2.0));
        self.patient = (self.wanted != self.live).then_some(patient);
    }

    /// A write has ended at `at`. Gives whether it failed: one that met another object than the one read has not, as
    /// the next one, which is of what is read by then, or whole, takes its place.
    fn ended(&mut self, failure: Option<FailureKind>, at: Timestamp) -> bool {
        self.writing = false;
        self.failed = failure.is_some_and(|kind| match kind {
            FailureKind::Conflict => false,
            FailureKind::Invalid => !self.sent_changes,
            _ => true,
        });
        self.next = at + if self.failed { AGAIN } else { PERIOD };
        self.accepted = self.sent.take().filter(|_| failure.is_none());
        if let Some(said) = &self.accepted {
            // What it claims was bound to the version that was read: nothing came in between.
            self.returned.retain(|claim| !holds(said, claim));
            if said.daemons.iter().any(|daemon| daemon.claim().is_some()) {
                self.terms.held();
            }
        }
        self.insist_at = at + INSIST;
        self.failed
    }
}

impl Claims {
    /// Reads the approvals. Gives whether the cluster has them now: one that had them is coordinated from then on,
    /// whatever becomes of the resource.
    pub(in super::super) fn observe(&mut self, observation: &Observation, is_coordinated: bool, log: &mut Log) -> bool {
        for reply in &observation.replies {
            match reply {
                Reply::Published(result) => {
                    if let Ok(Some(instead)) = result {
                        self.sent = Some(instead.clone());
                    }
                    let failed = self.ended(result.as_ref().err().map(|failure| failure.kind), observation.now);
                    if let Err(failure) = result
                        && (failed || failure.kind == FailureKind::Conflict)
                    {
                        log.info(format!("the node's NodeDaemons is not written: {failure}; trying again"));
                    }
                }
                Reply::NotClaimed { lease, failure } => {
                    // Nothing was sent.
                    self.ended(Some(FailureKind::Conflict), observation.now);
                    self.terms.not_held(lease.clone(), failure.as_ref(), observation.now, log);
                }
                _ => {}
            }
        }
        self.terms.follow(&self.spec, observation.now);
        let Some(api) = observation.snapshot() else { return false };
        let scope = api.scopes.get(&Scope::NodeDaemons);
        let is_listed = scope.is_some_and(|scope| scope.lists > 0);
        let is_unserved = scope.is_some_and(|scope| {
            scope.missing || scope.error.as_ref().is_some_and(|(failure, _)| failure.kind == FailureKind::Forbidden)
        });
        if std::mem::replace(&mut self.is_unserved, is_unserved) != is_unserved && is_unserved && is_coordinated {
            log.warn("NodeDaemons cannot be read: changed templates wait until the coordinator's approvals can be");
        }
        // An approval and its claim stand while they cannot be read.
        if is_listed {
            self.is_read = true;
            self.follow(api);
            self.look_for_overlays(observation.now);
        }
        is_listed
    }

    /// The write that is due, if any.
    pub(in super::super) fn requests(&mut self, observation: &Observation, node: &NodeView) -> Option<Request> {
        let api = observation.snapshot().filter(|api| api.lists(&Scope::NodeDaemons) > 0)?;
        let claim = self.claim_write();
        if let Some(patch) = self.send(observation.now) {
            return Some(Request::Publish { patch, claim });
        }
        // Not for a Node that is gone: it would own an object that nothing needs.
        let node_uid = node.uid.clone().filter(|_| api.node.is_some())?;
        self.create(observation.now).then_some(Request::CreateNodeDaemons { node_uid })
    }
}

#[cfg(test)]
mod tests;
