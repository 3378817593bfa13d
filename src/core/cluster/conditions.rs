//! The conditions that the coordinator writes on a DaemonSet: Progressing, Available, Degraded, Released, Halted.
//!
//! Owns their texts; conditions of other writers stay as they are.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::update_trigger::UpdateTrigger;

use super::counters::Counters;
use super::released;
use super::released::FirstInstances;
use super::released::Halted;
use super::released::Released;
use super::rollout::RolloutHold;
use super::rollout::Standstill;
use super::rollout::names;

/// Node names in a condition at most.
const NAMES: usize = 10;

/// The message of the condition Halted when a rollout is aborted.
const ABORTED: &str = "aborted by hand; `kubectl daemonlet retry` rolls it out again";

/// What goes wrong, by cause, with the nodes.
pub type Causes = BTreeMap<String, Vec<String>>;

/// What conditions are made from.
#[derive(Clone, Debug)]
pub struct ConditionFacts<'a> {
    /// The hash of the current revision.
    pub revision: &'a str,
    pub counters: Counters,
    /// Why the rollout stands still, if it does.
    pub held: Option<&'a Standstill>,
    /// What approved nodes wait for, and how many.
    pub waiting: Option<(UpdateTrigger, usize)>,
    /// Other revisions than the current one that nodes have claimed, in words, and how many: they replace what they run.
    pub claimed: &'a BTreeMap<String, usize>,
    /// Revisions that nodes have staged and nothing approves any more, in words, and these nodes: they boot into them.
    pub staged: &'a BTreeMap<String, Vec<&'a str>>,
    /// Whether a node runs the current revision with other overlays than the current ones.
    pub are_overlays_left: bool,
    /// Nodes on which the wanted revision failed, or whose daemon is in trouble, by cause.
    pub causes: &'a Causes,
    /// What is wrong with the cluster for this DaemonSet, such as a DaemonSet controller that acts on it: reason and
    /// message.
    pub trouble: Option<(&'static str, &'a str)>,
    /// The rollout is taken back: to which revision, and from how many nodes still.
    pub back: &'a Option<GoingBack>,
    /// The released revision, and what first instances of a newer one do.
    pub released: Option<&'a (Released, FirstInstances)>,
    /// Why the rollout of the current revision is halted.
    pub halted: Option<&'a Halted>,
    /// Whether people have taken the rollout of the current revision back.
    pub is_aborted: bool,
}

/// A rollout that is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingBack {
    pub revision: String,
    /// How many nodes still have the newer one, or are being replaced.
    pub left: usize,
    /// How many have the newer one and never ran the other, which has no ControllerRevision: they stay.
    pub unable: usize,
    /// How many run neither of the two: they keep their revision.
    pub others: usize,
    /// How many are to run it and have nothing.
    pub empty: usize,
}

/// Why a rollout does not progress: something holds it.
const HELD: &str = "Held";
/// Why a rollout does not progress: it waits for canary nodes, and there are none.
const NO_CANARY: &str = "NoCanaryNode";

/// The three conditions, each as (type, status, reason, message).
pub fn conditions(facts: &ConditionFacts<'_>) -> [(&'static str, bool, &'static str, String); 3] {
    let c = &facts.counters;
    let to_do = c.desired_number_scheduled.saturating_sub(c.updated_number_scheduled);
    let left = match (to_do, c.desired_number_scheduled) {
        (1, 1) => "1 of 1 node is left".to_owned(),
        (1, all) => format!("1 of {all} nodes is left"),
        (_, all) => format!("{to_do} of {all} nodes are left"),
    };
    let mut progressing = match (to_do, facts.held) {
        _ if facts.back.is_some() => facts.back.as_ref().map(|back| going_back(back, facts)).unwrap_or_default(),
        (0, held) => {
            let all = match c.updated_number_scheduled {
                1 => "1 node has the current revision".to_owned(),
                nodes => format!("{nodes} nodes have the current revision"),
            };
            match held {
                Some(_) if facts.are_overlays_left => {
                    (false, HELD, format!("{all}, and not all have the current overlays{}", waits(facts)))
                }
                _ if facts.halted.is_some() || facts.is_aborted => {
                    let halted = facts.halted.cloned().map(RolloutHold::Halted);
                    (false, HELD, format!("{all}: {}", halted.unwrap_or(RolloutHold::Aborted)))
                }
                _ if c.number_unavailable > 0 && !is_released(facts) => {
                    (true, "RollingOut", format!("{all}, {} of them available", c.number_available))
                }
                _ => (false, "Complete", all),
            }
        }
        (_, None) => (true, "RollingOut", left + &waits(facts)),
        (_, Some(Standstill::NoCanary { .. })) => (false, NO_CANARY, left + &waits(facts)),
        (_, Some(_)) => (false, HELD, left + &waits(facts)),
    };
    progressing.2.extend(staged(facts));
    let degraded = match (facts.trouble, facts.causes.is_empty()) {
        (Some((reason, message)), _) => (true, reason, message.to_owned()),
        (None, true) => (false, "AsExpected", String::new()),
        (None, false) => (true, "Failing", causes_message(facts.causes)),
    };
    [
        ("Progressing", progressing.0, progressing.1, progressing.2),
        available(c),
        ("Degraded", degraded.0, degraded.1, degraded.2),
    ]
}

