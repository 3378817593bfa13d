//! Node conditions that say whether daemons are Ready here: `daemonlet.dev/node-condition`.
//!
//! Owns which conditions the Node is to have, and what changes of those that it has. Other controllers read them, such as
//! the node-readiness-controller. Must not write them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::NODE_CONDITION;
use crate::core::model::ObjectKey;
use crate::core::pass::Subject;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::plan::State;
use crate::core::startup_taint::Switch;

/// The policy that holds an agent to conditions of [`PREFIX`] of its own Node.
pub const POLICY: &str = "daemonlet-agent-node-status";
/// The manifest that gives an agent the right to write them, and no other right.
pub const GRANT: &str = "kubectl apply -f admission-policies.yaml -f node-conditions.yaml (of /usr/share/daemonlet/k8s), \
                         and give the agent an identity named daemonlet:node:NODE: `daemonlet enroll`";
/// How the types of these conditions begin.
pub const PREFIX: &str = "daemonlet.dev/";
/// The longest name behind the prefix, as of a label's.
const LONGEST: usize = 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionStatus {
    False,
    Unknown,
    True,
}

impl ConditionStatus {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
            ConditionStatus::True => "True",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    pub status: ConditionStatus,
    /// The DaemonSets that are not Ready here, or of which that is not known; else all that name it.
    pub daemon_sets: BTreeSet<ObjectKey>,
}

/// The conditions of a Node by their types.
pub type NodeConditions = BTreeMap<String, NodeCondition>;

/// What is to be written: each condition by its type, `None`: it goes.
pub type ConditionChanges = BTreeMap<String, Option<NodeCondition>>;

/// A patch of the Node's status that [`POLICY`] has to refuse.
pub fn probe() -> Value {
    json!({"status": {"conditions": [{"type": "RefusedByPolicy", "status": "True"}]}})
}

/// Whether `name` can stand behind the prefix in a condition's type.
pub fn is_name(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= LONGEST && name.chars().all(is_inside) && is_end(name.chars().next()) && is_end(name.chars().last())
}

impl NodeCondition {
    /// `Ready`, `NotReady` or `Unknown`.
    pub fn reason(&self) -> &'static str {
        match self.status {
            ConditionStatus::False => "NotReady",
            ConditionStatus::Unknown => "Unknown",
            ConditionStatus::True => "Ready",
        }
    }

    /// Which DaemonSets that is about.
    pub fn message(&self) -> String {
        let names: Vec<String> = self.daemon_sets.iter().map(ObjectKey::to_string).collect();
        let what = match self.status {
            ConditionStatus::False => "not Ready here",
            ConditionStatus::Unknown => "whether it is Ready here is not known",
            ConditionStatus::True => "Ready here",
        };
        format!("{}: {what}", names.join(", "))
    }

    /// With what another DaemonSet of the same name adds: the worst counts.
    fn and(self, other: Self) -> Self {
        match self.status.cmp(&other.status) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Greater => other,
            std::cmp::Ordering::Equal => {
                Self { daemon_sets: self.daemon_sets.into_iter().chain(other.daemon_sets).collect(), ..self }
            }
        }
    }
}

