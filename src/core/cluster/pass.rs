//! What one pass of the coordinator wants to be written.
//!
//! Owns which DaemonSets are coordinated, and how history, counters, conditions and rollout of one come
//! together. A rollout that is to be taken back is one to another revision: approvals change, and nothing
//! that people wrote.

mod approvals;
mod broken;
mod causes;
mod cluster_plan;
mod cut_off;
mod delays;
mod facts;
mod lacking;
mod older;
mod outcome;
mod releases;
mod remembered;
mod reported;
mod revisions;
mod rules;
mod stages;
mod status;
mod undecided;

pub use cluster_plan::ClusterPlan;
pub use cluster_plan::FewAgents;
pub use cluster_plan::ObjectWrite;
pub use cluster_plan::PassedOver;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::annotations;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::broken::BrokenNodes;
use super::conditions;
use super::counters;
use super::events;
use super::history;
use super::history::RevisionFact;
use super::names::Name;
use super::released::Halted;
use super::released::KnownHalt;
use super::rollout;
use super::rollout::NodeFact;
use super::rollout::RolloutHold;
use super::rollout::RolloutRules;
use super::snapshot::ClusterSnapshot;
use super::snapshot::ReportedDaemon;
use super::snapshot::WatchedDaemon;
use super::state::CoordinatorState;
pub use delays::NodeDelay;
pub use lacking::Lacking;
use outcome::RolloutOutcome;
use reported::AgentFact;
use stages::Advance;

/// What a pass obeys.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's node selector for namespaces that have none.
    pub default_node_selector: String,
    /// Upstream's rollout rule to the letter.
    pub exact_rollouts: bool,
}

/// What a plan is made from.
#[derive(Clone, Copy)]
struct Basis<'a> {
    view: &'a ClusterSnapshot,
    state: &'a CoordinatorState,
    settings: &'a Settings,
    /// What is known of the agents, in the order of the view's nodes.
    agents: &'a [AgentFact],
    /// What the agents report, by daemon: each in the order of the view's nodes.
    reported: &'a BTreeMap<Name, Vec<Option<&'a ReportedDaemon>>>,
    now: Timestamp,
}

impl Basis<'_> {
    /// By how much the wall clock was set back within the term: the clock of the term is so much ahead of it.
    fn set_back(&self) -> Span {
        (Span::ZERO - self.state.ahead).max(Span::ZERO)
    }
}

/// Plans everything.
pub fn plan(view: &ClusterSnapshot, state: &CoordinatorState, settings: &Settings, now: Timestamp) -> ClusterPlan {
    let agents = AgentFact::all(view, state, now);
    let reported = reported::by_daemon(view);
    let known = Basis { view, state, settings, agents: &agents, reported: &reported, now };
    let mut plan = ClusterPlan::default();
    let (mut ours, mut judged) = (BTreeSet::new(), BTreeSet::new());
    let unread = view.with_unread_revisions();
    for (key, daemon) in &view.daemons {
        if daemon.daemon_set.deleting {
            continue;
        }
        if !reported::is_ours(&known, daemon, &mut plan) {
            match reported::is_let_go(&known, daemon) {
                true => {
                    // It may be taken back.
                    plan.halts.extend(state.halts.get(key).map(|halt| (key.clone(), halt.clone())));
                    let write = |status| ObjectWrite::Status { key: key.clone(), status, nodes: 0, at_once: false };
                    plan.writes.extend(status::let_go(daemon).map(write));
                }
                false => plan.carry_over(state, key),
            }
            continue;
        }
        ours.insert((daemon.key, daemon.uid_name));
        match &daemon.refused {
            _ if unread.contains(key) => undecided::await_history(&known, key, daemon, &mut plan),
            Some(refused) => {
                undecided::report(&known, key, daemon, conditions::Undecided::Refused(refused), &mut plan);
                approvals::withdraw_refused(&known, daemon, &mut plan);
            }
            None => {
                judged.insert((daemon.key, daemon.uid_name));
                coordinate(&known, key, daemon, &mut plan);
            }
        }
    }
    view.unread_daemons().for_each(|key| plan.carry_over(state, key));
    let beyond = view.beyond().into_iter();
    plan.troubles.extend(beyond.map(|(key, uid, count)| (events::too_many_daemon_sets(key, uid), count)));
    approvals::withdraw_gone(&known, &ours, &mut plan);
    approvals::name_the_lease(&known, &judged, &mut plan);
    let specs = std::mem::take(&mut plan.specs).into_iter();
    plan.writes.extend(specs.map(|(node, spec)| ObjectWrite::Approvals { node, spec }));
    plan
}

