//! Dice for the coordinator: rollouts, failures, joins, losses and deaths in an order that a seed draws, in simulated
//! time, with an API server, coordinators and agents in memory.
//!
//! Owns the laws. They are looked at after every step: the budget holds, on the nodes, also with those that broke and whose
//! agents are dead, whoever coordinates, and in what a coordinator gives by what it sees; a coordinator gives nothing that
//! pause, halt, abort, canary, partition or zones forbid by what it sees; a step's bound holds; what is halted spreads no
//! further, to nodes that join either; nodes that it broke count when they are deleted, too; what is claimed is not taken
//! away; nothing is claimed of who does not hold the Lease; first installs start by the word and so many at a time; and
//! once everybody is well again every node has what is wanted, what is told is true at each moment, and nobody writes,
//! also while NodeDaemons are deleted and come back. [`edges`] has more moves and laws, for lives of odd seeds.
//! `DAEMONLET_SEEDS=5000` plays so many seeds, `DAEMONLET_SEED=7` one; both: so many from that one on. A seed that breaks a
//! law is printed with its story.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod agent;
mod api;
mod coordinator;
mod edges;
mod given;
mod lost;
mod slots;
mod told;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serde_json::json;

use daemonlet::core::json::Json;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PROMOTED;
use daemonlet::core::model::STEPS;
use daemonlet::core::model::UPDATE;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use agent::Node;
use api::Api;
use coordinator::Process;
use coordinator::Trap;
use daemonlet::core::cluster::broken::BROKEN_ANNOTATION;
use daemonlet::core::cluster::broken::BrokenNodes;
use daemonlet::core::cluster::history;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::released::ALL_RETRIED;
use daemonlet::core::cluster::released::HALTED_ANNOTATION;
use daemonlet::core::cluster::released::Halted;
use daemonlet::core::cluster::released::RETRIED_ANNOTATION;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::rollout;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::steps;
use daemonlet::core::cluster::steps::StepState;