/// The conditions that the Node is to have, by the plans of one pass. Notes in them what a person has to know.
/// `boot`: the present one. `is_trusted`: whether a DaemonSet is of a folder or of a trusted namespace.
pub fn decide(
    subjects: &[Subject<'_>],
    plans: &mut [DaemonPlan],
    boot: &str,
    is_trusted: &dyn Fn(&DaemonSet) -> bool,
    switch: Switch,
) -> NodeConditions {
    let mut conditions = NodeConditions::new();
    for (subject, plan) in subjects.iter().zip(plans) {
        let runs = plan.record.live().filter_map(|instance| instance.daemon_set.as_ref()).last();
        let Some(daemon_set) = subject.desired.definition().or(runs) else { continue };
        let Some(name) = daemon_set.annotations.get(NODE_CONDITION).filter(|name| is_name(name)) else { continue };
        if !is_trusted(daemon_set) {
            let namespace = plan.key.namespace.clone();
            plan.summary.notes.push(Note::Untrusted { annotation: NODE_CONDITION, namespace });
        } else if switch == Switch::Off {
            plan.summary.notes.push(Note::SwitchedOff { annotation: NODE_CONDITION, key: "node.conditions" });
        } else if let Some(status) = status(plan, boot) {
            let own = NodeCondition { status, daemon_sets: BTreeSet::from([plan.key.clone()]) };
            let kind = format!("{PREFIX}{name}");
            let all = match conditions.remove(&kind) {
                Some(others) => others.and(own),
                None => own,
            };
            conditions.insert(kind, all);
        }
    }
    conditions
}

/// Whether the daemon is Ready here; `None`: it is not for this node. That its mirror pod was Ready before the machine
/// booted does not count.
fn status(plan: &DaemonPlan, boot: &str) -> Option<ConditionStatus> {
    let was_ready = plan.record.this_boot.as_ref().is_some_and(|this| this.boot == boot && this.ready);
    let ready = plan.summary.ready.map(|ready| ready && was_ready);
    match plan.summary.state {
        State::NotSelected | State::LeftAlone | State::StandingBy | State::Orphaned => None,
        State::Unknown => Some(ConditionStatus::Unknown),
        State::Running | State::Stale | State::Held | State::Refused => Some(match ready {
            Some(true) => ConditionStatus::True,
            Some(false) => ConditionStatus::False,
            None if plan.record.live().next().is_some() => ConditionStatus::Unknown,
            None => ConditionStatus::False,
        }),
        State::Starting | State::Waiting | State::Replacing | State::Failing | State::Stopping | State::NotAccepted => {
            Some(match ready {
                // An instance that is to be replaced, and still runs, does its work.
                Some(true) => ConditionStatus::True,
                Some(false) | None => ConditionStatus::False,
            })
        }
    }
}

/// What has to be written for `node` to have `wanted` and no other condition of ours.
pub fn changes(wanted: &NodeConditions, node: &Value) -> ConditionChanges {
    let has = node.list_at(["status", "conditions"]);
    let is_as_wanted = |(kind, wanted): &(&String, &NodeCondition)| {
        has.iter().any(|has| {
            has.str_at("type") == *kind
                && has.str_at("status") == wanted.status.as_str()
                && has.str_at("message") == wanted.message()
        })
    };
    let ours = has.iter().map(|has| has.str_at("type")).filter(|kind| kind.starts_with(PREFIX));
    let gone = ours.filter(|kind| !wanted.contains_key(*kind)).map(|kind| (kind.to_owned(), None));
    let new = wanted.iter().filter(|condition| !is_as_wanted(condition));
    new.map(|(kind, condition)| (kind.clone(), Some(condition.clone()))).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::model::Mode;
    use crate::core::model::Source;
    use crate::core::record::DaemonRecord;
    use crate::core::sources::Desired;
    use crate::core::validate;

    fn decided(boot: &str, daemons: &[(&str, State, Option<bool>)], switch: Switch) -> (NodeConditions, Vec<String>) {
        let made: Vec<(Desired, DaemonRecord, State, Option<bool>)> = daemons
            .iter()
            .map(|(key, state, ready)| {
                let (namespace, name) = key.split_once('/').unwrap();
                let value = json!({
                    "metadata": {"namespace": namespace, "name": name, "annotations": {NODE_CONDITION: "NetworkReady"}},
                    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                        "spec": {"containers": [{"name": "a", "image": "a"}]}}},
                });
                let daemon_set = validate::daemon_set(&value, Source::Api).map(Arc::new).unwrap();
                let record = DaemonRecord::new(daemon_set.key.clone(), 0);
                (Desired::Wanted { daemon_set, mode: Mode::Static, note: None }, record, *state, *ready)
            })
            .collect();
        let subjects: Vec<Subject<'_>> = made
            .iter()
            .map(|(desired, record, ..)| Subject { desired: desired.clone(), record, unlisted: false })
            .collect();
        let mut plans: Vec<DaemonPlan> = made
            .iter()
            .map(|(_, record, state, ready)| {
                let mut plan = DaemonPlan::new(record.clone());
                (plan.summary.state, plan.summary.ready) = (*state, *ready);
                plan.record.in_boot("b").ready = true;
                plan
            })
            .collect();
        let is_trusted = |daemon_set: &DaemonSet| daemon_set.key.namespace == "kube-system";
        let conditions = decide(&subjects, &mut plans, boot, &is_trusted, switch);
        let notes = plans.iter().flat_map(|plan| plan.summary.notes.iter().map(ToString::to_string)).collect();
        (conditions, notes)
    }

    fn conditions_of(daemons: &[(&str, State, Option<bool>)]) -> Vec<String> {
        conditions_in("b", daemons)
    }

    fn conditions_in(boot: &str, daemons: &[(&str, State, Option<bool>)]) -> Vec<String> {
        let (conditions, _) = decided(boot, daemons, Switch::On);
        conditions.iter().map(|(kind, c)| format!("{kind}={} {}", c.status.as_str(), c.message())).collect()
    }

    #[test]
    fn a_condition_is_true_while_every_daemon_that_names_it_is_ready() {
        let (a, b) = ("kube-system/a", "kube-system/b");
        let ready = (a, State::Running, Some(true));
        assert_eq!(conditions_of(&[ready]), ["daemonlet.dev/NetworkReady=True kube-system/a: Ready here"]);
        assert_eq!(
            conditions_of(&[ready, (b, State::Starting, None)]),
            ["daemonlet.dev/NetworkReady=False kube-system/b: not Ready here"]
        );
        assert_eq!(
            conditions_of(&[(a, State::Unknown, None), ready]),
            ["daemonlet.dev/NetworkReady=Unknown kube-system/a: whether it is Ready here is not known"]
        );
        assert_eq!(
            conditions_of(&[ready, (b, State::Replacing, Some(true))]),
            ["daemonlet.dev/NetworkReady=True kube-system/a, kube-system/b: Ready here"]
        );
        assert_eq!(conditions_of(&[(a, State::NotSelected, None)]), Vec::<String>::new(), "it is not for this node");
    }

    #[test]
    fn what_was_ready_in_an_earlier_boot_does_not_count() {
        let conditions = conditions_in("earlier", &[("kube-system/a", State::Running, Some(true))]);
        assert_eq!(conditions, ["daemonlet.dev/NetworkReady=False kube-system/a: not Ready here"]);
    }

    #[test]
    fn it_has_no_effect_where_the_key_is_off_or_the_namespace_is_not_trusted() {
        let (conditions, notes) = decided("b", &[("kube-system/a", State::Running, Some(true))], Switch::Off);
        assert!(conditions.is_empty() && notes[0].contains("node.conditions is off"), "{notes:?}");
        let (conditions, notes) = decided("b", &[("tenant/a", State::Running, Some(true))], Switch::On);
        assert!(conditions.is_empty() && notes[0].contains("is not among policy.trusted-namespaces"), "{notes:?}");
    }

    #[test]
    fn only_what_differs_is_written_and_conditions_of_others_are_left() {
        let (wanted, _) = decided("b", &[("kube-system/a", State::Running, Some(true))], Switch::On);
        let kind = "daemonlet.dev/NetworkReady";
        let node = |status: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": kind, "status": status, "message": "kube-system/a: Ready here"},
            ]}})
        };
        assert_eq!(changes(&wanted, &node("True")), ConditionChanges::new());
        assert_eq!(
            changes(&wanted, &node("False")),
            ConditionChanges::from([(kind.to_owned(), wanted.get(kind).cloned())])
        );
        assert_eq!(changes(&NodeConditions::new(), &node("True")), ConditionChanges::from([(kind.to_owned(), None)]));
    }

    #[test]
    fn names_are_those_of_labels() {
        assert!(is_name("NetworkReady") && is_name("a.b-c_1"));
        for name in ["", "-a", "a/b", "a ", "ä", &"a".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
