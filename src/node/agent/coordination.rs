//! This node's NodeDaemons: the coordinator's approvals read, the agent's status written.
//!
//! Owns what is said of this node's daemons to the cluster, and when: on change, at most once a second,
//! a claim at once. A claim is written on the very resource version whose approval was read, so that
//! a withdrawal and a claim cannot both go through. Without the resource there is nothing to do.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::FailedReport;
use crate::core::cluster::node_daemons::InstanceReport;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::node_daemons::Status;
use crate::core::model::DaemonSet;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Facts;
use crate::core::plan::Permission;
use crate::core::plan::Readiness;
use crate::core::record::Instance;
use crate::core::record::Millis;
use crate::core::record::Phase;
use crate::core::status::State;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::Agent;
use super::Answer;
use super::now;

/// Why a replacement waits.
pub(super) const NOT_APPROVED: &str = "the coordinator has not approved it for this node yet";

/// Between two writes of the status.
const PERIOD: Millis = 1_000;
/// After a write that failed.
const AGAIN: Millis = 5_000;
/// After a write that was taken and did not come back as it was sent: the resource in the cluster may be older
/// than this agent and drop what it does not know.
const INSIST: Millis = 60_000;
/// The API server's word for a write on a version that is not the newest.
const CONFLICT: &str = "the object has been modified";

/// This node's NodeDaemons as last seen, and what is being written.
#[derive(Default)]
pub(super) struct Coordination {
    /// The store's version of what is held here.
    version: u64,
    uid: String,
    resource_version: String,
    spec: Spec,
    live: Status,
    /// Whether the object was there.
    exists: bool,
    /// What is to be said.
    wanted: Status,
    /// Not before.
    next: Millis,
    /// Whether a write is under way.
    writing: bool,
    /// Whether the last one failed, other than by a conflict.
    failed: bool,
    /// The resource version of the last claim.
    claimed_on: String,
    /// What is being written.
    sent: Option<Status>,
    /// What was last taken by the API server.
    accepted: Option<Status>,
    /// When that is written again, if it does not show.
    insist_at: Millis,
}

impl Coordination {
    /// Takes what the API shows.
    fn follow(&mut self, api: &Snapshot) {
        let Some(entry) = &api.node_daemons else {
            self.exists = false;
            self.version = 0;
            (self.spec, self.live) = Default::default();
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
    }

    /// The revision that is approved for `daemon_set`.
    pub(super) fn approved(&self, daemon_set: &DaemonSet) -> Option<&str> {
        let (key, uid) = (&daemon_set.key, daemon_set.uid.as_deref().unwrap_or_default());
        let mine = |a: &&crate::core::cluster::node_daemons::Approval| {
            a.namespace == key.namespace && a.name == key.name && a.uid == uid
        };
        self.spec.approvals.iter().find(mine).map(|a| a.revision.as_str())
    }

    /// Whether an instance of `daemon_set` may be replaced by one of `revision`; `coordinated`: the cluster has
    /// approvals.
    pub(super) fn permission(&self, coordinated: bool, daemon_set: &DaemonSet, revision: &str) -> Permission {
        if !coordinated {
            return Permission::Free;
        }
        let (key, uid) = (&daemon_set.key, daemon_set.uid.as_deref().unwrap_or_default());
        let mine = |a: &&Approval| {
            a.namespace == key.namespace && a.name == key.name && a.uid == uid && a.revision == revision
        };
        if !self.spec.approvals.iter().any(|a| mine(&a)) {
            return Permission::Withheld(NOT_APPROVED.to_owned());
        }
        let claimed = self.live.daemon(&key.namespace, &key.name, uid).and_then(|d| d.replacing.as_deref());
        if claimed == Some(revision) { Permission::Claimed } else { Permission::Approved }
    }

    /// Approvals that have not been claimed.
    pub(super) fn unclaimed(&self) -> usize {
        let claims = |a: &&Approval| {
            let daemon = self.live.daemon(&a.namespace, &a.name, &a.uid);
            daemon.and_then(|d| d.replacing.as_deref()) == Some(a.revision.as_str())
        };
        self.spec.approvals.iter().filter(|a| !claims(a)).count()
    }

    /// When the status is to be written.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = if self.accepted.as_ref() == Some(&self.wanted) { self.next.max(self.insist_at) } else { self.next };
        (self.exists && !self.writing && self.wanted != self.live).then_some(due)
    }

    /// Whether what is to be said does not wait for its time: a claim, once on what was read, unless the last
    /// write failed.
    fn hurries(&self) -> bool {
        !self.failed && self.claimed_on != self.resource_version && claims(&self.wanted, &self.live)
    }
}

/// What is said of every daemon of a plan.
pub(super) fn status(plan: &Plan, facts: &dyn Facts, node: &str) -> Status {
    let told = |d: &&DaemonPlan| {
        d.summary.mode.is_some() && (!d.record.instances.is_empty() || d.summary.state.is_bad() || waits(d))
    };
    let daemons: Vec<&DaemonPlan> = plan.daemons.iter().filter(told).collect();
    let ready = daemons.iter().filter(|d| d.summary.ready == Some(true)).count();
    let trouble = daemons.iter().find(|d| d.summary.state.is_bad()).or_else(|| daemons.iter().find(|d| waits(d)));
    Status {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: format!("{ready}/{}", daemons.len()),
        worst: trouble
            .map_or_else(String::new, |d| format!("{}: {}: {}", d.key, d.summary.state.as_str(), d.summary.reason)),
        daemons: daemons.into_iter().map(|d| report(d, facts, node)).collect(),
    }
}

