//! A node and its agent, as far as rollouts look at them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::history;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::json::Json;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

use super::KEY;
use super::api::Api;

/// A new instance is ready after this, if it ever is.
const READY_AFTER: Span = Span::from_secs(3);
/// One that is not ready by then has failed.
const DEADLINE: Span = Span::from_secs(60);

/// A coordinator has listed the Leases after this, and has waited for so long.
const LOOKED_AFTER: Span = Span::from_secs(90);
/// What is written has reached a coordinator after this, unless that is stopped.
const HEARD_AFTER: Span = Span::from_secs(10);

thread_local! {
    /// The hash of each template, by its image.
    static HASHES: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// What runs.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) hash: String,
    /// Whether it is one that never gets ready.
    is_bad: bool,
    pub(super) created: Timestamp,
    pub(super) ready: Option<Timestamp>,
    /// Since when that is written in the API.
    told_ready: Option<Timestamp>,
    /// Whether it took the place of one that was available.
    pub(super) is_disruption: bool,
    /// Whether it is a first instance that an approval was claimed for.
    pub(super) by_word: bool,
    /// When the approval was given by which it took the place of another.
    pub(super) approved_at: Option<Timestamp>,
}

/// A node whose pod broke after its agent died: nobody says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken {
    since: Timestamp,
    /// Since when a coordinator knows that its agent is dead.
    pub(super) known: Option<Timestamp>,
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) running: Option<Running>,
    previous: Option<String>,
    failed: Option<String>,
    replacing: Option<String>,
    /// What it replaces at its next boot by, and whether that never gets ready.
    staged: Option<(String, bool)>,
    /// Until when it is drained, and somebody says what is to be said on it.
    pub(super) triggered: Timestamp,
    /// The agent makes no step until then.
    pub(super) dead: Timestamp,
    pub(super) broken: Option<Broken>,
    /// The NodeDaemons that it has read.
    read: Value,
    /// The DaemonSet that it has read.
    daemon: Value,
    /// Who gave what it has just claimed.
    pub(super) claimed_of: Option<LeaseTerm>,
    /// How often it has made its NodeDaemons.
    reports: usize,
}

