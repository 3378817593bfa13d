//! What holds in every round, whatever happens.

use daemonlet::core::cluster::history;
use daemonlet::core::cluster::released::HALTED_ANNOTATION;
use daemonlet::core::cluster::released::Halted;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::rollout;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::cluster::steps;
use daemonlet::core::cluster::steps::StepState;
use daemonlet::core::model::ABORTED;
use daemonlet::core::model::CANARY;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PARTITION;
use daemonlet::core::model::STEPS;
use daemonlet::core::model::WINDOW;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use daemonlet::core::window::Window;
use serde_json::Value;

use crate::KEY;
use crate::KNOWN_AFTER;
use crate::WITHDRAWN;
use crate::agent;
use crate::agent::Node;
use crate::agent::Running;
use crate::clocks;

use super::Life;

impl Life {
    /// No more nodes are without the service that a rollout took from them than the budget allows. One
    /// whose agent was not known to live when the approval was given does not count, unless it has the revision that the
    /// rollout goes to. One that broke after that counts where a coordinator knew that its agent is dead, whoever gave the
    /// approval after that. A Node that a coordinator may have seen elsewhere takes no slot, nor, by what another rollout took,
    /// one that it may have seen with taints: the daemon should not run there (`RolloutView::counts`); nor one
    /// that lacked an object.
    pub(super) fn budget_holds(&self, name: &str, hash: &str) {
        let new = self.nodes[name].running.as_ref().filter(|running| running.is_disruption);
        let given = new.and_then(|running| running.given);
        let approved_at = given.map(|given| given.at);
        if approved_at.is_some_and(|at| self.was_blind(at)) {
            return;
        }
        let is_reported = |node: &Node| self.is_reported(node);
        let may_be_elsewhere = |node: &Node| approved_at.is_some_and(|at| node.placed.may_have_been_elsewhere(at));
        let may_have_taints =
            |node: &Node| approved_at.is_some_and(|at| node.placed.may_have_had_taints(&node.name, at));
        let surges = self.surged_at(approved_at.unwrap_or(self.now));
        let taken = |node: &&Node| {
            let is_young = |running: &Running| running.hash == hash && self.is_young(node, running, given);
            let is_counted = |running: &&Running| running.ready.is_none() || is_young(running);
            let Some(running) = node.running.as_ref().filter(is_counted) else { return false };
            match node.broken {
                Some(broken) => {
                    let is_known = broken.known.zip(approved_at).is_some_and(|(known, at)| known < at);
                    is_known && running.hash == hash && !given.is_some_and(|given| given.may_have_believed(node))
                }
                // A surge takes nothing from a node, and what another rollout took is none of its slots.
                None if surges && running.hash != hash && !node.surges() => false,
                None if running.hash != hash && approved_at.is_some_and(|at| node.may_have_lacked(at)) => false,
                None if may_be_elsewhere(node) || running.hash != hash && may_have_taints(node) => false,
                None => {
                    let was_known = node.dead + KNOWN_AFTER <= approved_at.map_or(self.now, |at| at.min(self.now));
                    running.is_disruption && (was_known || running.hash == hash && is_reported(node))
                }
            }
        };
        let is_lost = |node: &&Node| approved_at.is_some_and(|at| self.is_lost_to_its_node(node, hash, at));
        let taken = |node: &&Node| taken(node) || is_lost(node);
        let taken: Vec<&str> = self.nodes.values().filter(taken).map(|node| node.name.as_str()).collect();
        let when = approved_at.map(|at| (at - super::START).as_secs_ceil());
        assert!(taken.len() <= self.budget, "{name}, approved at {when:?}, makes it {taken:?} of {}", self.budget);
    }

    pub(crate) fn is_reported(&self, node: &Node) -> bool {
        self.api.get(WatchedKind::NodeDaemons, &ObjectKey::new("", &node.name)).is_some()
    }

    /// What was never released starts on a node only with the coordinator's approval, and on so many nodes at a time.
    pub(super) fn installs_hold(&self, name: &str) {
        let daemon = self.daemon();
        let hash = agent::hash_of(&daemon["spec"]["template"]);
        let running =
            |node: &Node| node.running.clone().filter(|r| r.is_approved_install && r.ready.is_none() && r.hash == hash);
        // One that broke later was available once.
        let is_known = |node: &&Node| node.broken.is_none();
        let is_counted = |node: &&Node| is_known(node) && running(node).is_some();
        let started: Vec<&str> = self.nodes.values().filter(is_counted).map(|n| n.name.as_str()).collect();
        assert!(started.len() <= self.install, "{name} makes it {started:?} of {}", self.install);
        let needs_approval = agent::needs_approval(&daemon);
        let has_approval = self.nodes[name].running.as_ref().is_some_and(|running| running.is_approved_install);
        assert!(!needs_approval || has_approval, "{name} starts without an approval");
    }