fn waits(daemon: &DaemonPlan) -> bool {
    daemon.summary.state == State::Waiting
}

fn report(daemon: &DaemonPlan, facts: &dyn Facts, node: &str) -> DaemonReport {
    let instance = |i: &Instance| InstanceReport {
        pod: super::evidence::mirror_key("", &i.pod_name, node).name,
        revision: i.revision.clone(),
        created: time(i.created),
        ready_since: match facts.readiness(i) {
            Readiness::Ready { since } => Some(time(since)),
            Readiness::Steady { .. } | Readiness::NotReady(_) | Readiness::Unknown(_) => None,
        },
        ending: i.phase != Phase::Live,
    };
    let running = daemon.summary.state == State::Running;
    DaemonReport {
        namespace: daemon.key.namespace.clone(),
        name: daemon.key.name.clone(),
        uid: daemon.record.api_uid.clone().unwrap_or_default(),
        mode: daemon.summary.mode,
        phase: Some(daemon.summary.state),
        message: if running { String::new() } else { daemon.summary.reason.clone() },
        instances: daemon.record.instances.iter().map(instance).collect(),
        replacing: daemon.replacing.clone(),
        failed: daemon.record.failed.as_ref().map(|f| FailedReport {
            revision: f.revision.clone(),
            cause: f.failure.cause.as_str().to_owned(),
            message: f.failure.message.clone(),
        }),
        stock_pod: daemon.summary.stock_pod.clone(),
        previous: daemon.record.previous.as_ref().map(|p| p.revision.clone()),
    }
}

/// RFC 3339, whole seconds, UTC.
fn time(millis: Millis) -> String {
    jiff::Timestamp::from_second(millis.div_euclid(1_000)).unwrap_or_default().to_string()
}

impl Agent {
    /// Reads the approvals, before a plan is made. A cluster that had them has them still while nobody says
    /// otherwise.
    pub(super) fn follow_approvals(&mut self, api: Option<&Snapshot>) {
        let Some(api) = api else { return };
        self.coordination.follow(api);
        match api.scopes.get(&Scope::NodeDaemons) {
            Some(state) if state.lists > 0 => self.memory.coordinated = true,
            Some(state) if state.missing => self.memory.coordinated = false,
            _ => {}
        }
    }

    /// Says what has changed, if it is time.
    pub(super) fn publish(&mut self, snapshot: Option<&Snapshot>) {
        let (Some(api), Some(snapshot)) = (self.api.clone(), snapshot) else { return };
        let at = now();
        let c = &mut self.coordination;
        if c.writing || snapshot.lists(&Scope::NodeDaemons) == 0 || at < c.next && !c.hurries() {
            return;
        }
        let node = self.config.node_name.clone();
        let answers = self.answers.clone();
        if !c.exists {
            // Not for a Node that is gone: it would own what nobody wants.
            let Some(uid) = self.node.uid.clone().filter(|_| snapshot.node.is_some()) else { return };
            c.writing = true;
            tokio::spawn(async move {
                let written = api.create_node_daemons(&node, &uid).await;
                let _ = answers.send(Answer::published(written));
            });
        } else if c.wanted != c.live && (c.accepted.as_ref() != Some(&c.wanted) || at >= c.insist_at) {
            let mut metadata = json!({"uid": c.uid});
            if claims(&c.wanted, &c.live) {
                metadata["resourceVersion"] = json!(c.resource_version);
                c.claimed_on.clone_from(&c.resource_version);
            }
            c.sent = Some(c.wanted.clone());
            let patch = json!({"metadata": metadata, "status": c.wanted});
            c.writing = true;
            tokio::spawn(async move {
                let written = api.patch_node_daemons(&node, &patch).await;
                let _ = answers.send(Answer::published(written));
            });
        }
    }

    /// A write has ended.
    pub(super) fn published(&mut self, failure: Option<String>) {
        let c = &mut self.coordination;
        c.writing = false;
        c.failed = failure.as_ref().is_some_and(|failure| !failure.contains(CONFLICT));
        c.next = now() + if c.failed { AGAIN } else { PERIOD };
        c.accepted = c.sent.take().filter(|_| failure.is_none());
        c.insist_at = now() + INSIST;
        if let Some(failure) = failure {
            tracing::info!("the node's NodeDaemons is not written: {failure}; trying again");
        }
    }

    /// Takes what the last plan says of this node.
    pub(super) fn tell_cluster(&mut self, status: Status) {
        self.coordination.wanted = status;
    }
}

/// Whether `wanted` claims what `live` does not.
fn claims(wanted: &Status, live: &Status) -> bool {
    wanted.daemons.iter().filter(|d| d.replacing.is_some()).any(|d| {
        let before = live.daemons.iter().find(|l| l.namespace == d.namespace && l.name == d.name);
        before.and_then(|l| l.replacing.as_ref()) != d.replacing.as_ref()
    })
}