/// Whether the current revision is the released one.
fn is_released(facts: &ConditionFacts<'_>) -> bool {
    facts.released.is_some_and(|(_, first_instances)| *first_instances == FirstInstances::Complete)
}

/// Why no further node is approved, and what approved nodes wait for: either may be the reason that nothing happens. And which
/// nodes have yet to follow because they have claimed another revision.
fn waits(facts: &ConditionFacts<'_>) -> String {
    let held = facts.held.map(ToString::to_string);
    let waiting = facts.waiting.filter(|(_, nodes)| *nodes > 0).map(|(when, nodes)| when.words_of(nodes));
    let claimed = facts.claimed.iter().map(|(revision, nodes)| match nodes {
        1 => format!("1 node has claimed {revision} and replaces its pod"),
        nodes => format!("{nodes} nodes have claimed {revision} and replace their pods"),
    });
    let parts: Vec<String> = held.into_iter().chain(waiting).chain(claimed).collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join("; ")) }
}

/// Which nodes boot into a revision that they have staged and that nothing approves any more.
fn staged(facts: &ConditionFacts<'_>) -> impl Iterator<Item = String> {
    facts.staged.iter().map(|(revision, nodes)| {
        let (have, start) = match nodes.len() {
            1 => ("has", "starts it at its"),
            _ => ("have", "start it at their"),
        };
        format!("; {} {have} staged {revision} and {start} next boot: {}", count(nodes.len()), names(nodes))
    })
}

/// That a rollout is taken back.
fn going_back(back: &GoingBack, facts: &ConditionFacts<'_>) -> (bool, &'static str, String) {
    let GoingBack { revision, left, unable, others, empty } = back;
    let why = if facts.is_aborted { "it was aborted" } else { "it failed" };
    match (left, others + empty) {
        (0, _) if *unable > 0 => {
            let hint = "it is neither what they ran before nor a released one that still exists: change the template";
            (false, "Held", format!("{why}: {} cannot go back to revision {revision}: {hint}", count(*unable)))
        }
        (0, _) if !facts.staged.is_empty() => (true, "RollingBack", format!("{why}: no node has it any more")),
        (0, 0) => (false, "RolledBack", format!("{why}: every node is on revision {revision}")),
        (0, _) => {
            let keep = (*others > 0).then(|| format!("; {} with an older revision than it keep that", count(*others)));
            let nothing = (*empty > 0).then(|| format!("; nothing runs on {}", count(*empty)));
            let rest: String = keep.into_iter().chain(nothing).collect();
            (false, "RolledBack", format!("{why}: no node has it any more{rest}"))
        }
        (left, _) => {
            let message = format!("{why}: {} left to go back to revision {revision}{}", count(*left), waits(facts));
            match facts.held {
                Some(Standstill::Unable(_)) => (false, HELD, message),
                _ => (true, "RollingBack", message),
            }
        }
    }
}

/// Causes with counts and up to ten names.
fn causes_message(causes: &Causes) -> String {
    let mut left = NAMES;
    let of = |(cause, nodes): (&String, &Vec<String>)| {
        // The cause concerns the cluster, not nodes.
        if nodes.is_empty() {
            return cause.clone();
        }
        let shown = nodes.len().min(left);
        left -= shown;
        if shown == 0 {
            return format!("{cause} on {}", count(nodes.len()));
        }
        let more = if shown < nodes.len() { ", …" } else { "" };
        format!("{cause} on {}: {}{more}", count(nodes.len()), nodes[..shown].join(", "))
    };
    causes.iter().map(of).collect::<Vec<_>>().join("; ")
}

