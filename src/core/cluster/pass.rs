//! One pass of the coordinator: facts in, writes out.
//!
//! Owns which DaemonSets are coordinated, and how history, counters, conditions and rollout of one come
//! together. A rollout that is to be taken back is one to another revision: approvals change, and nothing
//! that people wrote.

mod conflict;
mod rules;
mod status;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::validate;

use super::conditions;
use super::counters;
use super::history;
use super::history::Holder;
use super::names::Name;
use super::node_daemons::Approval;
use super::node_daemons::Spec;
use super::rollout;
use super::rollout::NodeFact;
use super::rollout::Rules;
use super::view::Claim;
use super::view::Daemon;
use super::view::View;

/// What a pass obeys.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which DaemonSets are ours.
    pub policy: Policy,
    /// Upstream's rollout rule to the letter.
    pub exact_rollouts: bool,
}

/// One thing to write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A ControllerRevision.
    Revision {
        /// Its DaemonSet.
        key: ObjectKey,
        /// What about it.
        write: history::Write,
    },
    /// The status of a DaemonSet.
    Status {
        /// The DaemonSet.
        key: ObjectKey,
        /// Fields of the status, as a merge patch.
        status: Value,
        /// On how many nodes it should run.
        nodes: usize,
        /// A rollout has ended: it does not wait for its turn.
        at_once: bool,
    },
    /// What a node may replace.
    Approvals {
        /// The node.
        node: String,
        /// All of its approvals.
        spec: Spec,
    },
}

/// What a pass found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is to be written, in order.
    pub writes: Vec<Write>,
    /// When to look again though nothing happens.
    pub look_again: Option<Timestamp>,
    /// Approvals that are withdrawn because no agent claimed them in time: DaemonSet and node.
    pub unclaimed: Vec<(ObjectKey, String)>,
    /// Pods that agents tell of and that are to be looked up ([`super::view::Change::LookedUp`]).
    pub doubted: Vec<Claim>,
}

impl Plan {
    /// Makes sure that somebody looks again at that time.
    fn look(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |l| l.min(at)));
    }
}

/// Plans everything.
pub fn plan(view: &mut View, options: &Options, now: Timestamp) -> Plan {
    view.heed_clocks(now);
    let mut plan = Plan::default();
    let mut specs: BTreeMap<String, Spec> = BTreeMap::new();
    let mut ours = BTreeSet::new();
    let mut daemons = std::mem::take(&mut view.daemons);
    for (key, daemon) in &mut daemons {
        if daemon.daemon_set.deleting || !is_ours(view, options, daemon) {
            continue;
        }
        ours.insert((daemon.key, daemon.uid_name));
        if let Some(refused) = daemon.refused.clone() {
            // What was approved stands, and no revision goes: nothing is known of what is wanted.
            let counted = count_known(view, key, daemon, now, &mut plan);
            let status = status::refused(daemon, &refused, counted.as_ref(), now);
            let write = |status| Write::Status { key: key.clone(), status, nodes: 0, at_once: false };
            plan.writes.extend(status.map(write));
            continue;
        }
        let unclaimed = coordinate(view, options, key, daemon, now, &mut plan, &mut specs);
        view.unclaimed.insert(daemon.key, unclaimed);
    }
    view.unclaimed.retain(|_, nodes| !nodes.is_empty());
    view.checked.retain(|(key, _), _| daemons.contains_key(key));
    view.daemons = daemons;
    // Approvals for what is gone, or is another object by now, mean nothing any more.
    for (node, entry) in &view.nodes {
        let Some(report) = &entry.report else { continue };
        if report.approvals.iter().all(|(key, uid, _)| ours.contains(&(*key, *uid))) {
            continue;
        }
        let spec = specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
        let known: BTreeSet<(String, &str)> =
            ours.iter().map(|(key, uid)| (view.names.text(*key).to_owned(), view.names.text(*uid))).collect();
        spec.approvals.retain(|a| known.contains(&(ObjectKey::new(&a.namespace, &a.name).to_string(), a.uid.as_str())));
    }
    plan.writes.extend(specs.into_iter().map(|(node, spec)| Write::Approvals { node, spec }));
    plan
}

