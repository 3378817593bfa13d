//! The stock controller's pods for this node: bound ones, and those that the scheduler could not bind.
//!
//! Owns how they are told from mirror pods, which may have the same owner. Must not decide what follows.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::plan::Evidence;
use crate::core::plan::Stock;
use crate::core::plan::StockPod;
use crate::core::record::HandOver;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Entry;
use crate::node::api::EventKind;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::Agent;
use super::evidence;
use super::evidence::Runtime;

/// A pod that no kubelet made, and so may be a stock controller's.
pub(super) type UnrelatedPod<'a> = (&'a ObjectKey, &'a Entry);

/// The node's pods that no kubelet made: few where all daemons are ours, and looked at once for each daemon.
pub(super) fn unrelated_pods(api: Option<&Snapshot>) -> Vec<UnrelatedPod<'_>> {
    let pods = api.into_iter().flat_map(|api| &api.pods);
    pods.filter(|(_, entry)| !owners::is_mirror_pod(&entry.value)).collect()
}

/// Who can tell of stock pods.
pub(super) struct StockPodLookup<'a> {
    pub(super) api: Option<&'a Snapshot>,
    pub(super) api_answers: bool,
    /// The pods in the API that no kubelet made ([`unrelated_pods`]).
    pub(super) unrelated_pods: &'a [UnrelatedPod<'a>],
    pub(super) runtime: &'a Runtime,
    pub(super) node: &'a str,
    /// When the node booted: what the API says of earlier times is the past.
    pub(super) booted: Timestamp,
}

impl StockPodLookup<'_> {
    /// What is known of the stock controller's pod for `daemon_set` on this node.
    pub(super) fn stock(&self, daemon_set: &DaemonSet, known: Option<&HandOver>) -> Stock {
        let Some(api) = self.api.filter(|_| self.api_answers) else {
            let state = self.api.and_then(|api| api.scopes.get(&Scope::Pods));
            let listing = state.is_some_and(|s| s.lists == 0 && s.error.is_none());
            let answers = self.api.is_some_and(|api| api.lists(&Scope::DaemonSets) > 0);
            return match listing && answers {
                true => Stock::Unlisted,
                false => Stock::Lost(self.runs(known)),
            };
        };
        let bound = self.unrelated_pods.iter().filter(|(k, _)| k.namespace == daemon_set.key.namespace);
        let bound = bound.map(|(_, entry)| *entry).find(|entry| is_stock(&entry.value, daemon_set));
        let pending = api.pending.iter().filter(|((of, _), _)| *of == daemon_set.key).map(|(_, entry)| entry);
        let here = |entry: &&Entry| {
            entry.value.pointer("/spec/target").is_some_and(|t| t == self.node) && is_stock(&entry.value, daemon_set)
        };
        let Some(entry) = bound.or_else(|| pending.into_iter().find(here)) else { return Stock::Absent };
        let text = |pointer: &str| entry.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Stock::Here(StockPod {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            ready: self.is_ready(&entry.value),
            runs: evidence::has_started(&entry.value),
        })
    }

    /// Whether the pod has become Ready in this boot: the API server remembers how it was before.
    fn is_ready(&self, pod: &Value) -> bool {
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        let mut ready = conditions.into_iter().flatten().filter(|c| c.get("type").is_some_and(|t| t == "Ready"));
        let since = |c: &Value| c.get("lastTransitionTime")?.as_str()?.parse::<Timestamp>().ok();
        // Times in the API are whole seconds.
        let of_this_boot = |c: &Value| since(c).is_some_and(|since| since + Span::from_secs(1) > self.booted);
        ready.any(|c| c.get("status").is_some_and(|s| s == "True") && of_this_boot(c))
    }

    /// Whether a container of the pod that was handed over to is there.
    fn runs(&self, known: Option<&HandOver>) -> Evidence {
        let Some(known) = known else { return Evidence::Gone };
        match self.runtime {
            Runtime::None => Evidence::Unknown("no runtime endpoint is configured".to_owned()),
            Runtime::Unreachable(why) => Evidence::Unknown(why.clone()),
            Runtime::Pods(_) => match self.runtime.pod(&known.uid) {
                Some(pod) if pod.running_since.is_some() || !pod.fact.containers.is_empty() => Evidence::Running,
                Some(_) | None => Evidence::Gone,
            },
        }
    }
}

fn is_stock(pod: &Value, daemon_set: &DaemonSet) -> bool {
    owners::is_stock_pod(pod, &daemon_set.key.name, daemon_set.uid.as_deref())
}

/// Daemons of which was said that a stock controller acts on them.
#[derive(Default)]
pub(super) struct ReportedStockPods(BTreeSet<ObjectKey>);

impl Agent {
    /// Says once, where everybody looks, that a stock controller acts on a daemon that is ours.
    pub(super) fn tell_stock(&mut self) {
        let mut reported = BTreeSet::new();
        for plan in &self.plan.daemons {
            let Some(pod) = &plan.summary.stock_pod else { continue };
            if !self.reported_stock_pods.0.contains(&plan.key) {
                let node = &self.config.node_name;
                let note =
                    format!("Pod {pod} of a DaemonSet controller runs on node {node} beside ours ({})", owners::FIX);
                tracing::warn!(daemonset = %plan.key, pod, "{note}");
                self.event(plan, EventKind::Warning, "StockController", "Run", &note);
            }
            reported.insert(plan.key.clone());
        }
        self.reported_stock_pods.0 = reported;
    }

    /// Looks for stock pods that cannot be bound, for the daemons that bridge.
    pub(super) fn watch_pending(&self) {
        let Some(api) = &self.api else { return };
        let bridging = self
            .plan
            .daemons
            .iter()
            .filter(|d| d.summary.mode == Some(Mode::Bootstrap) && d.record.live().next().is_some());
        let selector = |key: &ObjectKey| Some((key.clone(), labels(&self.definitions.get(key)?.selector)));
        let wanted: BTreeMap<ObjectKey, String> = bridging.filter_map(|d| selector(&d.key)).collect();
        api.set_pending(&wanted);
    }

    /// Whether only the runtime can tell of a stock pod that was handed over to.
    pub(super) fn hand_over_is_open(&self) -> bool {
        let open = |h: &HandOver| !h.done && h.boot == self.boot;
        self.disk.records.values().any(|r| r.hand_over.as_ref().is_some_and(open))
    }
}

/// The labels that a selector asks for; its expressions are left out, which only shows more.
fn labels(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().filter_map(|(k, v)| Some(format!("{k}={}", v.as_str()?)));
    pairs.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests;
