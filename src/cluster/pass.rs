//! One pass of the coordinator: facts in, writes out.
//!
//! Owns which DaemonSets are coordinated and how their annotations are read.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::conditions;
use crate::core::cluster::counters;
use crate::core::cluster::counters::Counters;
use crate::core::cluster::history;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::ApprovalFact;
use crate::core::cluster::rollout::InstanceFact;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::Rules;
use crate::core::duration;
use crate::core::labels;
use crate::core::model::DaemonSet;
use crate::core::model::IntOrPercent;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::UpdateStrategy;
use crate::core::owners;
use crate::core::policy::Covered;
use crate::core::status::State;
use crate::core::validate;

use super::Options;
use super::conflict::conflict;
use super::view::Daemon;
use super::view::View;
use super::write::Write;

/// Annotation: `true` stops a rollout where it is.
const PAUSED: &str = "daemonlet.dev/paused";
/// Annotation: how many nodes stay on the old revision, as a number or a percentage.
const PARTITION: &str = "daemonlet.dev/partition";
/// Annotation: label selector of the nodes that go first.
const CANARY: &str = "daemonlet.dev/canary";
/// Annotation: how long all canary nodes have to be available before the others follow.
const CANARY_HOLD: &str = "daemonlet.dev/canary-hold";
/// Annotation: on how many nodes a revision may fail before the rollout halts.
const MAX_FAILED: &str = "daemonlet.dev/max-failed";

/// What a pass found.
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    /// When to look again though nothing happens.
    pub(super) look_again: Option<i64>,
}

/// One node's state for one daemon, while it is looked at.
struct Seen<'a> {
    name: &'a str,
    instances: Vec<InstanceFact>,
    should_run: bool,
    ready: bool,
    reachable: bool,
    canary: bool,
    approval: Option<ApprovalFact>,
    replacing: bool,
    failed: bool,
}

/// Plans everything.
pub(super) fn plan(view: &mut View, options: &Options, now: i64) -> Plan {
    let mut plan = Plan { writes: Vec::new(), look_again: None };
    let mut specs: BTreeMap<String, Spec> = BTreeMap::new();
    let mut ours = BTreeSet::new();
    let mut daemons = std::mem::take(&mut view.daemons);
    for (key, daemon) in &mut daemons {
        if daemon.daemon_set.deleting || !is_ours(view, options, key, daemon) {
            continue;
        }
        ours.insert((key.clone(), daemon.uid.clone()));
        coordinate(view, options, key, daemon, now, &mut plan, &mut specs);
    }
    view.daemons = daemons;
    // Approvals for what is gone, or is another object by now, mean nothing any more.
    for (node, report) in &view.reports {
        let stale = |a: &Approval| !ours.contains(&(ObjectKey::new(&a.namespace, &a.name), a.uid.clone()));
        if report.spec.approvals.iter().any(stale) {
            let spec = specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
            spec.approvals.retain(|a| !stale(a));
        }
    }
    plan.writes.extend(specs.into_iter().map(|(node, spec)| Write::Approvals { node, spec }));
    plan
}

/// Whether the DaemonSet is run by agents in place of the stock controller: by its label or policy, or
/// because agents have it from their folders, too.
fn is_ours(view: &View, options: &Options, key: &ObjectKey, daemon: &Daemon) -> bool {
    match options.policy.covers(&daemon.daemon_set, None) {
        Covered::Yes(mode) => mode == Mode::Static,
        Covered::No(_) => {
            let told = |r: &super::view::Report| r.daemons.get(key).is_some_and(|d| d.is_static && d.uid == daemon.uid);
            daemon.daemon_set.mode_label().is_none() && view.reports.values().any(told)
        }
    }
}

