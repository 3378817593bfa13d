//! What happens more rarely: nodes that never take a revision, ControllerRevisions that get another name, definitions
//! that are refused, DaemonSets that are let go and taken back, steps that are edited.
//!
//! Owns these moves, which a source of their own draws, in every second life, and the laws that they alone have.

use serde_json::Value;
use serde_json::json;

use daemonlet::core::cluster::conditions;
use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::MODE_LABEL;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::model::PARTITION;
use daemonlet::core::model::PROGRESS_DEADLINE;
use daemonlet::core::model::STEPS;
use daemonlet::core::time::Span;

use super::Dice;
use super::KEY;
use super::Life;
use super::agent::Ailment;

/// What is wrong with the DaemonSet for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oddness {
    /// Its mode is misspelt: the definition is refused.
    Mistyped,
    /// Its selector matches not its template: the definition is refused.
    Unselected,
    /// It has no mode: agents let it go.
    Unlabelled,
    /// The DaemonSet controller runs it.
    Stock,
}

const ODD: [Oddness; 4] = [Oddness::Mistyped, Oddness::Unselected, Oddness::Unlabelled, Oddness::Stock];
const AILMENTS: [Ailment; 4] = [Ailment::Fails, Ailment::Waits, Ailment::Claims, Ailment::Lacks];

/// The source of a seed, where its life has such moves.
pub(super) fn of(seed: u64) -> Option<Dice> {
    (seed % 2 == 1).then_some(Dice(!seed))
}

impl Life {
    /// Perhaps something of these happens.
    pub(super) fn may_be_odd(&mut self) {
        if let Some(mut edges) = self.edges.take() {
            if edges.below(60) == 0 {
                self.odd_move(&mut edges);
            }
            self.edges = Some(edges);
        }
    }

    fn odd_move(&mut self, edges: &mut Dice) {
        let (image, mut annotations) = (self.image(), self.daemon()["metadata"]["annotations"].clone());
        match edges.below(12) {
            0..3 => {
                let (names, ailment, wanted) = (self.names(), edges.one_of(&AILMENTS), self.wanted());
                let name = names[edges.below(names.len())].clone();
                self.log(format!("{name} {ailment:?} {wanted}"));
                self.nodes.entry(name).and_modify(|node| node.ails(ailment, &wanted));
            }
            3 => {
                let mended = self.nodes.values_mut().filter_map(|node| node.mend().then(|| node.name.clone()));
                let words = format!("{:?} are mended", mended.collect::<Vec<_>>());
                self.log(words);
            }
            11 => {
                let wanted = self.wanted();
                self.log(format!("an object that {wanted} needs is gone"));
                self.nodes.values_mut().for_each(|node| node.ails(Ailment::Lacks, &wanted));
            }
            4..6 => self.rename_a_revision(edges),
            6..8 => {
                let oddness = edges.one_of(&ODD);
                let until = self.now + Span::from_secs(i64::try_from(1 + edges.below(100)).unwrap());
                self.is_odd(oddness);
                self.odd = Some(until);
            }
            8 => {
                annotations[PARTITION] = json!("some");
                self.template(&image, annotations);
            }
            _ if annotations.get(STEPS).is_some() => {
                let steps = ["1,20s ; 50%,20s;100%", "1, 20s; 25%, 20s; 50%, 20s; 100%", "2, 20s; 100%"];
                annotations[STEPS] = json!(edges.one_of(&steps));
                self.template(&image, annotations);
            }
            _ => {}
        }
    }

    fn names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// A ControllerRevision is restored under another name, with all that it says.
    fn rename_a_revision(&mut self, edges: &mut Dice) {
        let all: Vec<Value> = self.api.list(WatchedKind::Revisions).cloned().collect();
        let Some(mut renamed) = all.get(edges.below(all.len())).cloned() else { return };
        let name = renamed.str_at(["metadata", "name"]).to_owned();
        let new = format!("net-restored-{}", edges.below(1_000));
        self.log(format!("ControllerRevision {name} is {new} by now"));
        self.api.delete(WatchedKind::Revisions, &ObjectKey::new(KEY.0, &name));
        renamed["metadata"]["uid"] = json!(format!("uid-{new}-{}", self.api.log.len()));
        renamed["metadata"]["name"] = json!(new);
        self.api.put(WatchedKind::Revisions, renamed);
    }