/// The text of the condition if a DaemonSet controller acts on the DaemonSet, too.
fn conflict(known: &Basis<'_>, daemon: &WatchedDaemon, plan: &mut ClusterPlan) -> Option<String> {
    let verdict = {
        let reported = known.nodes_with(daemon.key).filter_map(|row| Some((row.name, row.reported?)));
        known.state.claims.judge(reported, daemon, known.now)
    };
    plan.lookups.extend(verdict.lookups);
    plan.look(verdict.look_again);
    verdict.conflict
}

fn min_ready(daemon: &WatchedDaemon) -> Span {
    Span::from_secs(daemon.daemon_set.min_ready_seconds.into())
}

/// The counters of a DaemonSet, and when one will change by time alone.
fn count(daemon: &WatchedDaemon, facts: &[NodeFact<'_>], now: Timestamp) -> (counters::Counters, Option<Timestamp>) {
    let wanted = (daemon.wanted, daemon.daemon_set.allows_surge());
    let count = |facts: &[NodeFact<'_>], is_available: counters::IsAvailable| {
        counters::count(facts, wanted, (min_ready(daemon), is_available), now)
    };
    let (most, look_again) = count(facts, rollout::may_be_available);
    let least = count(&facts::certain(facts), rollout::available).0;
    let before = serde_json::from_value(daemon.status.clone()).unwrap_or_default();
    (most.within(&least, &before), look_again)
}

/// Plans one DaemonSet.
fn coordinate(known: &Basis<'_>, key: &ObjectKey, daemon: &WatchedDaemon, plan: &mut ClusterPlan) {
    let Basis { view, now, .. } = *known;
    plan.decided.insert(key.clone(), daemon.uid.clone());
    let restored = remembered::restored(view, daemon);
    let is_restored = restored.is_some();
    let daemon = restored.as_ref().unwrap_or(daemon);
    let conflict = conflict(known, daemon, plan);
    let facts = facts::nodes(known, daemon);
    note_nodes(known, key, daemon, &facts, plan);
    let min_ready = min_ready(daemon);
    // Two writers never fight over one field.
    let gated = owners::is_gated(&daemon.daemon_set) || conflict.is_some();
    let mut history = revisions::plan(known, key, daemon, &facts);
    let known_current =
        history.current.as_ref().and_then(|name| view.revisions.get(&ObjectKey::new(&key.namespace, name)));
    let current = known_current.map(|known| &known.revision);
    let broken = broken::plan(known, daemon, known_current, &facts);
    plan.look(broken.look_again);
    plan.broken.extend(broken.suspects.clone().map(|suspects| (key.clone(), suspects)));
    let halted = releases::halted(known, daemon, known_current, &facts, &broken);
    plan.halts.extend(halted.iter().map(|halted| {
        let says_it = known_current.filter(|known| known.revision.halted.is_some());
        let written_on = says_it.map(|known| known.uid.clone());
        (key.clone(), KnownHalt { revision: daemon.hash.clone(), halted: halted.clone(), written_on })
    }));
    // A ControllerRevision that was deleted is halted from the moment on at which it is made again.
    history.halt(halted.as_ref());
    let mut marks =
        current.map_or_else(Vec::new, |current| marks(daemon, current, &facts, halted.as_ref(), broken.write.clone()));
    let is_aborted = stages::is_aborted(daemon, current);
    let renumbered = history.writes.iter().find_map(|write| match write {
        history::RevisionWrite::Renumber { name, number } if current.is_some_and(|c| c.name == *name) => Some(*number),
        _ => None,
    });
    let stopped = is_aborted.then_some(RolloutHold::Aborted);
    let stopped = stopped.or_else(|| halted.clone().map(RolloutHold::Halted));
    let mut rules = rules::of(
        daemon,
        known.settings,
        current.map(|c| (c.name.as_str(), renumbered.unwrap_or(c.number))),
        stopped,
        now + known.state.ahead,
    );
    let unnoted = current.and_then(|current| releases::unnoted_retry(known, daemon, current));
    rules.hold = rules.hold.or(unnoted).or(is_restored.then_some(RolloutHold::ReleasedLost));
    rules.hold = rules.hold.or_else(|| rules::no_zone(&daemon.daemon_set, &facts));
    plan.look(rules::looks_again(&daemon.daemon_set, now + known.state.ahead).map(|at| at - known.state.ahead));
    let advance = match &rules.hold {
        _ if is_aborted || halted.is_some() => Advance::Stopped,
        Some(RolloutHold::OutsideWindow(_)) => Advance::Closed,
        Some(_) => Advance::Held,
        None => Advance::GoesOn,
    };
    let certain = facts::certain(&facts);
    let stage = stages::stage((&rules, advance), daemon, current, renumbered, &certain, &known.state.retries, now);
    marks.extend(stage.write);
    plan.look(stage.look_again);
    rules.step = stage.limit;
    if rules.hold.is_none() {
        rules.hold = releases::failed_overlays(known, daemon, &facts);
    }
    if current.is_none() {
        rules.hold = Some(RolloutHold::NoControllerRevision);
    }
    let mut rolled = rollout::plan(&rules, min_ready, &facts, now);
    let (mut target, mut back, mut lacking) = (daemon.wanted, None, None);
    let mut towards = Cow::Borrowed(facts.as_slice());
    let is_stopped = halted.is_some() || is_aborted;
    let released = releases::released(daemon, current, &facts, (&rules, &rolled), now, is_stopped);
    let released = released.map(|(released, first)| (facts::by_its_name(view, daemon, released), first));
    marks.extend(released.as_ref().and_then(|(released, _)| remembered::mark(view, daemon, released)));
    if let Some(to) = way_back(view, daemon, &facts, halted.as_ref(), is_aborted).filter(|_| !is_restored) {
        let noted = Lacking::note(known, daemon, &facts, to);
        plan.look(noted.tried_again().filter(|at| *at > now));
        let returning = facts::returning(known, daemon, &facts, (to, &noted));
        rolled = rollout::plan(&RolloutRules { wanted: to, ..rules::unhindered(&rules) }, min_ready, &returning, now);
        facts::count_unable(daemon, &returning, &mut rolled);
        back = Some(facts::going_back(view, daemon, &returning, to));
        (towards, lacking) = (Cow::Owned(returning), Some(noted));
        target = to;
    }
    let (counted, look_again) = count(daemon, &facts, now);
    plan.look([rolled.look_again, look_again, history.look_again].into_iter().flatten());
    let refused = match current.is_none() {
        true => revisions::refused(known, key, &history).or_else(|| revisions::awaited(known, key, daemon, plan)),
        false => revisions::refused(known, key, &history),
    };
    let own = if gated { Vec::new() } else { std::mem::take(&mut history.writes) };
    plan.writes.extend(own.into_iter().chain(marks).map(|write| ObjectWrite::Revision { key: key.clone(), write }));
    approvals::give(known, daemon, (&facts, &rolled), (target, rules.when), plan);
    plan.refused.extend(facts::refused(known, &facts, target).into_iter().map(str::to_owned));
    plan.unclaimed.extend(rolled.unclaimed.iter().map(|i| (key.clone(), facts[*i].name.to_owned())));
    let outcome = RolloutOutcome {
        current,
        is_current_named: history.current.is_some(),
        broken: &broken,
        halted: halted.as_ref(),
        is_aborted,
        rolled: &rolled,
        waiting: rules.when.map(|when| (when, rolled.waiting)),
        released: released.as_ref(),
        back: &back,
        counters: counted,
        conflict: conflict.as_deref(),
        refused: refused.as_deref(),
        is_gated: gated,
        target,
        towards: &towards,
        lacking: lacking.as_ref(),
    };
    outcome.report(known, key, daemon, &facts, plan);
    let nodes = facts::silent(&towards, &rolled, target, now);
    let revision = view.names.text(target).to_owned();
    plan.passed_over.extend((!nodes.is_empty()).then(|| (key.clone(), PassedOver { revision, nodes })));
    plan.lacking.extend(lacking.filter(|lacking| !lacking.nodes.is_empty()).map(|lacking| (key.clone(), lacking)));
}

/// Remembers what is to be seen of each node alone, and when it will change by time alone.
fn note_nodes(
    known: &Basis<'_>,
    key: &ObjectKey,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
    plan: &mut ClusterPlan,
) {
    let now = known.now;
    let unmentioned = facts::unmentioned(known, daemon);
    plan.look(unmentioned.values().map(|since| *since + rollout::UNCLAIMED).filter(|at| *at > now));
    if !unmentioned.is_empty() {
        plan.unmentioned.insert(key.clone(), unmentioned);
    }
    let older = older::unavailable(known, daemon, facts);
    plan.look(older::due(&older).filter(|at| *at > now));
    if !older.is_empty() {
        plan.older_unavailable.insert(key.clone(), older);
    }
    let delays = delays::plan(known, daemon);
    let ends = delays.values().flat_map(|delay| [delay.ends(daemon), delay.waits_until()]).flatten();
    plan.look(ends.filter(|at| *at > now));
    if !delays.is_empty() {
        plan.delays.insert(key.clone(), delays);
    }
    let reported = known.nodes_with(daemon.key).filter_map(|row| row.reported);
    plan.look(reported.filter_map(|reported| delays::old_ends(daemon, reported)).filter(|at| *at > now));
    plan.look(facts.iter().filter_map(|node| delays::claim_ends(known, daemon, node)).filter(|at| *at > now));
    plan.mirrors.extend(facts::mirrors(known, daemon));
}

/// The annotations that ControllerRevision `current` is to have about its rollout, whichever controller keeps the
/// history.
fn marks(
    daemon: &WatchedDaemon,
    current: &RevisionFact,
    facts: &[NodeFact<'_>],
    halted: Option<&Halted>,
    broken: Option<BrokenNodes>,
) -> Vec<history::RevisionWrite> {
    let name = || current.name.clone();
    let halted = halted.filter(|_| current.halted.is_none()).cloned();
    let halted = halted.map(|halted| history::RevisionWrite::Halt { name: name(), halted });
    let retried = releases::retried(daemon, current, facts);
    let retried = retried.map(|nodes| history::RevisionWrite::Retried { name: name(), nodes });
    let broken = broken.map(|broken| history::RevisionWrite::Broken { name: name(), broken });
    halted.into_iter().chain(retried).chain(broken).collect()
}

/// The revision to which nodes go back from one that was aborted, or that is halted.
fn way_back(
    view: &ClusterSnapshot,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
    halted: Option<&Halted>,
    is_aborted: bool,
) -> Option<Name> {
    let is_still = || annotations::is_paused(&daemon.daemon_set) || rules::is_on_delete(&daemon.daemon_set);
    let to = match is_aborted {
        true => facts::released(daemon).filter(|_| !is_still()),
        false => halted.and_then(|_| facts::way_back(view, daemon, facts)),
    };
    to.filter(|_| !annotations::is_uncoordinated(&daemon.daemon_set))
}

#[cfg(test)]
mod tests;
