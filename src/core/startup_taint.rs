//! Whether this node carries the taint that keeps workload away until its daemons are Ready:
//! `daemonlet.dev/startup-taint`.
//!
//! Owns which daemons the node waits for, and for how long. The taint is wanted until each of them was Ready once in
//! this boot. Must not write it.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::STARTING_TAINT;
use crate::core::model::STARTUP_TAINT;
use crate::core::model::STARTUP_TAINT_TIMEOUT;
use crate::core::pass::Subject;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::plan::State;
use crate::core::sources::Desired;
use crate::core::start_order;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The policy that holds an agent to this one taint of its own Node.
pub const POLICY: &str = "daemonlet-agent-nodes";
/// The manifest that gives an agent the right to write the taint, and no other right.
pub const GRANT: &str = "kubectl apply -f admission-policies.yaml -f startup-taint.yaml (of /usr/share/daemonlet/k8s), and \
                         give the agent an identity named daemonlet:node:NODE: `daemonlet enroll`";
/// How long the node waits for a daemon if its DaemonSet does not say, in time in which the API server answers; and after
/// the agent's start for what cannot be read.
pub const TIMEOUT: Span = Span::from_mins(10);

/// The same for all daemons of a node.
#[derive(Clone, Copy)]
pub struct TaintRules<'a> {
    pub now: Timestamp,
    /// Which boot of the node this is.
    pub boot: &'a str,
    /// How long a source that cannot be read may still ask for the taint.
    pub unread_until: Timestamp,
    /// Whether a DaemonSet is of a folder or of a trusted namespace; others may not keep workload away.
    pub is_trusted: &'a dyn Fn(&DaemonSet) -> bool,
    /// Whether one of that name, of which nothing is known, may be of a folder or of a trusted namespace.
    pub may_be_trusted: &'a dyn Fn(&ObjectKey) -> bool,
    /// Whether a DaemonSet that is not to run here now is to run here once the node is well.
    pub belongs: &'a dyn Fn(&DaemonSet) -> bool,
    /// Whether the agent may write the taint (`node.startup-taint`).
    pub switch: Switch,
    /// Whether the taint can be written now: only that time counts for the timeout.
    pub api_server: ApiServer,
}

/// Whether the API server can be read, and written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiServer {
    Answers,
    Silent,
}

/// Whether the agent writes the taint at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Off,
    On,
}

/// Whether the node is to carry the taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredTaint {
    Taint,
    NoTaint,
    /// Not known yet: nothing is written.
    Unknown,
}

/// For whom the node waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StartupTaint {
    /// Every daemon of this node for which it waits at each boot.
    pub daemons: BTreeSet<ObjectKey>,
    /// Those that are to be Ready here and have not been in this boot.
    pub awaited: BTreeSet<ObjectKey>,
    /// Those of which that is not known.
    pub unknown: BTreeSet<ObjectKey>,
}

impl StartupTaint {
    /// What follows for the Node.
    pub fn wish(&self) -> DesiredTaint {
        match () {
            () if !self.awaited.is_empty() => DesiredTaint::Taint,
            () if !self.unknown.is_empty() => DesiredTaint::Unknown,
            () => DesiredTaint::NoTaint,
        }
    }
}

/// Whether the definition asks for the taint.
pub fn is_asked(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(STARTUP_TAINT).is_some_and(|value| value == "true")
}

/// Whether a Node carries the taint, so that no pod is scheduled to it.
pub fn is_set(node: &Value) -> bool {
    taints(node).any(|taint| taint.str_at("effect") == "NoSchedule")
}

/// Whether a Node has a taint of that name, whatever its effect is.
pub fn is_named(node: &Value) -> bool {
    taints(node).next().is_some()
}

fn taints(node: &Value) -> impl Iterator<Item = &Value> {
    node.list_at(["spec", "taints"]).iter().filter(|taint| taint.str_at("key") == STARTING_TAINT)
}

/// A merge patch of the agent's own Node that [`POLICY`] has to refuse.
pub fn probe() -> Value {
    json!({"metadata": {"labels": {"daemonlet.dev/refused-by-policy": "x"}}})
}

/// How the node stands to one daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was Ready in this boot. That its containers run is not enough: workload needs more.
    Ready,
    /// It is to be Ready here and was not.
    Awaited,
    /// It may be to run here.
    Unknown,
    /// It is refused, not for this node, or ends.
    NotHere,
}