    /// Something is wrong with the DaemonSet from now on, until its template is written.
    fn is_odd(&mut self, oddness: Oddness) {
        self.log(format!("the DaemonSet is {oddness:?}"));
        let mut daemon = Value::clone(&self.daemon());
        let labels = &mut daemon["metadata"]["labels"];
        match oddness {
            Oddness::Mistyped => labels[MODE_LABEL] = json!("statik"),
            Oddness::Stock => labels[MODE_LABEL] = json!("bootstrap"),
            Oddness::Unlabelled => *labels = json!({}),
            Oddness::Unselected => {
                daemon["spec"]["selector"]["matchLabels"]["app"] = json!("other");
                self.generation += 1;
                daemon["metadata"]["generation"] = json!(self.generation);
            }
        }
        self.was_let_go |= matches!(oddness, Oddness::Unlabelled | Oddness::Stock);
        self.api.put(WatchedKind::DaemonSets, daemon);
    }

    /// What was wrong with the DaemonSet is so no more, if its time has come.
    pub(super) fn is_odd_no_more(&mut self) {
        if self.odd.is_some_and(|until| until <= self.now) {
            let (image, annotations) = (self.image(), self.daemon()["metadata"]["annotations"].clone());
            self.template(&image, annotations);
        }
    }

    /// One node never takes a revision; all others do.
    pub(super) fn others_go_on(&mut self) {
        let Some(mut edges) = self.edges.take() else { return };
        let (names, ailment) = (self.names(), edges.one_of(&AILMENTS));
        let name = names[edges.below(names.len())].clone();
        (self.untriggers, self.resumes) = (false, false);
        // That node takes one slot for ever.
        self.budget = self.budget.max(2);
        self.template("good-8", json!({PROGRESS_DEADLINE: "100s"}));
        let wanted = self.wanted();
        self.log(format!("{name} {ailment:?} {wanted}"));
        self.nodes.entry(name.clone()).and_modify(|node| node.ails(ailment, &wanted));
        self.rest(if self.nodes.len() > 12 { 200 } else { 60 });
        let has_it = |running: &super::agent::Running| running.hash == wanted && running.ready.is_some();
        let lacks_it = self.nodes.values().filter(|node| !node.running.as_ref().is_some_and(has_it));
        let lacking: Vec<&str> = lacks_it.map(|node| node.name.as_str()).collect();
        let status = self.daemon()["status"].clone();
        assert_eq!(lacking, [name.as_str()], "another node waits for one that {ailment:?}: {status}");
        let is_named = |c: &&Value| c.str_at("type") == "Degraded" && c.str_at("message").contains(&name);
        assert!(status.list_at("conditions").iter().any(|c| is_named(&c)), "no condition names {name}: {status}");
        self.log(format!("{name} is mended"));
        self.nodes.entry(name).and_modify(|node| _ = node.mend());
        self.rest(60);
        self.is_at_rest();
        self.edges = Some(edges);
    }

    /// The DaemonSet is refused, and nothing changes; it is let go, and nothing of ours stays; it is taken back.
    pub(super) fn comes_back(&mut self) {
        let Some(mut edges) = self.edges.take() else { return };
        let image = self.image();
        let created = |life: &Self| -> Vec<_> {
            life.nodes.values().map(|node| node.running.as_ref().map(|running| running.created)).collect()
        };
        let before = created(self);
        self.is_odd(edges.one_of(&[Oddness::Mistyped, Oddness::Unselected]));
        self.rest(30);
        self.template(&image, json!({}));
        self.rest(30);
        assert_eq!(before, created(self), "a definition that is refused changes what runs");
        self.is_at_rest();
        self.is_odd(edges.one_of(&[Oddness::Unlabelled, Oddness::Stock]));
        self.rest_unchecked(45);
        let daemon = self.daemon();
        let ours = daemon["status"].list_at("conditions").iter().filter(|condition| conditions::is_ours(condition));
        assert_eq!(ours.count(), 0, "it is let go: {}", daemon["status"]);
        let approved = |it: &&Value| !it["spec"].list_at("approvals").is_empty();
        assert_eq!(self.api.list(WatchedKind::NodeDaemons).filter(approved).count(), 0, "what is let go is approved");
        assert_eq!(self.api.writes, 0, "the coordinator writes what is let go");
        self.template(&image, json!({}));
        self.rest(60);
        self.is_at_rest();
        self.edges = Some(edges);
    }
}
