//! One life of a cluster: its nodes, its coordinator, and what happens round by round.

use std::collections::BTreeMap;
use std::sync::Arc;

use daemonlet::core::cluster::history;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::released::Halted;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::steps::StepState;
use daemonlet::core::json::Json;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::STEPS;
use daemonlet::core::model::UPDATE;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

use super::Dice;
use super::KEY;
use super::START;
use super::WITHDRAWN;
use super::agent;
use super::agent::Node;
use super::api::Api;
use super::blind;
use super::clocks;
use super::coordinator::Process;
use super::coordinator::Trap;
use super::edges;
use super::fleet;

mod calm;
mod disturbances;
mod laws;

pub(super) struct Life {
    pub(super) dice: Dice,
    /// What draws the moves of [`edges`], where its life has them.
    pub(super) edges: Option<Dice>,
    /// What draws the moves of [`fleet`], where its life has them.
    pub(super) fleet: Option<Dice>,
    /// What draws the moves of [`blind`], where its life has them.
    pub(super) blind: Option<Dice>,
    /// What draws the moves of [`clocks`], where its life has them.
    pub(super) clocks: Option<Dice>,
    /// Whether budgets are upstream's to the letter until all are well again.
    pub(super) is_exact: bool,
    /// Whether new instances start beside old ones, and since when that is so, or is not.
    pub(super) surges: (bool, Timestamp),
    /// Until when something is wrong with the DaemonSet, if something is.
    pub(super) odd: Option<Timestamp>,
    /// Whether it was ever let go: its first instances of now are no joining nodes'.
    pub(super) was_let_go: bool,
    pub(super) now: Timestamp,
    pub(super) api: Api,
    pub(super) processes: Vec<Process>,
    pub(super) started: usize,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) unreachable: BTreeMap<String, Timestamp>,
    pub(super) budget: usize,
    pub(super) generation: i64,
    pub(super) joined: usize,
    /// Nodes at the most, and those that had what is wanted when it was last written.
    pub(super) most: usize,
    pub(super) had: usize,
    /// Until when approvals may still be claimed that were given to all nodes before steps were written.
    pub(super) unbound: Timestamp,
    /// Until when so many approvals as the budget allows may still be claimed that were given before steps were written, or
    /// began anew.
    pub(super) in_flight: Timestamp,
    /// Whether the trigger that a rollout waits for is taken away once a node has claimed its approval.
    pub(super) untriggers: bool,
    /// Whether its rollout goes on, with another coordinator, once one has noticed that a node broke.
    pub(super) resumes: bool,
    /// The largest first install that was ever written.
    pub(super) install: usize,
    /// Until then NodeDaemons are not served.
    pub(super) hidden: Timestamp,
    /// Until then coordinators could not write, or read, what they had to.
    pub(super) hindered: Timestamp,
    /// When template and annotations were last written, the current ControllerRevision was deleted, or a halt ended.
    pub(super) written: Timestamp,
    /// Since when its rollouts are paused.
    pub(super) paused: Option<Timestamp>,
    /// The wanted revision, where its ControllerRevision was deleted while it was halted, and since when it was.
    pub(super) deleted: Option<(String, Timestamp)>,
    /// Whether it is deleted once the status says that it is halted.
    pub(super) deletes: bool,
    pub(super) story: Vec<String>,
}

impl Life {
    pub(super) fn new(seed: u64) -> Self {
        let mut life = Self {
            dice: Dice(seed),
            edges: edges::of(seed),
            fleet: fleet::of(seed),
            blind: blind::of(seed),
            clocks: clocks::of(seed),
            is_exact: blind::is_exact(seed),
            surges: (false, START - WITHDRAWN),
            odd: None,
            was_let_go: false,
            now: START,
            api: Api::default(),
            processes: vec![Process::new(1, START), Process::new(2, START)],
            started: 2,
            nodes: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            budget: 1,
            generation: 0,
            joined: 0,
            most: 0,
            had: 0,
            unbound: START,
            in_flight: START,
            untriggers: false,
            resumes: false,
            install: 0,
            hidden: START,
            hindered: START,
            written: START,
            paused: None,
            deleted: None,
            deletes: false,
            story: Vec::new(),
        };
        life.api.lease.renewed = START;
        life.budget = 1 + life.dice.below(3);
        // One in ten is large.
        let nodes = if life.dice.below(10) == 0 { 40 } else { 4 + life.dice.below(5) };
        (0..nodes).for_each(|_| life.join());
        let annotations = if life.dice.below(2) == 0 { json!({}) } else { life.first_install() };
        life.template("good-1", annotations);
        life
    }

    pub(super) fn first_install(&mut self) -> Value {
        let nodes = 1 + self.dice.below(2);
        self.install = self.install.max(nodes);
        json!({"daemonlet.dev/first-install": nodes.to_string()})
    }