/// Whether the DaemonSet is run by agents in place of the stock controller: by its label or policy, or
/// because agents have it from their folders, too.
fn is_ours(view: &View, options: &Options, daemon: &Daemon) -> bool {
    match options.policy.covers(&daemon.daemon_set, None) {
        Covered::Yes(mode) => mode == Mode::Static,
        Covered::No(_) => {
            let mut reports = view.nodes.values().filter_map(|entry| entry.report.as_ref()?.told(daemon.key));
            // An agent's word counts where the policy lets it: not in any namespace that it cares to name.
            daemon.daemon_set.mode_label().is_none()
                && options.policy.allows_namespace(&daemon.daemon_set.key.namespace)
                && reports.any(|told| told.is_static && told.uid == Some(daemon.uid_name))
        }
    }
}

/// The counters of a DaemonSet whose definition is refused, by the last one that was not, where one is known.
fn count_known(
    view: &mut View,
    key: &ObjectKey,
    daemon: &mut Daemon,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<counters::Counters> {
    let is_known = !daemon.hash.is_empty() && !owners::is_gated(&daemon.daemon_set);
    if !is_known || conflict::conflict(view, key, daemon, now, plan).is_some() {
        return None;
    }
    let min_ready = Span::from_secs(daemon.daemon_set.min_ready_seconds.into());
    let (counted, look_again) = counters::count(&nodes(view, daemon), daemon.wanted, min_ready, now);
    look_again.into_iter().for_each(|at| plan.look(at));
    Some(counted)
}

/// Plans one DaemonSet; gives the nodes whose agents did not claim an approval.
fn coordinate(
    view: &mut View,
    options: &Options,
    key: &ObjectKey,
    daemon: &mut Daemon,
    now: Timestamp,
    plan: &mut Plan,
    specs: &mut BTreeMap<String, Spec>,
) -> BTreeSet<String> {
    let conflict = conflict::conflict(view, key, daemon, now, plan);
    let view = &*view;
    let facts = nodes(view, daemon);
    let min_ready = Span::from_secs(daemon.daemon_set.min_ready_seconds.into());
    let rules = rules::of(daemon, options);
    let mut rolled = rollout::plan(&rules, min_ready, &facts, now);
    let mut target = daemon.wanted;
    let mut back = None;
    if let Some(to) = way_back(view, daemon, &rules, &facts) {
        let facts = returning(view, daemon, &facts, to);
        rolled = rollout::plan(&Rules { wanted: to, ..rules::unhindered(&rules) }, min_ready, &facts, now);
        let newer = |n: &&NodeFact<'_>| n.should_run && n.instances.iter().any(|i| i.revision == daemon.wanted);
        back = Some((view.names.text(to).to_owned(), facts.iter().filter(newer).count()));
        target = to;
    }
    let (counted, look_again) = counters::count(&facts, daemon.wanted, min_ready, now);
    let history = plan_history(view, key, daemon, &facts, now);
    for at in [rolled.look_again, look_again, history.look_again].into_iter().flatten() {
        plan.look(at);
    }
    // Two writers never fight over one field.
    let gated = owners::is_gated(&daemon.daemon_set) || conflict.is_some();
    if !gated {
        let write = |write| Write::Revision { key: key.clone(), write };
        plan.writes.extend(history.writes.into_iter().map(write));
    }
    let revision = view.names.text(target);
    for (index, approve) in rolled.withdraw.iter().map(|i| (*i, false)).chain(rolled.approve.iter().map(|i| (*i, true)))
    {
        let node = facts[index].name;
        let Some(report) = view.report(node) else { continue };
        let spec = specs.entry(node.to_owned()).or_insert_with(|| report.spec.clone());
        spec.approvals.retain(|a| a.namespace != key.namespace || a.name != key.name);
        if approve {
            spec.approvals.push(Approval {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: daemon.uid.clone(),
                revision: revision.to_owned(),
                approved_at: now.to_string(),
            });
        }
    }
    plan.unclaimed.extend(rolled.unclaimed.iter().map(|i| (key.clone(), facts[*i].name.to_owned())));
    // Counters follow the current revision: it has to be there first.
    if history.current.is_some() || gated {
        let causes = causes(view, daemon, &facts);
        let told = conditions::Facts {
            counters: counted,
            held: &rolled.held,
            causes: &causes,
            conflict: conflict.as_deref(),
            back: &back,
        };
        if let Some(status) = status::patch(daemon, (!gated).then_some(&counted), &told, now) {
            let nodes = counted.desired_number_scheduled;
            let at_once = !gated && status::ends(&daemon.status, &counted);
            plan.writes.push(Write::Status { key: key.clone(), status, nodes, at_once });
        }
    }
    let answers = |n: &&NodeFact<'_>| n.replacing || n.instances.iter().any(|i| i.revision == target);
    let silent = facts.iter().filter(|n| n.passed_over && !answers(n));
    silent.chain(rolled.unclaimed.iter().map(|i| &facts[*i])).map(|n| n.name.to_owned()).collect()
}

/// Every node that should run the daemon or has an instance of it.
fn nodes<'a>(view: &'a View, daemon: &mut Daemon) -> Vec<NodeFact<'a>> {
    let canary = rules::canary(&daemon.daemon_set);
    let passed_over = view.unclaimed.get(&daemon.key);
    let mut all = Vec::new();
    for (name, entry) in &view.nodes {
        let Some(node) = &entry.node else { continue };
        let should_run = daemon.should_run(entry.index(), node);
        let report = entry.report.as_ref();
        let told = report.and_then(|r| r.told(daemon.key)).filter(|t| t.uid.is_none_or(|uid| uid == daemon.uid_name));
        if !should_run && told.is_none_or(|t| t.instances.is_empty()) {
            continue;
        }
        let approvals = report.into_iter().flat_map(|r| &r.approvals);
        let mut mine = approvals.filter(|(key, uid, _)| *key == daemon.key && *uid == daemon.uid_name);
        all.push(NodeFact {
            name,
            should_run,
            ready: node.ready,
            reachable: node.reachable,
            canary: canary.as_ref().is_some_and(|c| c.matches(&node.view.labels)),
            instances: told.map_or(&[], |t| &t.instances),
            approval: mine.next().map(|(_, _, fact)| *fact),
            replacing: told.is_some_and(|t| t.replacing),
            failed: told.and_then(|t| t.failed).is_some_and(|(revision, _)| revision == daemon.wanted),
            passed_over: passed_over.is_some_and(|nodes| nodes.contains(name)),
        });
    }
    all
}