thread_local! {
    /// What a panic of this thread says.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

const KEY: (&str, &str) = ("kube-system", "net");
const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// An approval is withdrawn by then, though both coordinators were stopped for as long as they ever are.
const WITHDRAWN: Span = Span::from_secs(250);
/// A coordinator knows of an agent that lives again after this, unless it is stopped: it lists Leases every 15 s.
const HEARD_AFTER: Span = Span::from_secs(20);
/// Rounds without a change after which nothing else is waited for.
const QUIET: usize = 45;
/// Steps of a life before everybody is well again.
const LENGTH: usize = 600;

/// Numbers from a seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

struct Life {
    dice: Dice,
    /// What draws the moves of [`edges`], where its life has them.
    edges: Option<Dice>,
    /// Until when something is wrong with the DaemonSet, if something is.
    odd: Option<Timestamp>,
    /// Whether it was ever let go: its first instances of now are no joining nodes'.
    was_let_go: bool,
    now: Timestamp,
    api: Api,
    processes: Vec<Process>,
    started: usize,
    nodes: BTreeMap<String, Node>,
    unreachable: BTreeMap<String, Timestamp>,
    budget: usize,
    generation: i64,
    joined: usize,
    /// Nodes at the most, and those that had what is wanted when it was last written.
    most: usize,
    had: usize,
    /// Until when approvals may still be claimed that were given to all nodes before steps were written.
    unbound: Timestamp,
    /// Until when so many approvals as the budget allows may still be claimed that were given before steps were written.
    in_flight: Timestamp,
    /// Whether the trigger that a rollout waits for is taken away once a node has claimed its approval.
    untriggers: bool,
    /// Whether its rollout goes on, with another coordinator, once one has noticed that a node broke.
    resumes: bool,
    /// The largest first install that was ever written.
    install: usize,
    /// Until then NodeDaemons are not served.
    hidden: Timestamp,
    /// Until then coordinators could not write, or read, what they had to.
    hindered: Timestamp,
    /// Since when its rollouts are paused.
    paused: Option<Timestamp>,
    /// The wanted revision, where its ControllerRevision was deleted while it was halted, and since when it was.
    deleted: Option<(String, Timestamp)>,
    /// Whether it is deleted once the status says that it is halted.
    deletes: bool,
    /// Nodes that were given each revision in place of another, by their names.
    spread: BTreeMap<String, BTreeSet<String>>,
    story: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut life = Self {
            dice: Dice(seed),
            edges: edges::of(seed),
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
            paused: None,
            deleted: None,
            deletes: false,
            spread: BTreeMap::new(),
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

    fn first_install(&mut self) -> Value {
        let nodes = 1 + self.dice.below(2);
        self.install = self.install.max(nodes);
        json!({"daemonlet.dev/first-install": nodes.to_string()})
    }

    fn tell(&mut self, what: String) {
        self.story.push(format!("{} s: {what}", (self.now - START).as_secs_ceil()));
    }

    fn join(&mut self) {
        self.joined += 1;
        let name = format!("n{:02}", self.joined);
        self.nodes.insert(name.clone(), Node::new(name.clone(), self.joined));
        self.ready(&name, "True");
        self.most = self.most.max(self.nodes.len());
    }

    fn ready(&mut self, name: &str, ready: &str) {
        let zone = if name.ends_with(['0', '2', '4', '6', '8']) { "a" } else { "b" };
        // As Kubernetes does, which the DaemonSet does not tolerate.
        let is_tainted = zone == "b" && ready != "True";
        let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
        let taints: Vec<Value> = is_tainted.then_some(taint).into_iter().collect();
        self.api.put(
            WatchedKind::Nodes,
            json!({"metadata": {"name": name, "uid": self.nodes[name].uid, "labels": {"zone": zone}}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        );
    }

    fn daemon(&self) -> Arc<Value> {
        self.api.shared(WatchedKind::DaemonSets, &ObjectKey::new(KEY.0, KEY.1)).cloned().unwrap_or_default()
    }

    /// Another template, or the same with other annotations.
    fn template(&mut self, image: &str, annotations: Value) {
        self.tell(format!("{image} {annotations}"));
        let before = self.daemon();
        let template =
            json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
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
        let selector = json!({"matchLabels": {"app": "net"}});
        let spec = &before["spec"];
        self.generation += i64::from(spec["template"] != template || spec["selector"] != selector);
        self.api.put(
            WatchedKind::DaemonSets,
            json!({"metadata": {"namespace": KEY.0, "name": KEY.1, "uid": "u", "generation": self.generation,
                    "labels": {"daemonlet.dev/mode": "static"}, "annotations": annotations},
                "spec": {"selector": selector, "template": template, "revisionHistoryLimit": 3,
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": self.budget}}},
                "status": before.get("status").cloned().unwrap_or_else(|| json!({}))}),
        );
    }

    /// The current ControllerRevision is deleted.
    fn delete_current(&mut self) {
        let current = self.current();
        self.tell(format!("ControllerRevision {current} is deleted"));
        // Its steps begin anew, and its halt stands.
        let wanted = self.wanted();
        self.had = self.having(&wanted);
        self.deleted = self.halted(&wanted).map(|since| (wanted, since));
        self.api.delete(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &current));
    }

    /// The step that the current revision says it is in.
    fn step_state(&self) -> Option<StepState> {
        let revision = self.api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, self.current()))?;
        let number = revision["revision"].as_i64()?;
        StepState::of(revision["metadata"]["annotations"]["daemonlet.dev/step"].as_str(), number)
    }

    /// How many nodes have a revision, or may take it by an approval that stands.
    fn having(&self, hash: &str) -> usize {
        let has = |node: &&Node| {
            node.running.as_ref().is_some_and(|running| running.hash == hash) || node.may_take(&self.api, hash)
        };
        self.nodes.values().filter(has).count()
    }

    /// The hash of the wanted revision.
    fn wanted(&self) -> String {
        agent::hash_of(&self.daemon()["spec"]["template"])
    }

    fn image(&self) -> String {
        self.daemon()["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned()
    }

    fn annotations(&mut self) -> Value {
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

    /// Something that happens to the cluster.
    fn disturb(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let name = names[self.dice.below(names.len())].clone();
        let later = self.now + Span::from_secs(i64::try_from(1 + self.dice.below(100)).unwrap());
        match self.dice.below(32) {
            29 | 30 => {
                let released = RolloutStatus::of(&self.daemon()["status"], 0).released;
                if released.is_some_and(|released| released.hash != self.wanted()) {
                    self.tell("it is halted by hand, and its ControllerRevision will be deleted".to_owned());
                    let by_hand = Halted { time: self.now.to_string(), cause: "by hand".to_owned(), nodes: vec![] };
                    let annotations = json!({HALTED_ANNOTATION: by_hand.annotation()});
                    let key = ObjectKey::new(KEY.0, self.current());
                    let patch = json!({"metadata": {"annotations": annotations}});
                    self.deletes = self.api.patch(WatchedKind::Revisions, &key, &patch).is_ok();
                }
            }
            31 => {
                let daemon = self.daemon();
                let mut annotations = daemon["metadata"]["annotations"].clone();
                let steps = annotations["daemonlet.dev/steps"].as_str().and_then(steps::parse);
                let state = self.step_state();
                if let Some((step, state)) = steps.zip(state).and_then(|(of, s)| Some((*of.get(s.step - 1)?, s))) {
                    let value = format!("{}/{}/{}/{}", self.current(), state.number, state.step, step.size());
                    annotations[PROMOTED] = json!(value);
                    let image = self.image();
                    self.template(&image, annotations);
                }
            }
            26 => self.delete_current(),
            27 | 28 => {
                let until = later + Span::from_secs(100);
                self.tell(format!("all agents but that of {name} are dead until {}", (until - START).as_secs_ceil()));
                self.nodes.values_mut().filter(|node| node.name != name).for_each(|node| node.dead = until);
            }
            18 | 19 => {
                let are_deleted = self.dice.below(2) == 0;
                let words = if are_deleted { "deleted" } else { "not served" };
                self.tell(format!("NodeDaemons are {words} until {}", (later - START).as_secs_ceil()));
                self.api.hide(are_deleted);
                (self.hidden, self.hindered) = (later, self.hindered.max(later));
            }
            20 | 21 => {
                let failing = self.nodes.values().find(|node| node.has_failed()).map(|node| node.name.clone());
                let name = failing.unwrap_or(name);
                self.tell(format!("{name} is replaced by a new machine of that name"));
                self.leave(&name);
                self.joined += 1;
                self.nodes.insert(name.clone(), Node::new(name.clone(), self.joined));
                self.ready(&name, "True");
            }
            22 => self.retry(),
            23..26 if names.len() > 3 => {
                let wanted = self.wanted();
                let is_broken = |node: &&Node| {
                    node.running.as_ref().is_some_and(|running| running.hash == wanted && running.ready.is_none())
                };
                let broken = self.nodes.values().find(is_broken).map(|node| node.name.clone());
                if let Some(name) = broken {
                    self.tell(format!("{name} is deleted, as it is not well"));
                    self.leave(&name);
                    self.join();
                }
            }
            17 => {
                let image = self.dice.one_of(&["good-1", "good-2", "good-3"]);
                self.template(image, json!({UPDATE: "drain"}));
                self.nodes.values_mut().for_each(|node| node.triggered = later);
                self.untriggers = true;
            }
            14 | 15 => {
                self.tell("a coordinator will be stopped at its next approval".to_owned());
                self.processes.iter_mut().for_each(|process| process.trap = Trap::Set);
            }
            16 => {
                self.tell(format!("coordinators may write nothing until {}", (later - START).as_secs_ceil()));
                self.api.refuses = later;
                self.hindered = self.hindered.max(later);
            }
            10 | 11 => {
                self.tell(format!("{name} is drained until {}", (later - START).as_secs_ceil()));
                self.nodes.entry(name).and_modify(|node| node.triggered = later);
            }
            12 | 13 => self.boot(&name),
            0 | 1 => {
                let image = self.dice.one_of(&["good-1", "good-2", "good-3", "bad-1", "bad-2"]);
                // One that fails on one node is halted while there are slots left, in one of two lives.
                let annotations = match image.starts_with("bad") && self.dice.below(2) == 0 {
                    true => json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/rollback": "off"}),
                    false => self.annotations(),
                };
                self.template(image, annotations);
            }
            2 => {
                let (image, annotations) = (self.image(), self.annotations());
                self.template(&image, annotations);
            }
            3 => {
                let which = self.dice.below(2);
                let is_in_order = self.dice.below(2) == 0;
                self.tell(format!("coordinator {which} {}", if is_in_order { "is stopped in order" } else { "dies" }));
                if is_in_order {
                    self.processes[which].stop(&mut self.api);
                }
                self.started += 1;
                self.processes[which] = Process::new(self.started, self.now + Span::from_secs(1));
            }
            4 => {
                let which = self.dice.below(2);
                self.tell(format!("coordinator {which} is stopped until {}", (later - START).as_secs_ceil()));
                self.processes[which].frozen = later;
            }
            5 => {
                self.tell(format!("{name} is unreachable until {}", (later - START).as_secs_ceil()));
                self.ready(&name, "Unknown");
                self.unreachable.insert(name.clone(), later);
                self.nodes.entry(name).and_modify(|node| node.dead = later);
            }
            6 if self.dice.below(2) == 0 => {
                let until = later + Span::from_secs(200);
                let now = self.now;
                let image = self.image();
                let wanted = self.wanted();
                let has_it = |node: &Node| node.running.as_ref().is_some_and(|running| running.hash == wanted);
                let are_left = !self.nodes.values().all(has_it);
                let broken = self
                    .nodes
                    .values_mut()
                    .filter(|node| has_it(node))
                    .find_map(|node| node.breaks(until, now).then(|| node.name.clone()));
                if let Some(name) = broken {
                    let until = (until - START).as_secs_ceil();
                    self.tell(format!("{name} breaks, and its agent is dead until {until}"));
                    // Others are left when that is noticed.
                    if are_left {
                        self.template(&image, json!({"daemonlet.dev/paused": "true"}));
                        self.resumes = true;
                    }
                }
            }
            6 => {
                self.tell(format!("the agent of {name} is dead until {}", (later - START).as_secs_ceil()));
                self.nodes.entry(name).and_modify(|node| node.dead = later);
            }
            7 if names.len() > 3 => {
                self.tell(format!("{name} goes"));
                self.leave(&name);
            }
            8 if names.len() < 12 => {
                self.join();
                self.tell(format!("n{:02} joins", self.joined));
            }
            _ => {
                let (image, name) = (self.image(), self.current());
                let annotations = json!({"daemonlet.dev/aborted": name});
                self.template(&image, annotations);
            }
        }
    }

    fn leave(&mut self, name: &str) {
        self.nodes.remove(name);
        self.unreachable.remove(name);
        self.api.agents.remove(name);
        self.api.delete(WatchedKind::Nodes, &ObjectKey::new("", name));
        self.api.delete(WatchedKind::NodeDaemons, &ObjectKey::new("", name));
    }

    /// `kubectl daemonlet retry`: the halt of the current revision ends, and failures of now count no more.
    fn retry(&mut self) {
        self.tell("retry".to_owned());
        (self.deleted, self.deletes) = (None, false);
        let failed: Vec<String> =
            self.nodes.values().filter(|node| node.has_failed()).map(|node| node.name.clone()).collect();
        let key = ObjectKey::new(KEY.0, self.current());
        let revision = self.api.get(WatchedKind::Revisions, &key);
        let mark = |name: &str| revision.and_then(|revision| revision["metadata"]["annotations"][name].as_str());
        let halted = mark(HALTED_ANNOTATION).map(Halted::of).map(|halted| halted.nodes).unwrap_or_default();
        let broken = mark(BROKEN_ANNOTATION).map(BrokenNodes::of).unwrap_or_default().nodes;
        let named = halted.into_iter().chain(broken.into_iter().map(|broken| broken.node));
        let retried: BTreeSet<String> = failed.into_iter().chain(named).chain([ALL_RETRIED.to_owned()]).collect();
        let retried = Vec::from_iter(retried).join(",");
        let annotations =
            json!({HALTED_ANNOTATION: Value::Null, BROKEN_ANNOTATION: Value::Null, RETRIED_ANNOTATION: retried});
        self.processes.iter_mut().for_each(|process| process.lost.forgive());
        // There may be none.
        let _ = self.api.patch(WatchedKind::Revisions, &key, &json!({"metadata": {"annotations": annotations}}));
    }

    /// The name of the current revision.
    fn current(&self) -> String {
        let hash = self.wanted();
        let has = |revision: &&Value| history::RevisionFact::hash_of(&revision["data"]) == hash;
        let found = self.api.list(WatchedKind::Revisions).find(has);
        found.map(|revision| revision.str_at(["metadata", "name"]).to_owned()).unwrap_or_default()
    }

    /// One thing that goes on by itself.
    fn go_on(&mut self, is_calm: bool) {
        let now = self.now;
        let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
        for name in self
            .unreachable
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
        {
            self.unreachable.remove(&name);
            self.ready(&name, "True");
        }
        if self.hidden <= now {
            self.api.show();
        }
        if self.deletes && Halted::told(&self.daemon()["status"], self.generation).is_some() {
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
            1 if is_awake => process.watch(&self.api, if is_calm { usize::MAX } else { few }),
            2 if is_awake => {
                process.pass(&self.api, (&settings, budget), now);
                let known = self.nodes.values_mut().filter(|node| process.knows_dead(&node.name));
                // Each of them notes it.
                let is_known = known.filter_map(|node| node.is_known_dead(now).then_some(())).count() > 0;
                if is_known && std::mem::take(&mut self.resumes) {
                    self.tell(format!("coordinator {which} has noticed, and dies"));
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

    fn agent(&mut self, name: &str, reads: bool) {
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
            self.tell(format!("{name} starts"));
            if self.was_let_go {
                let wanted = self.wanted();
                self.had = self.had.max(self.having(&wanted));
            }
            self.installs_hold(name);
            self.first_holds(name);
        }
        if let Some(revision) = replaced {
            self.spread.entry(revision.clone()).or_default().insert(name.to_owned());
            self.tell(format!("{name} replaces by {revision}"));
            self.budget_holds(name, &revision);
            self.halt_holds(name, &revision);
            self.step_holds(name, &revision);
        }
    }

    /// A node boots, and its agent with it.
    fn boot(&mut self, name: &str) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.dead <= now) else { return };
        let replaced = node.boot(now);
        if let Some(revision) = replaced {
            self.tell(format!("{name} replaces by {revision} at its boot"));
            self.halt_holds(name, &revision);
            self.step_holds(name, &revision);
        }
    }

    /// No more nodes are without the service that a rollout took from them than the budget allows. One that was not
    /// heard when the approval was given does not count, unless it has the revision that the rollout goes to. One that broke after that counts where a
    /// coordinator knew that its agent is dead, whoever gave the approval after that.
    fn budget_holds(&self, name: &str, hash: &str) {
        let new = self.nodes[name].running.as_ref().filter(|running| running.is_disruption);
        let approved_at = new.and_then(|running| running.approved_at);
        let is_reported = |node: &Node| self.is_reported(node);
        let taken = |node: &&Node| {
            let Some(running) = node.running.as_ref().filter(|running| running.ready.is_none()) else { return false };
            match node.broken {
                Some(broken) => {
                    let is_known = broken.known.zip(approved_at).is_some_and(|(known, at)| known < at);
                    is_known && running.hash == hash
                }
                None => {
                    let was_heard = node.dead + HEARD_AFTER <= approved_at.map_or(self.now, |at| at.min(self.now));
                    running.is_disruption && (was_heard || running.hash == hash && is_reported(node))
                }
            }
        };
        let taken: Vec<&str> = self.nodes.values().filter(taken).map(|node| node.name.as_str()).collect();
        assert!(taken.len() <= self.budget, "{name} makes it {taken:?} with a budget of {}", self.budget);
    }

    fn is_reported(&self, node: &Node) -> bool {
        self.api.get(WatchedKind::NodeDaemons, &ObjectKey::new("", &node.name)).is_some()
    }

    /// What was never released starts on a node only with the coordinator's approval, and on so many nodes at a time.
    fn installs_hold(&self, name: &str) {
        let daemon = self.daemon();
        let hash = agent::hash_of(&daemon["spec"]["template"]);
        let running = |node: &Node| node.running.clone().filter(|r| r.by_word && r.ready.is_none() && r.hash == hash);
        // One that broke later was available once.
        let is_known = |node: &&Node| node.broken.is_none();
        let is_counted = |node: &&Node| is_known(node) && running(node).is_some();
        let started: Vec<&str> = self.nodes.values().filter(is_counted).map(|n| n.name.as_str()).collect();
        assert!(started.len() <= self.install, "{name} makes it {started:?} of {}", self.install);
        let needs_word = agent::needs_word(&daemon);
        let has_word = self.nodes[name].running.as_ref().is_some_and(|running| running.by_word);
        assert!(!needs_word || has_word, "{name} starts without a word");
    }

    /// Since when a revision is halted, if it is.
    fn halted(&self, hash: &str) -> Option<Timestamp> {
        let is_it = |revision: &&Value| history::RevisionFact::hash_of(&revision["data"]) == hash;
        let revision = self.api.list(WatchedKind::Revisions).find(is_it)?;
        let halted = Halted::of(revision["metadata"]["annotations"][HALTED_ANNOTATION].as_str()?);
        halted.time.parse().ok()
    }

    /// Whether coordinators have had the time to do what follows from something that is so since then.
    fn is_late(&self, since: Timestamp) -> bool {
        self.now - since.max(self.hindered) >= WITHDRAWN
    }

    /// A revision that is halted goes to no more nodes, but for approvals that nobody was there to withdraw.
    fn halt_holds(&self, name: &str, hash: &str) {
        let deleted = self.deleted.as_ref().filter(|(deleted, _)| deleted == hash).map(|(_, since)| *since);
        let since = self.halted(hash).or(deleted).filter(|since| self.is_late(*since));
        assert_eq!(since, None, "{name} takes {hash}, which is halted since then");
    }

    /// A node that never ran it starts with the released revision while nodes are kept on that.
    fn first_holds(&self, name: &str) {
        let daemon = self.daemon();
        let Some(running) = self.nodes[name].running.as_ref().filter(|running| !running.by_word) else { return };
        let released = RolloutStatus::of(&daemon["status"], 0).released;
        if released.is_none_or(|released| released.hash == running.hash) {
            return;
        }
        let since = self.halted(&running.hash).or(self.paused).filter(|since| self.is_late(*since));
        assert_eq!(since, None, "{name} starts with what is halted or paused since then");
    }

    /// A node that takes the wanted revision is one of those that the step allows, or of those that had it, or were
    /// approved, when the steps were written.
    fn step_holds(&self, name: &str, hash: &str) {
        let daemon = self.daemon();
        let Some(text) = daemon["metadata"]["annotations"][STEPS].as_str() else { return };
        let released = RolloutStatus::of(&daemon["status"], 0).released.is_some_and(|released| released.hash == hash);
        if released || self.now < self.unbound || agent::hash_of(&daemon["spec"]["template"]) != hash {
            return;
        }
        let current = self.current();
        let Some(revision) = self.api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &current)) else { return };
        let number = revision["revision"].as_i64().unwrap_or_default();
        let annotation = revision["metadata"]["annotations"]["daemonlet.dev/step"].as_str();
        let state = StepState::of(annotation, number).unwrap_or(StepState::first(number, text));
        // Where they were edited, it may still be in one of those that were written before.
        let of = steps::parse(&state.of).unwrap();
        let step = of[(state.step - 1).min(of.len() - 1)];
        // Nodes that left since were counted when the step was.
        let in_flight = if self.now < self.in_flight { self.budget } else { 0 };
        let allowed = rollout::resolve(&step.nodes, self.most).max(1).max(self.had + in_flight);
        let has = self.nodes.values().filter(|node| node.running.as_ref().is_some_and(|r| r.hash == hash)).count();
        assert!(
            has <= allowed,
            "{name} is the {has}th with {hash} in step {} of {text} ({annotation:?}), {} had it",
            state.step,
            self.had
        );
    }

    /// Everybody is well, and nobody touches anything: all come to rest at what is wanted.
    fn calm_down(&mut self) {
        let image = if self.image().starts_with("bad") { "good-9".to_owned() } else { self.image() };
        let annotations = match self.dice.below(4) {
            0 | 1 => json!({}),
            2 => self.first_install(),
            _ => json!({UPDATE: self.dice.one_of(&["drain", "boot", "manual"])}),
        };
        self.template(&image, annotations);
        for which in 0..2 {
            (self.processes[which].frozen, self.processes[which].trap) = (self.now, Trap::None);
        }
        self.api.refuses = self.now;
        self.api.show();
        let now = self.now;
        self.nodes.values_mut().for_each(|node| (node.dead, node.triggered) = (node.dead.min(now), Timestamp::MAX));
        self.nodes.values_mut().for_each(|node| _ = node.mend());
        let names: Vec<String> = self.unreachable.keys().cloned().collect();
        names.iter().for_each(|name| self.ready(name, "True"));
        self.unreachable.clear();
        self.tell("calm".to_owned());
        // Nodes of a good revision were deleted in the middle of it, and that halts it.
        self.rest(5);
        self.retry();
        self.rest(300);
        self.is_at_rest();
        // Nothing of what runs, and nothing of what is told of it, changes with the resource.
        let before: Vec<_> =
            self.nodes.values().map(|node| node.running.clone()).map(|r| r.map(|r| r.created)).collect();
        self.tell("NodeDaemons are deleted".to_owned());
        self.api.hide(true);
        self.rest(30);
        self.tell("NodeDaemons are served again".to_owned());
        self.api.show();
        self.rest(60);
        self.is_at_rest();
        let after: Vec<_> =
            self.nodes.values().map(|node| node.running.clone()).map(|r| r.map(|r| r.created)).collect();
        assert_eq!(before, after, "somebody replaces what runs, and nobody wanted that");
        self.others_go_on();
        self.comes_back();
    }

    /// So many rounds in which everybody does what there is to do, or until all has been at rest for [`QUIET`]. What is told may be as old as that of some of them.
    fn rest(&mut self, rounds: usize) {
        let mut told = told::Told::default();
        self.go_on_for(rounds, |life| told.look(life.nodes.values(), &life.daemon()));
    }

    /// The same where nobody tells anything.
    fn rest_untold(&mut self, rounds: usize) {
        self.go_on_for(rounds, |_| {});
    }

    fn go_on_for(&mut self, rounds: usize, mut look: impl FnMut(&Self)) {
        let (mut quiet, mut seen) = (0, 0);
        for round in 0..rounds {
            for which in 0..2 {
                let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
                let process = &mut self.processes[which];
                process.renew(&mut self.api, self.now);
                // A pass in the middle of what a watch tells.
                process.watch(&self.api, 3);
                process.pass(&self.api, (&settings, self.budget), self.now);
                process.watch(&self.api, usize::MAX);
                process.pass(&self.api, (&settings, self.budget), self.now);
                while process.deliver(&mut self.api, self.now, true) {}
                assert_eq!(process.broken.take(), None, "a coordinator gives more than it has, or what it may not");
            }
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            names.iter().for_each(|name| {
                self.agent(name, true);
                self.boot(name);
            });
            look(self);
            self.now += Span::from_secs(3);
            quiet = if self.api.log.len() == seen { quiet + 1 } else { 0 };
            seen = self.api.log.len();
            if quiet == QUIET && self.have_it() {
                return;
            }
            if round + 21 == rounds || quiet + 20 == QUIET {
                self.api.writes = 0;
            }
        }
    }

    /// Whether every node has what is wanted.
    fn have_it(&self) -> bool {
        let wanted = self.wanted();
        let has_it = |node: &Node| node.running.as_ref().is_some_and(|r| r.hash == wanted && r.ready.is_some());
        self.nodes.values().all(has_it)
    }

    /// Whether all is as it is told and wanted.
    fn is_at_rest(&self) {
        let daemon = self.daemon();
        let hash = agent::hash_of(&daemon["spec"]["template"]);
        let behind: Vec<_> = self
            .nodes
            .values()
            .filter(|node| node.running.as_ref().is_none_or(|r| r.hash != hash || r.ready.is_none()))
            .map(|node| (&node.name, &node.running))
            .collect();
        let conditions = &daemon["status"]["conditions"];
        assert!(behind.is_empty(), "wanted {hash}, and not there: {behind:?}; {conditions}");
        let count = |field: &str| daemon["status"][field].as_u64().and_then(|count| usize::try_from(count).ok());
        for field in ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"] {
            assert_eq!(count(field), Some(self.nodes.len()), "{field}: {}", daemon["status"]);
        }
        let condition = |kind: &str| {
            let found = daemon["status"].list_at("conditions").iter().find(|c| c.str_at("type") == kind);
            found.map_or("", |c| c.str_at("reason")).to_owned()
        };
        for (kind, reason) in [
            ("Released", "Complete"),
            ("Progressing", "Complete"),
            ("Available", "AllAvailable"),
            ("Degraded", "AsExpected"),
            ("Halted", ""),
        ] {
            assert_eq!(condition(kind), reason, "{kind}: {conditions}");
        }
        let approved = |it: &&Value| it["spec"]["approvals"].as_array().is_some_and(|approvals| !approvals.is_empty());
        let approved: Vec<&Value> = self.api.list(WatchedKind::NodeDaemons).filter(approved).collect();
        assert!(approved.is_empty(), "what is done is approved: {approved:?}");
        assert_eq!(self.api.writes, 0, "somebody writes though nothing happens; {conditions}");
        assert!(self.api.events.len() < 60, "{} events", self.api.events.len());
    }
}

/// A life that breaks a law.
struct Broken {
    seed: u64,
    law: String,
    story: Vec<String>,
}

/// Plays one life.
fn play(seed: u64) -> Result<(), Broken> {
    let mut life = Life::new(seed);
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for step in 0..LENGTH {
            if step > 150 && life.dice.below(40) == 0 {
                life.disturb();
            }
            if step > 150 {
                life.may_be_odd();
            }
            for _ in 0..6 {
                life.go_on(false);
            }
        }
        life.calm_down();
    }));
    played.map_err(|_| Broken { seed, law: SAID.take(), story: life.story })
}

