//! Taints, tolerations, and the tolerations that every daemon pod has.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::STARTING_TAINT;
use crate::core::model::Taint;

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// Tolerations of every daemon pod, in upstream's order.
const AUTOMATIC: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];
/// Additional ones with `hostNetwork`.
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

/// Taints by which Kubernetes tells the condition of a node (`node.kubernetes.io/not-ready`), and a cloud that it has yet
/// to set the node up. To keep a node's pods away, people use taints of another kind.
const CONDITIONS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Whether a taint goes when the node is well.
pub(super) fn tells_condition(taint: &Taint) -> bool {
    CONDITIONS.iter().any(|prefix| taint.key.starts_with(prefix))
}

/// Taints by which the node controller tells that the kubelet is not Ready, or does not report.
const READINESS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Whether a taint tells how the kubelet was when it last reported: of another boot, that says nothing.
pub fn tells_readiness(taint: &Taint) -> bool {
    READINESS.contains(&taint.key.as_str())
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
    let mut all = tolerations.to_vec();
    automatic(host_network).for_each(|of| add_or_update(&mut all, of));
    all
}

/// Key and effect of each.
fn automatic(host_network: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    AUTOMATIC.into_iter().chain(host_network.then_some(NETWORK_UNAVAILABLE))
}

fn exists((key, effect): (&str, &str)) -> Value {
    json!({"effect": effect, "key": key, "operator": "Exists"})
}

/// Whether `toleration` is that of this key and effect, how long it may hold aside.
fn is_of(toleration: &Value, (key, effect): (&str, &str)) -> bool {
    [("key", key), ("effect", effect), ("operator", "Exists"), ("value", "")]
        .into_iter()
        .all(|(field, text)| toleration.str_at(field) == text)
}

/// Upstream's `AddOrUpdateTolerationInPodSpec`.
fn add_or_update(tolerations: &mut Vec<Value>, of: (&str, &str)) {
    let mut updated = false;
    for other in tolerations.iter_mut().filter(|other| is_of(other, of)) {
        *other = exists(of);
        updated = true;
    }
    if !updated {
        tolerations.push(exists(of));
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
    let added = || automatic(host_network).chain([(STARTING_TAINT, NO_SCHEDULE)]);
    let check = |taint: &Taint| {
        // One that is replaced tolerates the same: the first that matches is found without the others.
        let replaced = |own: &Value| added().find(|of| is_of(own, *of)).map_or_else(|| own.clone(), exists);
        let of_own = own.iter().find(|toleration| tolerates(toleration, taint)).map(replaced);
        let found = of_own.or_else(|| added().find(|of| *of == (&*taint.key, &*taint.effect)).map(exists));
        let automatic = found.as_ref().is_some_and(|toleration| !own.contains(toleration));
        TaintCheck { taint: taint.clone(), tolerated_by: found, automatic }
    };
    taints.iter().map(check).collect()
}

#[cfg(test)]
mod tests;