/// The daemons for which the node waits, by the plans of one pass. Notes in them since when, and what a person has to know.
pub fn decide(subjects: &[Subject<'_>], plans: &mut [DaemonPlan], rules: &TaintRules<'_>) -> StartupTaint {
    let mut taint = StartupTaint::default();
    for (subject, plan) in subjects.iter().zip(plans) {
        let runs = plan.record.live().filter_map(|instance| instance.daemon_set.as_ref()).last();
        let Some(daemon_set) = subject.desired.definition().or(runs).cloned() else {
            // A definition that is being read may ask for it, if its request counts.
            let may_ask = matches!(subject.desired, Desired::Unsure { .. }) && (rules.may_be_trusted)(&plan.key);
            if may_ask && rules.now < rules.unread_until {
                plan.look_at(rules.unread_until);
                taint.unknown.insert(plan.key.clone());
            }
            continue;
        };
        if !is_asked(&daemon_set) {
            continue;
        }
        if !(rules.is_trusted)(&daemon_set) {
            let namespace = plan.key.namespace.clone();
            plan.summary.notes.push(Note::Untrusted { annotation: STARTUP_TAINT, namespace });
            continue;
        }
        let standing = match standing(plan, rules.boot) {
            // A Node that joins is not Ready, and so is not for those that do not tolerate that.
            Standing::NotHere if plan.summary.state == State::NotSelected && (rules.belongs)(&daemon_set) => {
                Standing::Awaited
            }
            standing => standing,
        };
        if standing == Standing::NotHere {
            continue;
        }
        if rules.switch == Switch::Off {
            plan.summary.notes.push(Note::SwitchedOff { annotation: STARTUP_TAINT, key: "node.startup-taint" });
            continue;
        }
        taint.daemons.insert(plan.key.clone());
        if standing == Standing::Ready {
            continue;
        }
        let text = daemon_set.annotations.get(STARTUP_TAINT_TIMEOUT);
        let timeout = text.and_then(|text| start_order::timeout(text)).unwrap_or(TIMEOUT);
        let this = plan.record.in_boot(rules.boot);
        let left = timeout - this.awaited_for(rules.now);
        if left <= Span::ZERO {
            plan.summary.notes.push(Note::TaintExpired(timeout));
            continue;
        }
        let note = match rules.api_server {
            ApiServer::Answers => {
                this.await_answered(rules.now);
                plan.look_at(rules.now + left);
                Note::TaintUntil(rules.now + left)
            }
            ApiServer::Silent => {
                this.await_silent(rules.now);
                Note::TaintOnceAnswered(left)
            }
        };
        if standing == Standing::Unknown {
            taint.unknown.insert(plan.key.clone());
            continue;
        }
        plan.summary.keeps_workload_away = true;
        plan.summary.notes.push(note);
        taint.awaited.insert(plan.key.clone());
    }
    taint
}

impl DaemonPlan {
    fn look_at(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |wake| wake.min(at)));
    }
}

fn standing(plan: &DaemonPlan, boot: &str) -> Standing {
    let record = &plan.record;
    if record.this_boot.as_ref().is_some_and(|this| this.boot == boot && this.ready) {
        return Standing::Ready;
    }
    // The DaemonSet controller's pod takes over.
    if let Some(hand_over) = record.hand_over.as_ref().filter(|hand_over| hand_over.boot == boot) {
        return if hand_over.done { Standing::Ready } else { Standing::Awaited };
    }
    let runs = record.live().next().is_some();
    // It is not installed here yet, and others may have to come first.
    if (plan.summary.awaits_approval || plan.summary.awaits_rollout) && !runs {
        return Standing::NotHere;
    }
    match plan.summary.state {
        State::NotSelected | State::LeftAlone | State::StandingBy => Standing::NotHere,
        State::Stopping | State::Orphaned => Standing::NotHere,
        State::Refused | State::Held if !runs => Standing::NotHere,
        State::Unknown if !runs => Standing::Unknown,
        // An instance that runs here keeps running.
        State::Refused
        | State::Held
        | State::Unknown
        | State::Running
        | State::Stale
        | State::Starting
        // A slow kubelet may take it yet.
        | State::NotAccepted
        | State::Waiting
        | State::Replacing
        | State::Failing => Standing::Awaited,
    }
}

#[cfg(test)]
mod tests;
