//! DaemonSets that surge, and Nodes that are NotReady for a while or are selected no more.
//!
//! Owns these moves, which a source of their own draws, in two of four lives, and the laws that they alone have.

use serde_json::json;

use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::ABORTED;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PARTITION;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use super::Dice;
use super::Life;
use super::START;
use super::WITHDRAWN;
use super::agent::Node;
use super::clocks;

/// The source of a seed, where its life has such moves.
pub(super) fn of(seed: u64) -> Option<Dice> {
    (seed % 4 > 1).then_some(Dice(!seed ^ 0x5eed))
}

impl Life {
    /// Writes a Node as it is.
    pub(super) fn write_node(&mut self, name: &str) {
        let node = &self.nodes[name];
        let mut new = node.placed.node((name, &node.uid), self.unreachable.contains_key(name));
        if self.clocks.is_some() || node.clock != Span::ZERO {
            let before = self.api.get(WatchedKind::Nodes, &ObjectKey::new("", name));
            clocks::date(&mut new, before, self.now, node.clock);
        }
        self.api.put(WatchedKind::Nodes, new);
    }

    /// Nodes are well again whose time has come, or by `by`, if that is later.
    pub(super) fn nodes_recover(&mut self, by: Timestamp) {
        let (now, by) = (self.now, by.max(self.now));
        let is_over = |(name, until): (&String, &Timestamp)| (*until <= by).then(|| name.clone());
        let mut changed: Vec<String> = self.unreachable.iter().filter_map(is_over).collect();
        self.unreachable.retain(|_, until| *until > by);
        let recovered =
            self.nodes.values_mut().filter_map(|node| node.placed.recover(by, now).then(|| node.name.clone()));
        changed.extend(recovered);
        changed.iter().for_each(|name| self.write_node(name));
    }

    /// Perhaps something of these happens.
    pub(super) fn may_move_the_fleet(&mut self) {
        if let Some(mut fleet) = self.fleet.take() {
            if fleet.below(50) == 0 {
                self.move_the_fleet(&mut fleet);
            }
            self.fleet = Some(fleet);
        }
    }