/// Plays the lives of these seeds on all processors; gives the first of them that breaks a law.
fn first_broken(seeds: Range<u64>) -> Option<Broken> {
    let next = AtomicU64::new(seeds.start);
    let first: Mutex<Option<Broken>> = Mutex::new(None);
    let is_after = |first: &Mutex<Option<Broken>>, seed| first.lock().unwrap().as_ref().is_some_and(|b| b.seed < seed);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // Lives before one that breaks a law are played to their end.
            if seed >= seeds.end || is_after(&first, seed) {
                return;
            }
            if let Err(broken) = play(seed)
                && !is_after(&first, seed)
            {
                *first.lock().unwrap() = Some(broken);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    first.into_inner().unwrap()
}

#[test]
fn whatever_happens_the_budget_holds_and_all_come_to_rest() {
    std::panic::set_hook(Box::new(|panic| SAID.set(panic.to_string())));
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("DAEMONLET_SEED").unwrap_or(0);
    let count = number("DAEMONLET_SEEDS").unwrap_or(if first == 0 { 40 } else { 1 });
    let broken = first_broken(first..first + count);
    let _ = std::panic::take_hook();
    if let Some(Broken { seed, law, story }) = broken {
        panic!("{}\nseed {seed}: {law}", story.join("\n"));
    }
}