/// The revision that the whole rollout goes back to: it failed on too many nodes, and the DaemonSet asks
/// for that. Of those that nodes have run before, the one that most have; of two, the younger.
fn way_back(view: &View, daemon: &Daemon, rules: &Rules, facts: &[NodeFact<'_>]) -> Option<Name> {
    let failed = facts.iter().filter(|n| n.failed).count();
    if failed <= rules.max_failed || rules.hold.is_some() || !rules::rolls_back(&daemon.daemon_set) {
        return None;
    }
    let mut found: BTreeMap<Name, usize> = BTreeMap::new();
    for node in facts.iter().filter(|n| n.should_run) {
        let told = view.report(node.name).and_then(|r| r.told(daemon.key));
        let old = node.instances.iter().filter(|i| !i.ending).map(|i| i.revision).find(|r| *r != daemon.wanted);
        if let Some(old) = old.or_else(|| told.and_then(|t| t.previous)).filter(|old| *old != daemon.wanted) {
            *found.entry(old).or_default() += 1;
        }
    }
    let number = |name: Name| {
        let hash = view.names.text(name);
        let mut known = view.revisions.values().filter(|k| k.controller.as_ref() == Some(&daemon.uid));
        known.find(|k| k.revision.hash == hash).map_or(0, |k| k.revision.number)
    };
    found.into_iter().max_by_key(|(name, count)| (*count, number(*name))).map(|(name, _)| name)
}

/// The nodes as a rollout back to `to` sees them: only who ran it can return to it.
fn returning<'a>(view: &View, daemon: &Daemon, facts: &[NodeFact<'a>], to: Name) -> Vec<NodeFact<'a>> {
    let can = |node: &NodeFact<'_>| {
        view.report(node.name).and_then(|r| r.told(daemon.key)).is_some_and(|told| told.previous == Some(to))
    };
    facts.iter().map(|node| NodeFact { failed: !can(node), ..node.clone() }).collect()
}