fn coordinate(
    view: &View,
    options: &Options,
    key: &ObjectKey,
    daemon: &mut Daemon,
    now: i64,
    plan: &mut Plan,
    specs: &mut BTreeMap<String, Spec>,
) {
    let seen = nodes(view, key, daemon);
    let facts: Vec<NodeFact<'_>> = seen.iter().map(Seen::fact).collect();
    let daemon_set = &*daemon.daemon_set;
    let min_ready = i64::from(daemon_set.min_ready_seconds) * 1_000;
    let rolled = rollout::plan(&rules(daemon_set, options), min_ready, &facts, now);
    let (counted, look_again) = counters::count(&facts, min_ready, now);
    let conflict = conflict(view, key, &daemon.uid);
    // Two writers never fight over one field.
    let gated = owners::is_gated(daemon_set) || conflict.is_some();
    let known = known_revisions(view, key, daemon);
    let in_use = view.reports.values().filter_map(|r| r.daemons.get(key)).flat_map(|d| &d.instances);
    let in_use: BTreeSet<String> = in_use.map(|(hash, _)| hash.clone()).collect();
    let wanted = history::Wanted {
        name: &key.name,
        template: &daemon.template,
        collisions: daemon.status.get("collisionCount").and_then(Value::as_i64).and_then(|c| i32::try_from(c).ok()),
        limit: daemon.limit,
        in_use: &in_use,
        now,
    };
    let history = history::plan(&wanted, &known);
    for at in [rolled.look_again, look_again, history.look_again].into_iter().flatten() {
        plan.look_again = Some(plan.look_again.map_or(at, |l| l.min(at)));
    }
    if !gated {
        let write = |write| Write::Revision { key: key.clone(), write };
        plan.writes.extend(history.writes.into_iter().map(write));
    }
    for index in &rolled.unclaimed {
        tracing::warn!(daemonset = %key, "approval for node {} was not claimed and is withdrawn", facts[*index].name);
    }
    for (index, approve) in rolled.withdraw.iter().map(|i| (*i, false)).chain(rolled.approve.iter().map(|i| (*i, true)))
    {
        let node = facts[index].name;
        let Some(report) = view.reports.get(node) else { continue };
        let spec = specs.entry(node.to_owned()).or_insert_with(|| report.spec.clone());
        spec.approvals.retain(|a| a.namespace != key.namespace || a.name != key.name);
        if approve {
            spec.approvals.push(Approval {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: daemon.uid.clone(),
                revision: daemon.hash.clone(),
                approved_at: time(now),
            });
        }
    }
    // Counters follow the current revision: it has to be there first.
    if history.current.is_some() || gated {
        let causes = causes(view, key, &daemon.hash);
        let facts =
            conditions::Facts { counters: counted, held: &rolled.held, causes: &causes, conflict: conflict.as_deref() };
        if let Some(status) = status(daemon, (!gated).then_some(&counted), &facts, now) {
            let done =
                counted.updated_number_scheduled == counted.desired_number_scheduled && counted.number_unavailable == 0;
            plan.writes.push(Write::Status { key: key.clone(), status, at_once: done });
        }
    }
}

/// Every node that should run the daemon or has an instance of it.
fn nodes<'a>(view: &'a View, key: &ObjectKey, daemon: &mut Daemon) -> Vec<Seen<'a>> {
    let canary = daemon.daemon_set.annotations.get(CANARY).and_then(|text| labels::parse(text).ok());
    let mut all = Vec::new();
    for (name, node) in &view.nodes {
        let should_run = daemon.should_run(node);
        let report = view.reports.get(name);
        let told = report.and_then(|r| r.daemons.get(key)).filter(|d| d.uid.is_empty() || d.uid == daemon.uid);
        if !should_run && told.is_none_or(|t| t.instances.is_empty()) {
            continue;
        }
        let mine = |a: &&Approval| a.namespace == key.namespace && a.name == key.name && a.uid == daemon.uid;
        let approval = report.and_then(|r| r.spec.approvals.iter().find(mine)).map(|a| ApprovalFact {
            wanted: a.revision == daemon.hash,
            at: a.approved_at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond),
        });
        let instances = told.iter().flat_map(|t| &t.instances);
        all.push(Seen {
            name,
            instances: instances.map(|(hash, fact)| InstanceFact { updated: *hash == daemon.hash, ..*fact }).collect(),
            should_run,
            ready: node.ready,
            reachable: node.reachable,
            canary: canary.as_ref().is_some_and(|c| c.matches(&node.view.labels)),
            approval,
            replacing: told.is_some_and(|t| t.replacing),
            failed: told.and_then(|t| t.failed.as_ref()).is_some_and(|f| f.revision == daemon.hash),
        });
    }
    all
}

impl Seen<'_> {
    fn fact(&self) -> NodeFact<'_> {
        NodeFact {
            name: self.name,
            should_run: self.should_run,
            ready: self.ready,
            reachable: self.reachable,
            canary: self.canary,
            instances: &self.instances,
            approval: self.approval,
            replacing: self.replacing,
            failed: self.failed,
        }
    }
}