pub(super) fn count(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

/// `live` with the coordinator's conditions updated; a condition keeps its transition time while its status stays.
/// `now` is RFC 3339.
pub fn merge(live: &[Value], facts: &ConditionFacts<'_>, now: &str) -> Vec<Value> {
    let mut ours = Vec::from(conditions(facts));
    ours.extend(facts.released.map(|(of, first_instances)| {
        let (status, reason, message) = released::condition(of, *first_instances);
        (released::RELEASED, status, reason, message)
    }));
    let halted = match facts.halted {
        Some(halted) => Some((released::FAILED, halted.to_string())),
        None => facts.is_aborted.then(|| (released::ABORTED, ABORTED.to_owned())),
    };
    ours.extend(halted.map(|(reason, words)| {
        let message = released::halted_message(facts.revision, &words);
        (released::HALTED, true, reason, message)
    }));
    let is_halted = facts.halted.is_some() || facts.is_aborted;
    let mut merged = merge_all(live, ours, now);
    if !is_halted {
        merged.retain(|c| c.str_at("type") != released::HALTED);
    }
    merged
}

/// Why nothing is decided of a DaemonSet.
#[derive(Clone, Copy, Debug)]
pub enum Undecided<'a> {
    /// Its definition is refused for this reason.
    Refused(&'a str),
    /// Its history cannot be read.
    Unread,
}

impl Undecided<'_> {
    /// Why its rollout is held; the reason of the condition `Degraded`, and the message.
    fn texts(self) -> (&'static str, &'static str, String) {
        match self {
            Self::Refused(why) => (
                "its definition is refused",
                "Invalid",
                format!(
                    "daemonlet refuses this definition: {why}; nodes keep what they run, and nothing is rolled out until \
                     it is changed"
                ),
            ),
            Self::Unread => (
                "its ControllerRevisions are not read yet",
                "Unreadable",
                "the coordinator cannot read its ControllerRevisions; nodes keep what they run, and nothing is rolled out \
                 until it can: its log says why"
                    .to_owned(),
            ),
        }
    }
}

/// `live` with the conditions that nothing is decided of the DaemonSet, and with `Available` for the last definition
/// that was not refused, if its counters are known.
pub fn merge_undecided(live: &[Value], why: Undecided<'_>, counters: Option<&Counters>, now: &str) -> Vec<Value> {
    let (held, reason, message) = why.texts();
    let mut ours = vec![("Progressing", false, HELD, held.to_owned()), ("Degraded", true, reason, message)];
    ours.extend(counters.map(available));
    merge_all(live, ours, now)
}

/// The condition `Available`.
fn available(c: &Counters) -> (&'static str, bool, &'static str, String) {
    let message = format!("{} of {} nodes", c.number_available, c.desired_number_scheduled);
    match c.number_unavailable {
        0 => ("Available", true, "AllAvailable", message),
        _ => ("Available", false, "Unavailable", message),
    }
}

/// `live` without the coordinator's conditions. It has none if the condition `Available` is not the coordinator's.
pub fn without_ours(live: &[Value]) -> Vec<Value> {
    let is_ours = live
        .iter()
        .any(|c| c.str_at("type") == "Available" && matches!(c.str_at("reason"), "AllAvailable" | "Unavailable"));
    live.iter().filter(|c| !(is_ours && self::is_ours(c))).cloned().collect()
}

/// Whether the condition `Progressing` says that no further node is approved for now.
pub fn is_held(progressing: &Value) -> bool {
    matches!(progressing.str_at("reason"), HELD | NO_CANARY)
}

/// Whether the halt that the condition `Halted` tells of is all that holds the rollout by the condition `Progressing`: both are
/// written here, and only their messages say it.
pub fn is_held_by_halt(progressing: &Value, halted: &Value) -> bool {
    let words = released::halt_of(halted.str_at("message")).map(|(_, words)| format!(": {words}"));
    is_held(progressing) && words.is_some_and(|words| progressing.str_at("message").ends_with(&words))
}

/// Whether the conditions say that the rollout waits for canary nodes, and there are none.
pub fn lacks_canary(conditions: &[Value]) -> bool {
    conditions.iter().any(|c| c.str_at("type") == "Progressing" && c.str_at("reason") == NO_CANARY)
}

/// Whether a condition has a type that the coordinator writes.
pub fn is_ours(condition: &Value) -> bool {
    let ours = ["Progressing", "Available", "Degraded", released::RELEASED, released::HALTED];
    ours.contains(&condition.str_at("type"))
}

fn merge_all(live: &[Value], ours: Vec<(&str, bool, &str, String)>, now: &str) -> Vec<Value> {
    let mut merged = live.to_vec();
    for (kind, status, reason, message) in ours {
        let status = if status { "True" } else { "False" };
        let old = merged.iter_mut().find(|c| c.get("type").is_some_and(|t| t == kind));
        let since = old.as_ref().filter(|c| c.get("status").is_some_and(|s| s == status));
        let since = since.and_then(|c| c.get("lastTransitionTime")).cloned().unwrap_or_else(|| json!(now));
        let mut new = json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since});
        // The API server drops an empty one: with it, the condition would never be what is wanted.
        if !message.is_empty() {
            new["message"] = json!(message);
        }
        match old {
            Some(old) => *old = new,
            None => merged.push(new),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
