//! The DaemonSet controller's pods for this node: bound ones, and those that the scheduler could not bind.
//!
//! Owns how they are distinguished from mirror pods, which may have the same owner.

use crate::core::plan::Unseen;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::json::condition;
use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::pass::Plan;
use crate::core::plan::Evidence;
use crate::core::plan::Stock;
use crate::core::plan::StockPod;
use crate::core::plan::Unbound;
use crate::core::quantity::parse_json;
use crate::core::record::HandOver;
use crate::core::time::Span;
use crate::core::upstream::scheduler;
use crate::node::api::Entry;
use crate::node::api::EventKind;
use crate::node::api::FailureKind;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::super::daemon_event::DaemonEvent;
use super::super::definitions::ApiDefinitions;
use super::super::evidence;
use super::super::evidence::this_boot;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Request;

/// An API server that has not answered an agent since its start, for so long, although it takes connections.
const SILENT: Span = Span::from_secs(60);

/// A pod that no kubelet made, and so may be a DaemonSet controller's.
pub(in super::super) type UnrelatedPod<'a> = (&'a ObjectKey, &'a Entry);

/// The node's pods that no kubelet made: few where all daemons are ours, and looked at once for each daemon.
pub(in super::super) fn unrelated_pods(api: Option<&Snapshot>) -> Vec<UnrelatedPod<'_>> {
    let pods = api.into_iter().flat_map(|api| &api.pods);
    pods.filter(|(_, entry)| !owners::is_mirror_pod(&entry.value)).collect()
}

/// Whether no answer has come to a question for the DaemonSets, nor to one for the pods.
fn is_silent(api: &Snapshot) -> bool {
    let is_unanswered = |scope: Scope| {
        let error = api.scopes.get(&scope).and_then(|state| state.error.as_ref());
        api.lists(&scope) == 0 && error.is_none_or(|(failure, _)| failure.kind == FailureKind::Timeout)
    };
    is_unanswered(Scope::DaemonSets) && is_unanswered(Scope::Pods)
}