    pub(super) fn log(&mut self, what: String) {
        self.story.push(format!("{} s: {what}", (self.now - START).as_secs_ceil()));
    }

    pub(super) fn join(&mut self) {
        self.machine(&format!("n{:02}", self.joined + 1));
        self.most = self.most.max(self.nodes.len());
    }

    pub(super) fn daemon(&self) -> Arc<Value> {
        self.api.shared(WatchedKind::DaemonSets, &ObjectKey::new(KEY.0, KEY.1)).cloned().unwrap_or_default()
    }

    /// Another template, or the same with other annotations.
    pub(super) fn template(&mut self, image: &str, annotations: Value) {
        self.log(format!("{image} {annotations}"));
        let before = self.daemon();
        let template = json!({"metadata": {"labels": {"app": "net"}},
            "spec": {"nodeSelector": {agent::ROLE: "net"}, "containers": [{"name": "c", "image": image}]}});
        let (unavailable, surge) = if self.surges.0 { (0, self.budget) } else { (self.budget, 0) };
        let hash = agent::hash_of(&template);
        self.deleted.take_if(|(deleted, _)| *deleted != hash);
        self.deletes &= before["spec"]["template"] == template;
        let is_paused = annotations["daemonlet.dev/paused"] == "true";
        self.paused = is_paused.then(|| self.paused.unwrap_or(self.now));
        if before["metadata"]["annotations"].get(UPDATE).is_some() {
            self.unbound = self.now + WITHDRAWN;
        }
        let is_same = before["spec"]["template"] == template;
        if is_same && before["metadata"]["annotations"].get(STEPS) != annotations.get(STEPS) {
            self.in_flight = self.now + WITHDRAWN;
        }
        self.had = self.having(&hash);
        self.odd = None;
        self.written = self.now;
        let selector = json!({"matchLabels": {"app": "net"}});
        let spec = &before["spec"];
        let min_ready = self.api.min_ready.seconds();
        let is_same = spec["template"] == template && spec["selector"] == selector;
        self.generation += i64::from(!is_same || spec["minReadySeconds"] != min_ready);
        self.api.put(
            WatchedKind::DaemonSets,
            json!({"metadata": {"namespace": KEY.0, "name": KEY.1, "uid": "u", "generation": self.generation,
                    "labels": {"daemonlet.dev/mode": "static"}, "annotations": annotations},
                "spec": {"selector": selector, "template": template, "revisionHistoryLimit": 3, "minReadySeconds": min_ready,
                    "updateStrategy": {"type": "RollingUpdate",
                        "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}},
                "status": before.get("status").cloned().unwrap_or_else(|| json!({}))}),
        );
    }

    /// The current ControllerRevision is deleted.
    pub(super) fn delete_current(&mut self) {
        let current = self.current();
        self.log(format!("ControllerRevision {current} is deleted"));
        // Its steps begin anew, and its halt stands.
        let wanted = self.wanted();
        self.had = self.having(&wanted);
        (self.written, self.in_flight) = (self.now, self.now + WITHDRAWN);
        self.deleted = self.halted(&wanted).map(|since| (wanted, since));
        self.api.delete(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &current));
    }

    /// The step that the current revision says it is in.
    pub(super) fn step_state(&self) -> Option<StepState> {
        let revision = self.api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, self.current()))?;
        let number = revision["revision"].as_i64()?;
        StepState::of(revision["metadata"]["annotations"]["daemonlet.dev/step"].as_str(), number)
    }

    /// How many nodes have a revision, or may take it by an approval that stands.
    pub(super) fn having(&self, hash: &str) -> usize {
        let has = |node: &&Node| {
            node.running.as_ref().is_some_and(|running| running.hash == hash) || node.may_take(&self.api, hash)
        };
        self.nodes.values().filter(has).count()
    }

    /// The hash of the wanted revision.
    pub(super) fn wanted(&self) -> String {
        agent::hash_of(&self.daemon()["spec"]["template"])
    }

    pub(super) fn image(&self) -> String {
        self.daemon()["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn annotations(&mut self) -> Value {
        match self.dice.below(13) {
            12 => json!({"daemonlet.dev/window": "Tue 22:15-22:19"}),
            // A revision that fails on one node is halted while there are slots left.
            9 => json!({"daemonlet.dev/max-failed": "0"}),
            7 => json!({UPDATE: self.dice.one_of(&["drain", "boot", "manual"])}),
            8 => json!({UPDATE: self.dice.one_of(&["drain", "boot"]), "daemonlet.dev/steps": "1, 20s; 50%, 20s; 100%"}),
            0 => json!({"daemonlet.dev/paused": "true"}),
            1 => json!({"daemonlet.dev/partition": "2"}),
            2 => json!({"daemonlet.dev/steps": "1, 20s; 50%, 20s; 100%"}),
            3 => json!({"daemonlet.dev/topology-key": "zone"}),
            4 => json!({"daemonlet.dev/rollback": "auto"}),
            5 => json!({"daemonlet.dev/canary": "zone=a", "daemonlet.dev/canary-hold": "10s"}),
            6 => self.first_install(),
            _ => json!({}),
        }
    }

    /// The name of the current revision.
    pub(super) fn current(&self) -> String {
        let hash = self.wanted();
        let has = |revision: &&Value| history::RevisionFact::hash_of(&revision["data"]) == hash;
        let found = self.api.list(WatchedKind::Revisions).find(has);
        found.map(|revision| revision.str_at(["metadata", "name"]).to_owned()).unwrap_or_default()
    }

    /// One thing that goes on by itself.
    pub(super) fn go_on(&mut self, is_calm: bool) {
        let now = self.now;
        let settings = Settings { default_node_selector: String::new(), exact_rollouts: self.is_exact };
        self.nodes_recover(now);
        if self.hidden <= now {
            self.api.show();
        }
        if self.deletes && Halted::of_status(&self.daemon()["status"], &self.wanted()).is_some() {
            self.deletes = false;
            self.delete_current();
        }
        self.is_odd_no_more();
        let which = self.dice.below(2);
        let action = self.dice.below(6);
        let few = 1 + self.dice.below(8);
        let budget = self.budget;
        let process = &mut self.processes[which];
        let is_awake = process.frozen <= now;
        match action {
            _ if is_awake && process.trap == Trap::Sprung => {
                process.trap = Trap::None;
                process.deliver(&mut self.api, now, false);
            }
            0 if is_awake && process.springs() => {
                process.frozen = now + Span::from_secs(i64::try_from(16 + 4 * few).unwrap());
            }
            // A process that is stopped between its check and its write still writes when it wakes.
            0 if is_awake => drop(process.deliver(&mut self.api, now, is_calm || few > 1)),
            1 if is_awake => process.watch(&self.api, if is_calm { usize::MAX } else { few }, now),
            2 if is_awake => {
                process.pass(&mut self.api, (&settings, budget), now);
                let known = self.nodes.values_mut().filter(|node| process.knows_dead(&node.name));
                // Each of them notes it.
                let is_known = known.filter_map(|node| node.is_known_dead(now).then_some(())).count() > 0;
                if is_known && std::mem::take(&mut self.resumes) {
                    self.log(format!("coordinator {which} has noticed, and dies"));
                    self.started += 1;
                    self.processes[which] = Process::new(self.started, now + Span::from_secs(1));
                    let image = self.image();
                    self.template(&image, json!({}));
                }
            }
            3 => {
                let names: Vec<String> = self.nodes.keys().cloned().collect();
                for _ in 0..1 + names.len() / 10 {
                    let name = names[self.dice.below(names.len())].clone();
                    self.agent(&name, is_calm || few > 2);
                }
            }
            4 => self.now += Span::from_millis(i64::try_from(200 * few).unwrap()),
            _ => {}
        }
        for process in &mut self.processes {
            assert_eq!(process.broken.take(), None, "a coordinator gives more than it has");
            if process.frozen <= self.now {
                process.renew(&mut self.api, self.now);
            }
        }
        assert_eq!(self.api.claim_lost.take(), None, "a coordinator takes away what is claimed");
    }

    pub(super) fn agent(&mut self, name: &str, reads: bool) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.dead <= now) else { return };
        let was_empty = node.running.is_none();
        let replaced = node.step(&mut self.api, now, reads);
        let is_new = was_empty && node.running.is_some();
        if let Some(lease) = node.claimed_of.take() {
            assert!(self.api.lease.is_held(&lease), "{name} claims what another than the holder gave");
            if std::mem::take(&mut self.untriggers) {
                let image = self.image();
                self.template(&image, json!({}));
            }
        }
        if is_new {
            self.log(format!("{name} starts"));
            if self.was_let_go {
                let wanted = self.wanted();
                self.had = self.had.max(self.having(&wanted));
            }
            self.installs_hold(name);
            self.first_holds(name);
        }
        if let Some(revision) = replaced {
            self.log(format!("{name} replaces by {revision}"));
            self.budget_holds(name, &revision);
            self.halt_holds(name, &revision);
            self.step_holds(name, &revision);
        }
    }

    /// A node boots, and its agent with it.
    pub(super) fn boot(&mut self, name: &str) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.dead <= now) else { return };
        let replaced = node.boot(now);
        if let Some(revision) = replaced {
            self.log(format!("{name} replaces by {revision} at its boot"));
            self.halt_holds(name, &revision);
            self.step_holds(name, &revision);
        }
    }
}