    /// Since when a revision is halted, if it is.
    pub(super) fn halted(&self, hash: &str) -> Option<Timestamp> {
        let is_it = |revision: &&Value| history::RevisionFact::hash_of(&revision["data"]) == hash;
        let revision = self.api.list(WatchedKind::Revisions).find(is_it)?;
        let text = revision["metadata"]["annotations"][HALTED_ANNOTATION].as_str()?;
        self.api.halted.get(text).copied().or(Halted::of(text).time)
    }

    /// Whether coordinators have had the time to do what follows from something that is so since then.
    pub(super) fn is_late(&self, since: Timestamp) -> bool {
        self.now - since.max(self.hindered) >= WITHDRAWN
    }

    /// A revision that is halted goes to no more nodes, but for approvals that no coordinator was there to withdraw.
    pub(super) fn halt_holds(&self, name: &str, hash: &str) {
        let deleted = self.deleted.as_ref().filter(|(deleted, _)| deleted == hash).map(|(_, since)| *since);
        let since = self.halted(hash).or(deleted).filter(|since| self.is_late(*since));
        assert_eq!(since, None, "{name} takes {hash}, which is halted since then");
    }

    /// A node that never ran it starts with the released revision while nodes are kept on that.
    pub(super) fn first_holds(&self, name: &str) {
        let daemon = self.daemon();
        let Some(running) = self.nodes[name].running.as_ref().filter(|running| !running.is_approved_install) else {
            return;
        };
        let released = RolloutStatus::of(&daemon["status"], 0).released;
        let Some(released) = released.filter(|released| released.hash != running.hash) else { return };
        let since = self.halted(&running.hash).or(self.paused).filter(|since| self.is_late(*since));
        assert_eq!(since, None, "{name} starts with what is halted or paused since then");
        // Without its ControllerRevision the newest starts all the same.
        let is_there = self.api.get(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &released.name)).is_some();
        let is_newest = running.hash == self.wanted() && self.odd.is_none();
        let held = self.held(name).filter(|_| is_newest && is_there && self.is_late(self.written));
        assert_eq!(held, None, "{name} starts with the newest revision, which others are kept from");
    }

    /// What keeps nodes on the released revision since it was written, if something certainly does. `joins`: a node that may
    /// not have kept to it.
    fn held(&self, joins: &str) -> Option<&'static str> {
        let (daemon, wanted) = (self.daemon(), self.wanted());
        let annotation = |name: &str| daemon["metadata"]["annotations"][name].as_str();
        let has_it = |node: &Node| node.running.as_ref().is_some_and(|running| running.hash == wanted);
        let zone = |node: &Node| {
            let it = self.api.get(WatchedKind::Nodes, &ObjectKey::new("", &node.name));
            it.is_some_and(|it| it["metadata"]["labels"]["zone"] == "a")
        };
        let others = || self.nodes.values().filter(|node| node.name != joins);
        // Not before all canary nodes have it does another one.
        let is_canary_phase = || {
            !self.nodes.values().any(|node| node.placed.may_have_been_elsewhere(self.written))
                && others().any(|node| zone(node) && !has_it(node) && node.running.is_some())
                && !others().any(|node| !zone(node) && has_it(node))
        };
        let is_closed = |text: &str| {
            let window = Window::parse(text).unwrap();
            let wrong = if self.clocks.is_some() { clocks::MINUTES } else { 0 };
            (-wrong..=5 + wrong).all(|minutes| !window.contains(self.now - Span::from_secs(60 * minutes)))
        };
        let is_before_last = |text: &str| {
            let last = steps::parse(text).map_or(0, |steps| steps.len());
            self.step_state().is_some_and(|state| state.of == text && state.step < last)
        };
        let aborted = annotation(ABORTED).filter(|name| !name.is_empty() && *name == self.current());
        let partition = annotation(PARTITION).filter(|text| *text != "0");
        let holds = [
            (aborted.is_some(), "it is aborted"),
            (partition.is_some(), "a partition"),
            (annotation(WINDOW).is_some_and(is_closed), "its window is closed"),
            (annotation(STEPS).is_some_and(is_before_last), "a step that is not the last"),
            (annotation(CANARY).is_some() && is_canary_phase(), "its canary phase"),
        ];
        holds.into_iter().find_map(|(is_so, words)| is_so.then_some(words))
    }

    /// A node that takes the wanted revision is one of those that the step allows, or of those that had it, or were
    /// approved, when the steps were written.
    pub(super) fn step_holds(&self, name: &str, hash: &str) {
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
}