/// What is known of the DaemonSet controller's pod for `daemon_set` on this node. `known`: the one that was handed over to, and
/// whether the runtime has lost all that it listed ([`ending::has_lost_all`]).
pub(in super::super) fn stock(
    observation: &Observation,
    unrelated_pods: &[UnrelatedPod<'_>],
    daemon_set: &DaemonSet,
    known: Option<(&HandOver, bool)>,
) -> Stock {
    let snapshot = observation.snapshot();
    let Some(api) = snapshot.filter(|_| observation.api_answers()) else {
        // An API server that lists DaemonSets may have the pod. One that lists nothing any more counts as away; but if it
        // never listed the pods, a stock pod without a hand-over may run.
        let has_listed_pods = snapshot.is_some_and(|api| api.lists(&Scope::Pods) > 0);
        // Nor has one that has been silent for so long anything to say of it: what bridges starts as without a connection. One
        // that refuses answers: the kubelet may be let through.
        let is_silent = observation.steady >= SILENT && snapshot.is_some_and(is_silent);
        let is_unknown = known.is_none() && !has_listed_pods && !is_silent;
        let shows = snapshot.is_some_and(|api| api.is_current(&Scope::DaemonSets));
        return match observation.is_linked() && (shows || is_unknown) {
            true => Stock::Unlisted,
            false => Stock::Lost(runs(observation, known)),
        };
    };
    let bound = unrelated_pods.iter().filter(|(k, _)| k.namespace == daemon_set.key.namespace);
    let bound = bound.map(|(_, entry)| *entry).find(|entry| is_stock(&entry.value, daemon_set));
    let pending = api.pending.iter().filter(|((of, _), _)| *of == daemon_set.key).map(|(_, entry)| entry);
    let waits = pending.into_iter().find(|entry| is_stock(&entry.value, daemon_set));
    let (entry, unbound) = match (bound, waits) {
        (Some(bound), _) => (bound, None),
        (None, Some(waits)) => (waits, Some(unbound(&waits.value, api))),
        (None, None) => return Stock::Absent,
    };
    let text = |pointer: &str| entry.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Stock::Here(StockPod {
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
        ready: this_boot::is_ready(&entry.value, observation),
        runs: evidence::has_started(&entry.value),
        unbound,
    })
}

/// Why the scheduler could not bind the pod.
fn unbound(pod: &Value, api: &Snapshot) -> Unbound {
    let allocatable = api.node.as_ref().and_then(|node| node.value.at(["status", "allocatable"]));
    let offers = |resource: &str| {
        let amount = allocatable.and_then(|list| parse_json(list.get(resource)?));
        amount.is_some_and(|amount| amount.milli_value() > 0)
    };
    let message = condition(pod, "PodScheduled").map(|c| c.str_at("message")).unwrap_or_default();
    let may_end_with_instance = scheduler::may_fit_without_another(message, offers);
    Unbound { message: message.to_owned(), may_end_with_instance }
}

/// Whether a container of the pod that was handed over to is there.
fn runs(observation: &Observation, known: Option<(&HandOver, bool)>) -> Evidence {
    let Some((known, has_lost_all)) = known else { return Evidence::Gone };
    match &observation.runtime {
        Knowledge::Current(_) => match observation.runtime_pod(&known.uid) {
            Some(pod) if pod.running_since.is_some() || !pod.fact.containers.is_empty() => Evidence::Running,
            None if has_lost_all => Evidence::Unknown(Unseen::RuntimeLostAll),
            Some(_) | None => Evidence::Gone,
        },
        Knowledge::Absent(_) => Evidence::Unknown(Unseen::NoRuntime),
        unknown => Evidence::Unknown(evidence::why_unknown(unknown)),
    }
}

fn is_stock(pod: &Value, daemon_set: &DaemonSet) -> bool {
    owners::is_stock_pod(pod, &daemon_set.key.name, daemon_set.uid.as_deref())
}

/// Daemons for which it was reported that a DaemonSet controller acts on them.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct StockController(BTreeSet<ObjectKey>);

impl StockController {
    /// Reports once, as an event and in the log, that a DaemonSet controller acts on a daemon that is ours.
    pub(in super::super) fn report(&mut self, plan: &Plan, node: &str, log: &mut Log) -> Vec<DaemonEvent> {
        let mut acts = BTreeSet::new();
        let mut events = Vec::new();
        for daemon in &plan.daemons {
            let Some(pod) = &daemon.summary.stock_pod else { continue };
            acts.insert(daemon.key.clone());
            if !self.0.contains(&daemon.key) {
                let note = format!(
                    "Pod {pod} of a DaemonSet controller runs on node {node} beside ours (hint: {})",
                    owners::FIX
                );
                log.warn(note.clone()).daemonset(&daemon.key).pod(pod);
                events.push(DaemonEvent::new(daemon, EventKind::Warning, "StockController", "Run", note));
            }
        }
        self.0 = acts;
        events
    }

    /// Watches stock pods that cannot be bound, for the daemons that bridge or have handed over to one that has not been
    /// Ready.
    pub(in super::super) fn requests(&self, plan: &Plan, definitions: &ApiDefinitions) -> Vec<Request> {
        let bridges = |d: &&crate::core::plan::DaemonPlan| {
            let is_open = d.record.hand_over.as_ref().is_some_and(|hand_over| !hand_over.done);
            d.summary.mode == Some(Mode::Bootstrap) && (is_open || d.record.live().next().is_some())
        };
        let selector = |key: &ObjectKey| Some((key.clone(), labels(&definitions.get(key)?.selector)));
        let wanted: BTreeMap<ObjectKey, String> =
            plan.daemons.iter().filter(bridges).filter_map(|d| selector(&d.key)).collect();
        vec![Request::FollowPending(wanted)]
    }
}

/// Whether the runtime is the only evidence of a stock pod that was handed over to in this boot.
pub(in super::super) fn hand_over_is_open(records: &Records, boot: &str) -> bool {
    let open = |h: &HandOver| !h.done && h.boot == boot;
    records.values().any(|r| r.hand_over.as_ref().is_some_and(open))
}

/// The labels that a selector asks for; its expressions are left out, which only shows more.
fn labels(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().filter_map(|(k, v)| Some(format!("{k}={}", v.as_str()?)));
    pairs.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests;