fn rules(daemon_set: &DaemonSet, options: &Options) -> Rules {
    let annotation = |name: &str| daemon_set.annotations.get(name).map(String::as_str);
    let (max_unavailable, max_surge, on_delete) = match daemon_set.update_strategy {
        UpdateStrategy::RollingUpdate { max_unavailable, max_surge } => (max_unavailable, max_surge, false),
        UpdateStrategy::OnDelete => (IntOrPercent::Int(1), IntOrPercent::Int(0), true),
    };
    let hold = match annotation(PAUSED) {
        Some("true") => Some("paused".to_owned()),
        _ if on_delete => Some("the update strategy is OnDelete".to_owned()),
        _ => None,
    };
    let canary_hold = annotation(CANARY).and_then(|text| labels::parse(text).ok());
    let canary_hold = canary_hold.map(|_| annotation(CANARY_HOLD).and_then(duration::parse).unwrap_or(0));
    Rules {
        max_unavailable,
        max_surge,
        hold,
        partition: annotation(PARTITION).and_then(int_or_percent).unwrap_or(IntOrPercent::Int(0)),
        canary_hold,
        max_failed: annotation(MAX_FAILED).and_then(|text| text.parse().ok()).unwrap_or(1),
        exact: options.exact_rollouts,
    }
}

fn int_or_percent(text: &str) -> Option<IntOrPercent> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(IntOrPercent::Percent),
        None => text.parse().ok().map(IntOrPercent::Int),
    }
}

/// The revisions of a DaemonSet, and orphans that match its selector.
fn known_revisions(view: &View, key: &ObjectKey, daemon: &Daemon) -> Vec<history::Revision> {
    let from = ObjectKey::new(&key.namespace, "");
    let of_namespace = view.revisions.range(from..).take_while(|(k, _)| k.namespace == key.namespace);
    of_namespace
        .map(|(_, known)| known)
        .filter(|known| match &known.controller {
            Some(uid) => *uid == daemon.uid,
            None => validate::selects(&daemon.daemon_set.selector, &known.labels),
        })
        .map(|known| known.revision.clone())
        .collect()
}

/// What goes wrong, by cause: the revision that failed, else daemons that are refused or failing.
fn causes(view: &View, key: &ObjectKey, hash: &str) -> conditions::Causes {
    let mut causes = conditions::Causes::new();
    for (node, report) in &view.reports {
        let Some(told) = report.daemons.get(key) else { continue };
        let cause = match (&told.failed, told.phase) {
            (Some(failed), _) if failed.revision == hash => failed.cause.clone(),
            (_, Some(state @ (State::Refused | State::Failing))) => state.as_str().to_owned(),
            _ => continue,
        };
        causes.entry(cause).or_default().push(node.clone());
    }
    causes
}

/// The status that is to be written, if the live one differs. Without counters only conditions are ours.
fn status(daemon: &Daemon, counters: Option<&Counters>, facts: &conditions::Facts<'_>, now: i64) -> Option<Value> {
    let live = &daemon.status;
    let no_conditions = Vec::new();
    let before = live.get("conditions").and_then(Value::as_array).unwrap_or(&no_conditions);
    let conditions = conditions::merge(before, facts, &time(now));
    let mut status = json!({});
    if *before != conditions {
        status["conditions"] = json!(conditions);
    }
    if let Some(counters) = counters {
        let wanted = serde_json::to_value(counters).unwrap_or_default();
        let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
        let differ = |(name, value): &(&String, &Value)| number(live.get(name.as_str())) != number(Some(value));
        let generation = ("observedGeneration".to_owned(), json!(daemon.generation));
        let all = wanted.as_object().into_iter().flatten().chain(std::iter::once((&generation.0, &generation.1)));
        for (name, value) in all.filter(differ) {
            status[name.as_str()] = value.clone();
        }
    }
    status.as_object().is_some_and(|s| !s.is_empty()).then_some(status)
}

/// RFC 3339, whole seconds, UTC.
fn time(millis: i64) -> String {
    let second = jiff::Timestamp::from_second(millis.div_euclid(1_000)).unwrap_or_default();
    second.to_string()
}
