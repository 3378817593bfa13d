//! A node and its agent, as far as rollouts look at them.

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::history;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::json::Json;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::KEY;
use super::api::Api;

/// A new instance is ready after this, if it ever is.
const READY_AFTER: Span = Span::from_secs(3);
/// One that is not ready by then has failed.
const DEADLINE: Span = Span::from_secs(60);

/// What is written has reached a coordinator after this, unless that is stopped.
const HEARD_AFTER: Span = Span::from_secs(10);

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
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) running: Option<Running>,
    previous: Option<String>,
    failed: Option<String>,
    replacing: Option<String>,
    /// The agent makes no step until then.
    pub(super) dead: Timestamp,
    /// The NodeDaemons that it has read.
    read: Value,
}

/// The template that a DaemonSet or a ControllerRevision has, and whether its pods never get ready.
fn definition(template: &Value) -> (String, bool) {
    let hash = history::RevisionFact::hash_of(&history::data(template));
    (hash, template["spec"]["containers"][0]["image"].as_str().is_some_and(|image| image.starts_with("bad")))
}

/// Whether first instances start only with the coordinator's approval.
pub(super) fn needs_word(daemon: &Value) -> bool {
    let status = RolloutStatus::of(daemon.get("status").unwrap_or(&Value::Null), 0);
    daemon["metadata"]["annotations"].get(FIRST_INSTALL).is_some() && status.released.is_none()
}

impl Node {
    pub(super) fn new(name: String, number: usize) -> Self {
        let (running, previous, failed, replacing) = (None, None, None, None);
        let uid = format!("n{number}");
        Self { name, uid, running, previous, failed, replacing, dead: Timestamp::MIN, read: Value::Null }
    }

    /// One step of the agent: what runs gets ready, a first instance starts, an approval is read, claimed, carried out.
    /// Gives the revision that replaced another.
    pub(super) fn step(&mut self, api: &mut Api, now: Timestamp, reads: bool) -> Option<String> {
        api.agents.insert(self.name.clone(), now.to_string());
        let key = ObjectKey::new("", &self.name);
        if api.get(WatchedKind::NodeDaemons, &key).is_none() {
            let new =
                json!({"metadata": {"name": self.name, "uid": self.uid}, "spec": {}, "status": {"agentVersion": "1"}});
            api.put(WatchedKind::NodeDaemons, new);
        }
        let daemon = api.get(WatchedKind::DaemonSets, &ObjectKey::new(KEY.0, KEY.1)).cloned()?;
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
        let is_back = target.is_some() && target == self.previous;
        let is_known = target.as_ref() == Some(&wanted) || is_back;
        let is_paused = daemon["metadata"]["annotations"][PAUSED] == "true";
        match approval {
            Some(approval) if is_new && is_known && self.replacing.as_ref() != Some(&approval.revision) => {
                let holds = approval.lease.as_ref() == Some(&api.lease.term());
                if holds && !is_paused {
                    let claim = Some(approval.revision);
                    let mut status = self.status();
                    status["daemons"][0]["replacing"] = json!(claim);
                    let metadata =
                        json!({"uid": self.uid, "resourceVersion": self.read["metadata"]["resourceVersion"]});
                    let patch = json!({"metadata": metadata, "status": status});
                    if let Ok(read) = api.patch(WatchedKind::NodeDaemons, &key, &patch) {
                        (self.replacing, self.read) = (claim, read);
                    }
                }
            }
            _ => {}
        }
        if let Some(target) = self.replacing.clone().filter(|_| is_known || self.replacing.as_ref() == Some(&wanted))
            && self.running.as_ref().is_none_or(|old| old.hash != target)
        {
            let is_bad = is_bad && target == wanted;
            // What was not known to be available when it was approved costs nothing.
            let old = self.running.take();
            let ready = old.as_ref().and_then(|old| old.told_ready).map(|ready| ready + HEARD_AFTER);
            let is_disruption = ready.is_some_and(|ready| approved_at.is_some_and(|at| ready <= at));
            let by_word = old.is_none();
            let new = Running {
                hash: target.clone(),
                is_bad,
                created: now,
                ready: None,
                told_ready: None,
                is_disruption,
                by_word,
            };
            self.running = Some(new);
            if let Some(old) = old {
                self.previous = Some(old.hash);
                replaced = Some(target);
            }
        }
        if reads {
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
        Running { hash, is_bad, created: now, ready: None, told_ready: None, is_disruption: false, by_word: false }
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
            "phase": "running", "instances": instances, "replacing": self.replacing, "failed": failed,
            "previous": self.previous}]})
    }
}
