//! The conditions of the Node that say whether daemons are Ready (`daemonlet.dev/node-condition`).
//!
//! Owns which of them there are to be, how the API server takes a change of them, and since when they are wrong. Must not
//! judge.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use super::kubelet::Phase;
use super::node::Node;
use super::node::SPACE;

const PREFIX: &str = "daemonlet.dev/";
/// How long they may be wrong, in milliseconds in which nothing stands in the agent's way: refused writes are made again
/// after 300 s.
const WRONG: i64 = 330_000;

/// The type that a daemon asks for: two share one.
pub(crate) fn kind(daemon: usize) -> String {
    format!("Ready{}", daemon % 2)
}

/// Which conditions a Node has of ours, by type.
fn reported(node: &Value) -> BTreeMap<String, String> {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let all = conditions.map(|condition| (text(condition, "type"), text(condition, "status")));
    all.filter(|(kind, _)| kind.starts_with(PREFIX)).collect()
}

/// Whether the policy lets an agent make this change of a Node's status.
pub(crate) fn is_allowed(patch: &Value) -> bool {
    let conditions = patch["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().all(|condition| condition["type"].as_str().is_some_and(|kind| kind.starts_with(PREFIX)))
}

/// A strategic merge: conditions are merged by their types.
pub(crate) fn merge(node: &mut Value, patch: &Value) {
    let Some(conditions) = node["status"]["conditions"].as_array_mut() else { return };
    for change in patch["status"]["conditions"].as_array().into_iter().flatten() {
        let at = conditions.iter().position(|condition| condition["type"] == change["type"]);
        match at {
            Some(at) if change["$patch"] == "delete" => drop(conditions.remove(at)),
            None if change["$patch"] == "delete" => {}
            Some(at) => change
                .as_object()
                .into_iter()
                .flatten()
                .for_each(|(field, value)| conditions[at][field] = value.clone()),
            None => conditions.push(change.clone()),
        }
    }
}

/// For how long the conditions have been wrong, in time that counts.
#[derive(Default)]
pub(crate) struct WrongConditions(i64);

impl WrongConditions {
    /// `passed` milliseconds have passed that count. Gives what is wrong, if it is for too long.
    pub(crate) fn pass(&mut self, node: &Node, passed: i64) -> Option<String> {
        let wrong = node.wrong_conditions().filter(|_| node.is_certain_of_conditions());
        self.0 = if wrong.is_some() { self.0 + passed } else { 0 };
        wrong.filter(|_| self.0 > WRONG)
    }
}

impl Node {
    /// How the conditions of the Node differ from what runs here.
    pub(crate) fn wrong_conditions(&self) -> Option<String> {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        for daemon in &self.conditioned {
            let truth = &self.daemons[*daemon];
            if truth.wanted().is_none() {
                continue;
            }
            let status = wanted.entry(format!("{PREFIX}{}", kind(*daemon))).or_insert_with(|| "True".to_owned());
            if !self.runs(&truth.name) {
                *status = "False".to_owned();
            }
        }
        let reported = self.server.lock().unwrap().get("nodes", "", &self.name).map(reported)?;
        (reported != wanted).then(|| format!("the Node says {reported:?}, and {wanted:?} is true"))
    }

    /// Whether an agent can know what runs here, and write it.
    fn is_certain_of_conditions(&self) -> bool {
        let is_served = self.server.lock().unwrap().refusals.is_empty();
        let is_settled = |daemon: &usize| {
            let truth = &self.daemons[*daemon];
            truth.wanted().is_none() || truth.is_settled()
        };
        // What was Ready before the clock was set forward seems to have been so before the boot (not-mended).
        is_served
            && self.clock_forgotten_in != Some(self.booted)
            && self.not_ready.is_none()
            && self.is_clear()
            && self.is_reachable()
            && self.has_folders()
            && self.conditioned.iter().all(is_settled)
    }

    fn runs(&self, daemon: &str) -> bool {
        let mut of = self.kubelet.pods.values().filter(|pod| pod.manifest.daemon == format!("{SPACE}/{daemon}"));
        of.any(|pod| matches!(pod.phase, Phase::Running { .. }))
    }
}

/// Which daemons ask for one.
pub(crate) fn of(life: &[u8]) -> BTreeSet<usize> {
    life.iter().map(|daemon| usize::from(*daemon)).collect()
}