/// The template that a DaemonSet or a ControllerRevision has, and whether its pods never get ready.
fn definition(template: &Value) -> (String, bool) {
    let image = template["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
    // Nothing else of it differs, and hashes take most of a life.
    let hash = || history::RevisionFact::hash_of(&history::data(template));
    let hash = HASHES.with_borrow_mut(|known| known.entry(image.to_owned()).or_insert_with(hash).clone());
    (hash, image.starts_with("bad"))
}

/// Whether first instances start only with the coordinator's approval.
pub(super) fn needs_word(daemon: &Value) -> bool {
    let status = RolloutStatus::of(daemon.get("status").unwrap_or(&Value::Null), 0);
    daemon["metadata"]["annotations"].get(FIRST_INSTALL).is_some() && status.released.is_none()
}

impl Running {
    fn new(hash: String, is_bad: bool, created: Timestamp) -> Self {
        let (ready, told_ready, approved_at) = (None, None, None);
        Self { hash, is_bad, created, ready, told_ready, is_disruption: false, by_word: false, approved_at }
    }
}

impl Node {
    pub(super) fn new(name: String, number: usize) -> Self {
        let (running, previous, failed, replacing) = (None, None, None, None);
        let uid = format!("n{number}");
        let (staged, triggered, dead) = (None, Timestamp::MIN, Timestamp::MIN);
        let (read, daemon, claimed_of) = (Value::Null, Value::Null, None);
        let reports = 0;
        Self {
            name,
            uid,
            running,
            previous,
            failed,
            replacing,
            staged,
            triggered,
            dead,
            broken: None,
            read,
            daemon,
            claimed_of,
            reports,
        }
    }

    /// It boots: what is staged takes the place of what ran, and nobody is asked. Gives the revision.
    pub(super) fn boot(&mut self, now: Timestamp) -> Option<String> {
        let (hash, is_bad) = self.staged.take()?;
        let old = self.running.take()?;
        self.previous = Some(old.hash);
        self.running = Some(Running::new(hash.clone(), is_bad, now));
        Some(hash)
    }

    /// Its agent dies until then, and its pod breaks, if that is known to have been ready for a while. Gives whether it is.
    pub(super) fn breaks(&mut self, until: Timestamp, now: Timestamp) -> bool {
        let is_told = |running: &&mut Running| running.told_ready.is_some_and(|told| told + HEARD_AFTER <= now);
        let Some(running) = self.running.as_mut().filter(is_told).filter(|_| self.dead <= now) else { return false };
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
        api.agents.insert(self.name.clone(), now.to_string());
        self.broken = None;
        let key = ObjectKey::new("", &self.name);
        let serves = api.serves(WatchedKind::NodeDaemons);
        if api.get(WatchedKind::NodeDaemons, &key).is_none() {
            if let Some(running) = &mut self.running {
                running.told_ready = None;
            }
            self.read = Value::Null;
            if serves {
                self.reports += 1;
                let uid = format!("{}-{}", self.uid, self.reports);
                let new =
                    json!({"metadata": {"name": self.name, "uid": uid}, "spec": {}, "status": {"agentVersion": "1"}});
                api.put(WatchedKind::NodeDaemons, new);
            }
        }
        // Its watches are late, each by itself.
        if reads || self.running.is_none() {
            self.daemon = api.get(WatchedKind::DaemonSets, &ObjectKey::new(KEY.0, KEY.1)).cloned()?;
        }
        let (daemon, had_claimed) = (self.daemon.clone(), self.replacing.is_some());
        let (wanted, is_bad) = definition(&daemon["spec"]["template"]);
        if let Some(running) = &mut self.running {
            if running.ready.is_none() && !running.is_bad && running.created + READY_AFTER <= now {
                running.ready = Some(now);
            }
            if running.ready.is_none() && running.created + DEADLINE <= now {
                self.failed = Some(running.hash.clone());
            }
            // It ends with the old instance, which is gone by now.
            if self.replacing.as_ref() == Some(&running.hash) {
                self.replacing = None;
            }
        } else if !needs_word(&daemon) {
            self.running = Some(self.first(api, &daemon, now));
        }
        let mut replaced = None;
        let approval = self.approval(&daemon);
        let approved_at = approval.as_ref().and_then(|approval| approval.approved_at.parse::<Timestamp>().ok());
        let target = approval.as_ref().map(|approval| approval.revision.clone());
        let is_new = target.as_ref().is_some_and(|target| self.running.as_ref().is_none_or(|r| r.hash != *target));
        let generation = daemon.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let rollout = RolloutStatus::of(daemon.get("status").unwrap_or(&Value::Null), generation);
        let is_back = target.is_some() && target == self.previous && !rollout.is_behind;
        let is_known = target.as_ref() == Some(&wanted) || is_back;
        let is_paused = daemon["metadata"]["annotations"][PAUSED] == "true";
        let is_stopped = is_paused || rollout.halted.is_some() && target.as_ref() == Some(&wanted);
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
                    let mut status = self.status();
                    status["daemons"][0][field] = json!(claim);
                    let read = &self.read["metadata"];
                    let metadata = json!({"uid": read["uid"], "resourceVersion": read["resourceVersion"]});
                    let patch = json!({"metadata": metadata, "status": status});
                    if let Ok(read) = api.patch(WatchedKind::NodeDaemons, &key, &patch) {
                        self.read = read;
                        self.claimed_of = approval.lease;
                        match is_for_boot {
                            true => self.staged = Some((claim.clone(), is_bad && claim == wanted)),
                            false => self.replacing = Some(claim),
                        }
                    }
                }
            }
            _ => {}
        }
        // What is wanted no more is given back.
        self.replacing.take_if(|claim| *claim != wanted && !(is_back && target.as_ref() == Some(claim)));
        // The old one ends first.
        if let Some(target) = self.replacing.clone().filter(|_| had_claimed || self.running.is_none())
            && self.running.as_ref().is_none_or(|old| old.hash != target)
        {
            let is_bad = is_bad && target == wanted;
            // What was not known to be available when it was approved costs nothing.
            let old = self.running.take();
            let ready = old.as_ref().and_then(|old| old.told_ready).map(|ready| ready + HEARD_AFTER);
            let is_disruption = when.is_none() && ready.is_some_and(|ready| approved_at.is_some_and(|at| ready <= at));
            let by_word = old.is_none();
            let new = Running::new(target.clone(), is_bad, now);
            self.running = Some(Running { is_disruption, by_word, approved_at, ..new });
            if let Some(old) = old {
                self.previous = Some(old.hash);
                replaced = Some(target);
            }
        }
        if reads && serves {
            let patch = json!({"status": self.status()});
            self.read = api.patch(WatchedKind::NodeDaemons, &key, &patch).unwrap_or_default();
            if let Some(running) = self.running.as_mut().filter(|running| running.ready.is_some()) {
                running.told_ready.get_or_insert(now);
            }
        }
        replaced
    }

    /// A first instance: of the released revision while nodes are kept on it (R40).
    fn first(&self, api: &Api, daemon: &Value, now: Timestamp) -> Running {
        let generation = daemon.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let status = RolloutStatus::of(daemon.get("status").unwrap_or(&Value::Null), generation);
        let is_held = status.is_held || status.is_behind || status.halted.is_some();
        let released = status.released.filter(|_| is_held).and_then(|released| {
            let revision = api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &released.name))?;
            history::template(&revision["data"])
        });
        let (hash, is_bad) = definition(released.as_ref().unwrap_or(&daemon["spec"]["template"]));
        Running::new(hash, is_bad, now)
    }

    fn approval(&self, daemon: &Value) -> Option<Approval> {
        let approvals: Vec<Approval> =
            serde_json::from_value(self.read["spec"]["approvals"].clone()).unwrap_or_default();
        approvals.into_iter().find(|approval| approval.uid == daemon.str_at(["metadata", "uid"]))
    }

    fn status(&self) -> Value {
        let instances: Vec<Value> = self
            .running
            .iter()
            .map(|running| {
                json!({"pod": "p", "revision": running.hash, "created": running.created.to_string(),
                    "readySince": running.ready.map(|ready| ready.to_string())})
            })
            .collect();
        let failed =
            self.failed.as_ref().map(|revision| json!({"revision": revision, "cause": "not ready", "message": "m"}));
        json!({"agentVersion": "1", "daemons": [{"namespace": KEY.0, "name": KEY.1, "uid": "u", "mode": "static",
            "phase": "running", "instances": instances, "replacing": self.replacing, "failed": failed, "staged": self.staged.as_ref().map(|(hash, _)| hash),
            "previous": self.previous}]})
    }
}