    fn move_the_fleet(&mut self, fleet: &mut Dice) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let name = names[fleet.below(names.len())].clone();
        let later = self.now + Span::from_secs(i64::try_from(1 + fleet.below(100)).unwrap());
        let until = (later - START).as_secs_ceil();
        let annotations = self.daemon()["metadata"]["annotations"].clone();
        match fleet.below(10) {
            0..3 => {
                self.log(format!("{name} is NotReady until {until}"));
                self.is_not_ready(&name, later);
            }
            3..5 if names.len() > 3 => {
                self.log(format!("{name} is not selected until {until}"));
                self.is_elsewhere(&name, later);
            }
            5 => {
                let image = self.image();
                self.surge(!self.surges.0);
                self.template(&image, annotations);
            }
            6 | 7 => {
                let image = fleet.one_of(&["good-1", "good-2", "good-3", "bad-1"]);
                self.surge(true);
                self.template(image, json!({}));
            }
            // An abort beside a surge, which is waited for no longer than until the next of these moves.
            8 | 9 if self.nodes.values().any(Node::surges) => {
                let (image, name) = (self.image(), self.current());
                self.template(&image, json!({ABORTED: name}));
            }
            _ => {}
        }
    }

    /// New instances start beside old ones from the next template on, or in their place.
    fn surge(&mut self, surges: bool) {
        if self.surges.0 != surges {
            self.log(if surges { "it surges" } else { "it surges no more" }.to_owned());
            self.surges = (surges, self.now);
        }
    }

    fn is_not_ready(&mut self, name: &str, until: Timestamp) {
        let now = self.now;
        self.nodes.entry(name.to_owned()).and_modify(|node| {
            node.placed.not_ready = Some((node.placed.not_ready.map_or(now, |(since, _)| since), until));
        });
        self.write_node(name);
    }

    fn is_elsewhere(&mut self, name: &str, until: Timestamp) {
        self.nodes.entry(name.to_owned()).and_modify(|node| node.placed.elsewhere = Some(until));
        self.write_node(name);
    }

    /// Whether new instances started beside old ones when an approval was given, or may have done so.
    pub(super) fn surged_at(&self, approved_at: Timestamp) -> bool {
        let (surges, since) = self.surges;
        surges || approved_at < since + WITHDRAWN
    }

    /// Whether a node took a slot when an approval was given only because its Node was NotReady: coordinators knew that, and
    /// it served apart from that. One that surges has no slots for such nodes.
    pub(super) fn is_lost_to_its_node(&self, node: &Node, hash: &str, approved_at: Timestamp) -> bool {
        let has_it = node.running.as_ref().is_some_and(|running| running.hash == hash);
        let counts = has_it || node.placed.should_run(&node.name);
        let lives = node.can_take(approved_at) && self.is_reported(node) && !self.unreachable.contains_key(&node.name);
        !self.surged_at(approved_at) && counts && lives && node.placed.was_known_not_ready(approved_at)
    }

    /// One Node is NotReady, one is not selected, and the others surge: all is told as it is, and the others go on.
    pub(super) fn fleet_comes_to_rest(&mut self) {
        let Some(mut fleet) = self.fleet.take() else { return };
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let (unready, other) = (fleet.below(names.len()), 1 + fleet.below(names.len() - 1));
        let (unready, other) = (names[unready].clone(), names[(unready + other) % names.len()].clone());
        // That node takes one slot for ever, unless new instances surge.
        self.budget = self.budget.max(2);
        let surges = fleet.below(2) == 0;
        self.surge(surges);
        self.log(format!("{unready} is NotReady, {other} is not selected"));
        self.is_not_ready(&unready, Timestamp::MAX);
        self.is_elsewhere(&other, Timestamp::MAX);
        self.template("good-7", json!({}));
        self.rest(if self.nodes.len() > 12 { 200 } else { 60 });
        let (wanted, status) = (self.wanted(), self.daemon()["status"].clone());
        for node in self.nodes.values() {
            let runs: Vec<&str> = node.instances().iter().map(|(running, _)| running.hash.as_str()).collect();
            let expected: &[&str] = if node.name == other { &[] } else { &[&wanted] };
            let is_kept = node.name == unready;
            assert!(is_kept || runs == expected, "{} runs {runs:?} of {wanted}: {status}", node.name);
        }
        let tells = |kind: &str, reason: &str| {
            status.list_at("conditions").iter().any(|c| c.str_at("type") == kind && c.str_at("reason") == reason)
        };
        assert!(!tells("Available", "AllAvailable") || !self.nodes[&unready].placed.should_run(&unready), "{status}");
        let written = self.api.get(WatchedKind::NodeDaemons, &ObjectKey::new("", &other));
        let given = written.is_some_and(|written| !written["spec"].list_at("approvals").is_empty());
        assert!(!given, "{other} is not selected, and is approved");
        self.log("both are as before".to_owned());
        self.nodes_recover(Timestamp::MAX);
        self.rest(60);
        self.is_at_rest();
        let image = fleet.one_of(&["good-5", "good-6"]);
        self.surge(true);
        // Of what surges none is ever without an instance that serves.
        self.template(image, json!({PARTITION: "0"}));
        self.go_on_for(if self.nodes.len() > 12 { 200 } else { 60 }, |life| {
            let without = life.nodes.values().find(|node| !node.serves()).map(|node| &node.name);
            assert_eq!(without, None, "a surge takes the service away");
            let surging = life.nodes.values().filter(|node| node.surges()).count();
            assert!(surging <= life.budget, "{surging} surge in a budget of {}", life.budget);
        });
        self.is_at_rest();
        self.fleet = Some(fleet);
    }
}