/// What is to be written about the history of a DaemonSet.
fn plan_history(
    view: &View,
    key: &ObjectKey,
    daemon: &Daemon,
    facts: &[NodeFact<'_>],
    now: Timestamp,
) -> history::History {
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    let instances = facts.iter().flat_map(|node| node.instances);
    seen.extend(instances.map(|i| i.revision));
    let in_use: BTreeSet<String> = seen.into_iter().map(|name| view.names.text(name).to_owned()).collect();
    let (known, others) = known_revisions(view, key, daemon);
    let wanted = history::Wanted {
        name: &key.name,
        template: &daemon.template,
        collisions: daemon.status.get("collisionCount").and_then(Value::as_i64).and_then(|c| i32::try_from(c).ok()),
        limit: daemon.limit,
        others: &others,
        in_use: &in_use,
        now,
    };
    history::plan(&wanted, &known)
}

/// The revisions of a DaemonSet, and orphans that match its selector; and those of others whose names begin as its own.
fn known_revisions<'a>(
    view: &'a View,
    key: &ObjectKey,
    daemon: &Daemon,
) -> (Vec<history::Revision>, BTreeMap<&'a str, Holder>) {
    let (mut own, mut others) = (Vec::new(), BTreeMap::new());
    let from = ObjectKey::new(&key.namespace, "");
    for (of, known) in view.revisions.range(from..).take_while(|(of, _)| of.namespace == key.namespace) {
        let is_own = match &known.controller {
            Some(uid) => *uid == daemon.uid,
            None => validate::selects(&daemon.daemon_set.selector, &known.labels),
        };
        if is_own {
            own.push(known.revision.clone());
        } else if of.name.starts_with(&key.name) {
            let is_former = known.daemon_set.as_ref() == Some(&key.name);
            others.insert(of.name.as_str(), if is_former { Holder::Former } else { Holder::Other });
        }
    }
    (own, others)
}

/// What goes wrong, by cause: the revision that failed, else daemons that are refused or failing; and
/// agents that do not claim what they are given.
fn causes(view: &View, daemon: &Daemon, facts: &[NodeFact<'_>]) -> conditions::Causes {
    let mut causes = conditions::Causes::new();
    let mut add = |cause: &str, node: &str| causes.entry(cause.to_owned()).or_default().push(node.to_owned());
    for (node, entry) in &view.nodes {
        let Some(told) = entry.report.as_ref().and_then(|r| r.told(daemon.key)) else { continue };
        match (told.failed, told.phase) {
            (Some((revision, cause)), _) if revision == daemon.wanted => add(view.names.text(cause), node),
            (_, Some(state)) if status::is_trouble(state) => add(state.as_str(), node),
            _ => {}
        }
    }
    for node in facts.iter().filter(|n| n.passed_over) {
        add("approval not claimed", node.name);
    }
    causes
}

#[cfg(test)]
mod tests;
