//! The end of a life: all is mended, and what is wanted comes to be.

use daemonlet::core::cluster::conditions;
use daemonlet::core::cluster::pass::Settings;
use daemonlet::core::cluster::released::HALTED;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::UPDATE;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

use crate::QUIET;
use crate::agent;
use crate::agent::Node;
use crate::coordinator::Trap;
use crate::recent_truth;

use super::Life;

/// Rounds without a change after which nothing goes on: more than what is looked at again by time takes.
const STANDSTILL: usize = 25;

impl Life {
    /// All are well, and nothing is changed any more: they come to rest at what is wanted.
    pub(crate) fn calm_down(&mut self) {
        self.wake();
        self.status_says_what_holds();
        let image = if self.image().starts_with("bad") { "good-9".to_owned() } else { self.image() };
        let annotations = match self.dice.below(4) {
            0 | 1 => json!({}),
            2 => self.first_install(),
            _ => json!({UPDATE: self.dice.one_of(&["drain", "boot", "manual"])}),
        };
        self.set_min_ready(false);
        self.template(&image, annotations);
        self.log("calm".to_owned());
        // Nodes of a good revision were deleted in the middle of it, and that halts it.
        self.rest(5);
        self.retry();
        self.rest(300);
        self.is_at_rest();
        // Nothing of what runs, and nothing of what the status says of it, changes with the resource.
        let before: Vec<_> =
            self.nodes.values().map(|node| node.running.clone()).map(|r| r.map(|r| r.created)).collect();
        self.log("NodeDaemons are deleted".to_owned());
        self.api.hide(true);
        self.rest(30);
        self.log("NodeDaemons are served again".to_owned());
        self.api.show();
        self.rest(60);
        self.is_at_rest();
        let after: Vec<_> =
            self.nodes.values().map(|node| node.running.clone()).map(|r| r.map(|r| r.created)).collect();
        assert_eq!(before, after, "what runs is replaced, which was not wanted");
        self.others_go_on();
        self.comes_back();
        self.fleet_comes_to_rest();
    }

    /// Whatever was broken or away is well again.
    fn wake(&mut self) {
        for which in 0..2 {
            (self.processes[which].frozen, self.processes[which].trap) = (self.now, Trap::None);
        }
        self.api.refuses = self.now;
        self.api.blind = (self.now, self.now);
        self.api.show();
        let now = self.now;
        self.nodes.values_mut().for_each(|node| (node.dead, node.triggered) = (node.dead.min(now), Timestamp::MAX));
        self.nodes.values_mut().for_each(|node| _ = node.mend());
        self.nodes_recover(Timestamp::MAX);
    }

    /// Nothing is changed, and nothing happens any more: where nodes do not have what is wanted, the status says what
    /// keeps them from it.
    fn status_says_what_holds(&mut self) {
        let (mut quiet, mut seen) = (0, 0);
        for _ in 0..STANDSTILL * 10 {
            self.round();
            self.now += Span::from_secs(3);
            quiet = if self.api.log.len() == seen { quiet + 1 } else { 0 };
            seen = self.api.log.len();
            if quiet == STANDSTILL {
                break;
            }
        }
        if quiet < STANDSTILL || self.odd.is_some() || self.have_it() {
            return;
        }
        let daemon = self.daemon();
        let conditions = daemon["status"].list_at("conditions");
        let is_reason = |c: &Value| match c.str_at("type") {
            "Progressing" => conditions::is_held(c),
            kind => matches!(kind, "Degraded" | HALTED) && c.str_at("status") == "True",
        };
        assert!(conditions.iter().any(is_reason), "nothing goes on, and no condition says why: {}", daemon["status"]);
    }

    /// So many rounds in which all do what there is to do, or until all has been at rest for [`QUIET`]. What the status
    /// reports may be as old as that of some of them.
    pub(crate) fn rest(&mut self, rounds: usize) {
        let mut truth = recent_truth::RecentTruth::default();
        self.go_on_for(rounds, |life| truth.look(life.nodes.values(), &life.daemon()));
    }

    /// The same without a check of the status.
    pub(crate) fn rest_unchecked(&mut self, rounds: usize) {
        self.go_on_for(rounds, |_| {});
    }

    pub(crate) fn go_on_for(&mut self, rounds: usize, mut look: impl FnMut(&Self)) {
        let (mut quiet, mut seen) = (0, 0);
        for round in 0..rounds {
            self.round();
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

    /// All do what there is to do.
    fn round(&mut self) {
        for which in 0..2 {
            let settings = Settings { default_node_selector: String::new(), exact_rollouts: false };
            let process = &mut self.processes[which];
            process.renew(&mut self.api, self.now);
            // A pass in the middle of what a watch delivers.
            process.watch(&self.api, 3, self.now);
            process.pass(&mut self.api, (&settings, self.budget), self.now);
            process.watch(&self.api, usize::MAX, self.now);
            process.pass(&mut self.api, (&settings, self.budget), self.now);
            while process.deliver(&mut self.api, self.now, true) {}
            assert_eq!(process.broken.take(), None, "a coordinator gives more than it has, or what it may not");
        }
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        names.iter().for_each(|name| {
            self.agent(name, true);
            self.boot(name);
        });
    }

    /// Whether every node has what is wanted.
    pub(super) fn have_it(&self) -> bool {
        let wanted = self.wanted();
        let has_it = |node: &Node| node.running.as_ref().is_some_and(|r| r.hash == wanted && r.ready.is_some());
        self.nodes.values().all(|node| has_it(node) && !node.surges() || !node.placed.is_selected())
    }

    /// Whether all is as it is reported and wanted.
    pub(crate) fn is_at_rest(&self) {
        let daemon = self.daemon();
        let hash = agent::hash_of(&daemon["spec"]["template"]);
        let behind: Vec<_> = self
            .nodes
            .values()
            .filter(|node| node.surges() || node.running.as_ref().is_none_or(|r| r.hash != hash || r.ready.is_none()))
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
        assert_eq!(self.api.writes, 0, "a coordinator writes though nothing happens; {conditions}");
        assert!(self.api.events.len() < 60, "{} events", self.api.events.len());
    }
}
