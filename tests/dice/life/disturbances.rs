//! What people, machines and networks do to the cluster.

use std::collections::BTreeSet;

use daemonlet::core::cluster::broken::BROKEN_ANNOTATION;
use daemonlet::core::cluster::broken::BrokenNodes;
use daemonlet::core::cluster::released::ALL_RETRIED;
use daemonlet::core::cluster::released::HALTED_ANNOTATION;
use daemonlet::core::cluster::released::Halted;
use daemonlet::core::cluster::released::RETRIED_ANNOTATION;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::steps;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PROMOTED;
use daemonlet::core::model::UPDATE;
use daemonlet::core::time::Span;
use serde_json::Value;
use serde_json::json;

use crate::KEY;
use crate::START;
use crate::agent::Node;
use crate::coordinator::Process;
use crate::coordinator::Trap;

use super::Life;

impl Life {
    /// Something that happens to the cluster.
    pub(crate) fn disturb(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let name = names[self.dice.below(names.len())].clone();
        let later = self.now + Span::from_secs(i64::try_from(1 + self.dice.below(100)).unwrap());
        match self.dice.below(32) {
            29 | 30 => {
                let released = RolloutStatus::of(&self.daemon()["status"], 0).released;
                if released.is_some_and(|released| released.hash != self.wanted()) {
                    self.log("it is halted by hand, and its ControllerRevision will be deleted".to_owned());
                    let by_hand = Halted { time: Some(self.now), ..Halted::by_hand("by hand".to_owned()) };
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
                self.log(format!("all agents but that of {name} are dead until {}", (until - START).as_secs_ceil()));
                self.nodes.values_mut().filter(|node| node.name != name).for_each(|node| node.dead = until);
            }
            18 | 19 => {
                let are_deleted = self.dice.below(2) == 0;
                let words = if are_deleted { "deleted" } else { "not served" };
                self.log(format!("NodeDaemons are {words} until {}", (later - START).as_secs_ceil()));
                self.api.hide(are_deleted);
                (self.hidden, self.hindered) = (later, self.hindered.max(later));
            }
            20 | 21 => {
                let failing = self.nodes.values().find(|node| node.has_failed()).map(|node| node.name.clone());
                let name = failing.unwrap_or(name);
                self.log(format!("{name} is replaced by a new machine of that name"));
                self.leave(&name);
                self.machine(&name);
            }
            22 => self.retry(),
            23..26 if names.len() > 3 => {
                let wanted = self.wanted();
                let is_broken = |node: &&Node| {
                    node.running.as_ref().is_some_and(|running| running.hash == wanted && running.ready.is_none())
                };
                let broken = self.nodes.values().find(is_broken).map(|node| node.name.clone());
                if let Some(name) = broken {
                    self.log(format!("{name} is deleted, as it is not well"));
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
                self.log("a coordinator will be stopped at its next approval".to_owned());
                self.processes.iter_mut().for_each(|process| process.trap = Trap::Set);
            }
            16 => {
                self.log(format!("coordinators may write nothing until {}", (later - START).as_secs_ceil()));
                self.api.refuses = later;
                self.hindered = self.hindered.max(later);
            }
            10 | 11 => {
                self.log(format!("{name} is drained until {}", (later - START).as_secs_ceil()));
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
                self.log(format!("coordinator {which} {}", if is_in_order { "is stopped in order" } else { "dies" }));
                if is_in_order {
                    self.processes[which].stop(&mut self.api);
                }
                self.started += 1;
                self.processes[which] = Process::new(self.started, self.now + Span::from_secs(1));
            }
            4 => {
                let which = self.dice.below(2);
                self.log(format!("coordinator {which} is stopped until {}", (later - START).as_secs_ceil()));
                self.processes[which].frozen = later;
            }
            5 => {
                self.log(format!("{name} is unreachable until {}", (later - START).as_secs_ceil()));
                self.unreachable.insert(name.clone(), later);
                self.write_node(&name);
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
                    self.log(format!("{name} breaks, and its agent is dead until {until}"));
                    // Others are left when that is noticed.
                    if are_left {
                        self.template(&image, json!({"daemonlet.dev/paused": "true"}));
                        self.resumes = true;
                    }
                }
            }
            6 => {
                self.log(format!("the agent of {name} is dead until {}", (later - START).as_secs_ceil()));
                self.nodes.entry(name).and_modify(|node| node.dead = later);
            }
            7 if names.len() > 3 => {
                self.log(format!("{name} goes"));
                self.leave(&name);
            }
            8 if names.len() < 12 => {
                self.join();
                self.log(format!("n{:02} joins", self.joined));
            }
            _ => {
                let (image, name) = (self.image(), self.current());
                let annotations = json!({"daemonlet.dev/aborted": name});
                self.template(&image, annotations);
            }
        }
    }

    pub(super) fn leave(&mut self, name: &str) {
        self.nodes.remove(name);
        self.unreachable.remove(name);
        self.api.agents.remove(name);
        self.api.delete(WatchedKind::Nodes, &ObjectKey::new("", name));
        self.api.delete(WatchedKind::NodeDaemons, &ObjectKey::new("", name));
    }

    /// `kubectl daemonlet retry`: the halt of the current revision ends, and failures of now count no more.
    pub(super) fn retry(&mut self) {
        self.log("retry".to_owned());
        (self.deleted, self.deletes, self.written) = (None, false, self.now);
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
}
