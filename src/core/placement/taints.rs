//! Taints, tolerations, and the tolerations that every daemon pod has.

use std::fmt;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::STARTING_TAINT;
use crate::core::model::Taint;

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// Tolerations of every daemon pod, in upstream's order; the last one with `hostNetwork` alone.
const AUTOMATIC: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
    ("node.kubernetes.io/network-unavailable", NO_SCHEDULE),
];

/// The same as pods have them.
static ADDED: LazyLock<[Value; 7]> = LazyLock::new(|| AUTOMATIC.map(|(key, effect)| exists(key, effect)));

/// That of a node that waits for its daemons.
static STARTING: LazyLock<Value> = LazyLock::new(|| exists(STARTING_TAINT, NO_SCHEDULE));

fn exists(key: &str, effect: &str) -> Value {
    json!({"effect": effect, "key": key, "operator": "Exists"})
}

/// Taints by which Kubernetes tells the condition of a node (`node.kubernetes.io/not-ready`), and a cloud that it has yet
/// to set the node up. Who means to keep a node's pods away has taints of another kind.
const CONDITIONS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Whether a taint goes when the node is well.
pub(super) fn tells_condition(taint: &Taint) -> bool {
    CONDITIONS.iter().any(|prefix| taint.key.starts_with(prefix))
}

/// A taint, and the toleration that tolerates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaintCheck {
    pub taint: Taint,
    /// The first toleration that matches; `None`: not tolerated.
    pub tolerated_by: Option<Value>,
    /// Whether that toleration is one that every daemon pod gets.
    pub automatic: bool,
}

impl TaintCheck {
    /// Whether the taint keeps a new pod away.
    pub fn repels(&self) -> bool {
        self.tolerated_by.is_none() && matches!(self.taint.effect.as_str(), NO_SCHEDULE | NO_EXECUTE)
    }

    /// Whether the taint ends a running pod.
    pub fn evicts(&self) -> bool {
        self.tolerated_by.is_none() && self.taint.effect == NO_EXECUTE
    }
}

impl fmt::Display for TaintCheck {
    /// The taint as kubectl writes it: `key=value:effect`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taint { key, value, effect } = &self.taint;
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

/// `tolerations` plus those that upstream gives every daemon pod (`AddOrUpdateDaemonPodTolerations`). One with the
/// same key, effect, operator and value is replaced in its position, which drops its `tolerationSeconds`; the others
/// are appended. `network-unavailable` only with `host_network`.
pub fn automatic_tolerations(tolerations: &[Value], host_network: bool) -> Vec<Value> {
    automatic(tolerations, host_network).into_iter().cloned().collect()
}

/// The same, as they are and where they are.
fn automatic(own: &[Value], host_network: bool) -> Vec<&Value> {
    let mut all: Vec<&Value> = own.iter().collect();
    let count = if host_network { AUTOMATIC.len() } else { AUTOMATIC.len() - 1 };
    ADDED[..count].iter().for_each(|toleration| add_or_update(&mut all, toleration));
    all
}

/// Upstream's `AddOrUpdateTolerationInPodSpec`.
fn add_or_update<'t>(tolerations: &mut Vec<&'t Value>, toleration: &'t Value) {
    let same = |other: &Value| {
        ["key", "effect", "operator", "value"].into_iter().all(|field| other.str_at(field) == toleration.str_at(field))
    };
    let mut updated = false;
    for other in tolerations.iter_mut().filter(|other| same(other)) {
        *other = toleration;
        updated = true;
    }
    if !updated {
        tolerations.push(toleration);
    }
}

/// Upstream's `Toleration.ToleratesTaint`, with the alpha comparison operators off (they never match).
fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let (key, effect) = (toleration.str_at("key"), toleration.str_at("effect"));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.str_at("operator") {
        "" | "Equal" => toleration.str_at("value") == taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// Whether the pod of a DaemonSet with `tolerations` is scheduled to a node that waits for its daemons, if the
/// DaemonSet controller makes it.
pub fn tolerates_starting(tolerations: &[Value]) -> bool {
    let taint = Taint { key: STARTING_TAINT.into(), value: String::new(), effect: NO_SCHEDULE.into() };
    tolerations.iter().any(|toleration| tolerates(toleration, &taint))
}

/// Each taint with the toleration that matches it. Beside upstream's, every daemon tolerates the taint of a node that
/// waits for its daemons, or those would have no place there. No pod has that toleration: the kubelet asks for
/// tolerations of `NoExecute` alone, and a namespace's list of allowed ones could refuse the mirror pod.
pub(super) fn check(taints: &[Taint], own: &[Value], host_network: bool) -> Vec<TaintCheck> {
    if taints.is_empty() {
        return Vec::new();
    }
    let mut all = automatic(own, host_network);
    add_or_update(&mut all, &STARTING);
    taints
        .iter()
        .map(|taint| {
            let found = all.iter().find(|toleration| tolerates(toleration, taint));
            let automatic = found.is_some_and(|toleration| !own.contains(toleration));
            TaintCheck { taint: taint.clone(), tolerated_by: found.map(|toleration| (*toleration).clone()), automatic }
        })
        .collect()
}

#[cfg(test)]
mod tests;
