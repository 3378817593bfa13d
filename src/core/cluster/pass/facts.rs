//! The nodes as one DaemonSet's rollout sees them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::core::annotations;
use crate::core::cluster::conditions::GoingBack;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::liveness::MirrorPodLookup;
use crate::core::cluster::names::Name;
use crate::core::cluster::released::Released;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::rollout::Standstill;
use crate::core::cluster::rollout::UNCLAIMED;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::NodeEntry;
use crate::core::cluster::snapshot::ReportedDaemon;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::snapshot::WatchedNode;
use crate::core::model::ObjectKey;
use crate::core::model::SPREAD_KEY;
use crate::core::model::TOPOLOGY_KEY;
use crate::core::status::State;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Basis;
use super::cut_off;
use super::delays;
use super::lacking::Lacking;
use super::reported::NodeRow;
use super::revisions;
use super::rules;
use super::stages;

/// A refusal counts for so long after its node may be tried again: other nodes may come first.
const REFUSED_FOR: Span = Span::from_secs(10);

/// Every node that should run the daemon or has an instance or an approval of it, and those that are unreachable and should
/// have one.
pub(super) fn nodes<'a>(known: &Basis<'a>, daemon: &WatchedDaemon) -> Vec<NodeFact<'a>> {
    let canary = rules::canary(&daemon.daemon_set);
    // An approval of another revision that was not claimed does not count here.
    let passed_over = known.of_it(&known.state.passed_over, daemon).filter(|of| of.revision == daemon.hash);
    let unmentioned = known.of_it(&known.state.unmentioned, daemon);
    let annotation = |name: &str| daemon.daemon_set.annotations.get(name);
    let (zone, spread) = (annotation(TOPOLOGY_KEY), annotation(SPREAD_KEY));
    // The released revision works: a node that is not ready with it now has another reason.
    let is_released = stages::is_released(daemon);
    let current = revision(known.view, daemon, daemon.wanted).filter(|_| !is_released);
    let is_past = |since: Option<&BTreeMap<String, Timestamp>>, name: &str, span: Span| {
        since.and_then(|since| since.get(name)).is_some_and(|since| *since + span <= known.now)
    };
    let mut all = Vec::new();
    for row in known.nodes_with(daemon.key) {
        let delay = delays::of(known, daemon, &row);
        let NodeRow { name, entry, agent, reported } = row;
        let Some(node) = &entry.node else { continue };
        let (should_run, belongs) = (daemon.should_run(entry), daemon.belongs(entry));
        let report = entry.report.as_ref();
        let reported = reported.filter(|reported| is_of(daemon, reported));
        let is_left_alone = report.is_some() && reported.is_none() && is_past(unmentioned, name, UNCLAIMED);
        let is_away = belongs && !node.reachable;
        let approvals = report.into_iter().flat_map(|r| &r.approvals);
        let mut mine = approvals.filter(|(key, uid, _)| *key == daemon.key && *uid == daemon.uid_name);
        let approval = mine.next().map(|(_, _, fact)| *fact);
        let is_nothing_there = reported.is_none_or(|t| t.instances.is_empty()) && approval.is_none();
        if !should_run && !is_away && is_nothing_there {
            continue;
        }
        let is_claimed = reported.is_some_and(|reported| reported.replacing.is_some());
        // The last report of a dead agent may be outdated.
        let lacks = !agent.is_dead() && reported.is_some_and(|reported| missing(reported, daemon.wanted).is_some());
        let is_ready = node.ready && (!agent.is_dead() || is_ready(known, daemon, name));
        let has_begun = reported.is_some_and(|reported| delays::has_begun(daemon, reported));
        let late = delay.is_some_and(|delay| delay.is_over(daemon, has_begun, known.now));
        let claimed = approval.filter(|given| is_claimed && given.revision == daemon.wanted);
        let claimed = claimed.map(|given| delays::claimed_at(known, daemon, (name, given)));
        let stays = reported.is_some_and(|reported| {
            reported.staged.is_none() && reported.instances.iter().all(|i| i.revision != daemon.wanted)
        });
        let ending = reported.map_or(Span::ZERO, |reported| delays::ending(daemon, &reported.instances));
        let is_claim_late = stays && claimed.is_some_and(|at| at + delays::deadline(daemon) + ending <= known.now);
        // What a node that is away last said counts no more once it is to be tried again.
        let is_forgiven = !node.reachable
            && current.is_some_and(|current| current.is_retried(name))
            && reported
                .is_some_and(|t| t.replacing.is_none() && t.instances.iter().all(|i| i.revision != daemon.wanted));
        let has_failed = |(revision, _): (Name, _)| revision == daemon.wanted && !is_forgiven;
        all.push(NodeFact {
            name,
            should_run,
            belongs,
            // A dead agent's report of its pods is not believed: they are looked up.
            ready: is_ready,
            reachable: node.reachable,
            unreported_until: agent.unreported.map(|at| at + UNCLAIMED).filter(|until| *until > known.now),
            able: report.is_some()
                && !agent.is_dead()
                && reported.is_none_or(|t| t.phase != Some(State::Refused))
                && !is_left_alone
                && !lacks,
            lacks,
            agent: agent.liveness,
            reports: report.is_some(),
            left_alone: is_left_alone,
            zone: zone.map(|key| label(node, key)),
            spread: spread.map(|key| label(node, key)),
            canary: canary.as_ref().is_some_and(|c| c.matches(&node.view.labels)),
            instances: reported.map_or(&[], |t| &t.instances),
            overlays: reported.and_then(|t| t.overlays),
            approval,
            returning: reported.and_then(|t| t.returning),
            awaits_rollout: reported.is_some_and(|t| t.awaits_rollout),
            replacing: is_claimed,
            // One that fails there keeps what runs, and of a dead agent only the pods count, which are looked up.
            claim: reported
                .filter(|reported| !agent.is_dead() && !reported.fails())
                .and_then(|reported| reported.replacing),
            staged: reported.and_then(|t| t.staged),
            failed: reported.and_then(|t| t.failed).is_some_and(has_failed)
                || late && has_begun && !is_released
                || reported.is_some_and(|t| cut_off::is_cut_off(known, daemon, t, (name, node, agent), claimed)),
            ends_late: reported
                .and_then(|reported| delays::old_ends(daemon, reported))
                .is_some_and(|at| at <= known.now),
            late: late || is_claim_late,
            broken: cut_off::is_broken(known, daemon, current, (name, node), report),
            // A clock that was set back puts none of them behind all others.
            passed_over: passed_over.and_then(|of| of.nodes.get(name)).map(|at| (*at).min(known.now)),
            refused_until: agent.refused_until.filter(|until| *until + REFUSED_FOR > known.now),
        });
    }
    all
}

/// The nodes; those whose agent's liveness is unknown count as not ready, because their reports may be outdated.
pub(super) fn certain<'f, 'a>(facts: &'f [NodeFact<'a>]) -> Cow<'f, [NodeFact<'a>]> {
    if facts.iter().all(NodeFact::is_liveness_known) {
        return Cow::Borrowed(facts);
    }
    facts.iter().map(|fact| NodeFact { ready: fact.ready && fact.is_liveness_known(), ..fact.clone() }).collect()
}

/// Whether a report is about this DaemonSet, and not about a deleted one of the same name.
fn is_of(daemon: &WatchedDaemon, reported: &ReportedDaemon) -> bool {
    reported.uid.is_none_or(|uid| uid == daemon.uid_name)
}

/// Nodes that should run the daemon and whose agents' reports leave it out, and since when. Nothing is known of agents
/// that report more daemons than are taken from one.
pub(super) fn unmentioned(known: &Basis<'_>, daemon: &WatchedDaemon) -> BTreeMap<String, Timestamp> {
    let before = known.of_it(&known.state.unmentioned, daemon);
    let is_it = |entry: &NodeEntry| {
        let report = entry.report.as_ref().filter(|report| report.left_out == 0);
        daemon.should_run(entry) && entry.node.is_some() && report.is_some()
    };
    // A clock that was set back makes none of them wait longer.
    let since = |name: &str| before.and_then(|before| before.get(name)).copied().filter(|since| *since <= known.now);
    let is_reported = |reported: Option<&ReportedDaemon>| reported.is_some_and(|reported| is_of(daemon, reported));
    let found = known.nodes_with(daemon.key).filter(|row| !is_reported(row.reported) && is_it(row.entry));
    found.map(|row| (row.name.to_owned(), since(row.name).unwrap_or(known.now))).collect()
}

/// The value of a Node's label; nodes without it are one group, too.
fn label<'a>(node: &'a WatchedNode, key: &str) -> &'a str {
    node.view.labels.get(key).map_or("", String::as_str)
}

/// Whether reports have just disappeared though their Nodes exist, or have yet to come, as when the NodeDaemons resource is
/// deleted or made: the daemons run on, and live agents report.
pub(super) fn are_reports_lost(known: &Basis<'_>, facts: &[NodeFact<'_>]) -> bool {
    let state = known.state;
    let comes = |name: &str| state.liveness.has_reported(name) || state.has_yet_to_report(name);
    let is_lost = |node: &NodeFact<'_>| node.unreported_until.is_some() && comes(node.name);
    facts.iter().any(|node| node.should_run && is_lost(node))
}

/// The released revision, by the name that its ControllerRevision has now: nodes that join look it up by that.
pub(super) fn by_its_name(view: &ClusterSnapshot, daemon: &WatchedDaemon, released: Released) -> Released {
    let key = ObjectKey::new(&daemon.daemon_set.key.namespace, &released.name);
    if view.revisions.get(&key).is_some_and(|known| known.revision.hash == released.hash) {
        return released;
    }
    let now = view.names.find(&released.hash).and_then(|hash| revision(view, daemon, hash));
    let name = now.map_or(released.name, |now| now.name.clone());
    Released { name, ..released }
}

/// Whether a node has an instance of the wanted revision.
pub(super) fn has_wanted(daemon: &WatchedDaemon, node: &NodeFact<'_>) -> bool {
    has(node, daemon.wanted)
}

/// Whether a node has an instance of a revision.
pub(super) fn has(node: &NodeFact<'_>, revision: Name) -> bool {
    node.instances.iter().any(|instance| instance.revision == revision)
}

/// The mirror pod of the newest instance that a node's agent reports.
fn mirror(known: &Basis<'_>, daemon: &WatchedDaemon, node: &str) -> Option<MirrorPodLookup> {
    let pod = known.view.report(node)?.daemon(daemon.key)?.pod.as_deref()?;
    let pod = ObjectKey::new(&daemon.daemon_set.key.namespace, pod);
    Some(MirrorPodLookup { node: node.to_owned(), pod })
}

/// Whether what runs on a dead agent's node is ready, by its mirror pod; unknown counts as not ready.
pub(super) fn is_ready(known: &Basis<'_>, daemon: &WatchedDaemon, node: &str) -> bool {
    mirror(known, daemon, node).and_then(|look| known.state.liveness.is_ready(&look)).unwrap_or(false)
}

/// The mirror pods to look up on the nodes of dead agents.
pub(super) fn mirrors(known: &Basis<'_>, daemon: &WatchedDaemon) -> Vec<MirrorPodLookup> {
    let nodes = known.view.nodes.iter().zip(known.agents).filter(|(_, agent)| agent.is_dead());
    let ready = nodes.filter(|((_, entry), _)| entry.node.as_ref().is_some_and(|node| node.ready));
    ready.filter_map(|((name, _), _)| mirror(known, daemon, name)).collect()
}

/// The released revision: nodes return to it when their rollout is aborted.
pub(super) fn released(daemon: &WatchedDaemon) -> Option<Name> {
    daemon.released.filter(|released| *released != daemon.wanted)
}

/// Nodes whose agents did not claim an approval of `target`, and when that was found: others come before them.
pub(super) fn silent(
    facts: &[NodeFact<'_>],
    rolled: &RolloutPlan,
    target: Name,
    now: Timestamp,
) -> BTreeMap<String, Timestamp> {
    let has_it = |n: &NodeFact<'_>| n.instances.iter().any(|i| i.revision == target && i.overlays == n.overlays);
    let answers = |n: &&NodeFact<'_>| n.replacing || has_it(n);
    let silent = facts.iter().filter(|n| !answers(n)).filter_map(|n| Some((n.name.to_owned(), n.passed_over?)));
    silent.chain(rolled.unclaimed.iter().map(|i| (facts[*i].name.to_owned(), now))).collect()
}

/// When approvals of a node that the API server refused are tried again.
fn refused_until(known: &Basis<'_>, node: &str) -> Option<Timestamp> {
    known.state.retries.refused_until(&RequestTarget::Approvals(node.to_owned()))
}

/// The nodes that are to have the `target`, and whose approvals the API server refused when they were last tried.
pub(super) fn refused<'a>(known: &Basis<'_>, facts: &[NodeFact<'a>], target: Name) -> Vec<&'a str> {
    let is_refused = |n: &&NodeFact<'_>| n.should_run && !has(n, target) && refused_until(known, n.name).is_some();
    facts.iter().filter(is_refused).map(|n| n.name).collect()
}

/// The ControllerRevision of a revision of a DaemonSet, if it is there.
pub(super) fn revision<'a>(view: &'a ClusterSnapshot, daemon: &WatchedDaemon, name: Name) -> Option<&'a RevisionFact> {
    let hash = view.names.text(name);
    revisions::of(view, daemon).find(|known| known.hash == hash)
}

/// The revision that a halted rollout goes back to, if the DaemonSet asks for that: the released one if its
/// ControllerRevision exists, as every node can have it. Otherwise the one that most nodes ran before; of two, the
/// younger. Never a halted one.
pub(super) fn way_back(view: &ClusterSnapshot, daemon: &WatchedDaemon, facts: &[NodeFact<'_>]) -> Option<Name> {
    let daemon_set = &daemon.daemon_set;
    if annotations::is_paused(daemon_set) || rules::is_on_delete(daemon_set) || !rules::rolls_back(daemon_set) {
        return None;
    }
    let is_halted = |name: Name| revision(view, daemon, name).is_some_and(|known| known.halted.is_some());
    let released = released(daemon).filter(|name| revision(view, daemon, *name).is_some() && !is_halted(*name));
    if released.is_some() {
        return released;
    }
    let mut found: BTreeMap<Name, usize> = BTreeMap::new();
    for node in facts.iter().filter(|n| n.should_run) {
        let reported = view.report(node.name).and_then(|r| r.daemon(daemon.key));
        let old = node.instances.iter().filter(|i| !i.ending).map(|i| i.revision).find(|r| *r != daemon.wanted);
        if let Some(old) = old.or_else(|| reported.and_then(|t| t.previous)).filter(|old| *old != daemon.wanted) {
            *found.entry(old).or_default() += 1;
        }
    }
    let number = |name: Name| revision(view, daemon, name).map_or(0, |known| known.number);
    let able = found.into_iter().filter(|(name, _)| !is_halted(*name));
    able.max_by_key(|(name, count)| (*count, number(*name))).map(|(name, _)| name)
}

/// The nodes as a rollout back to `to` sees them. Nodes that have taken the wanted revision return to `to` if they ran
/// it, or if it is the released one and still exists. Nodes with any other revision, such as one that was replaced
/// before it was released, stay on it.
pub(super) fn returning<'a>(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'a>],
    (to, lacking): (Name, &Lacking),
) -> Vec<NodeFact<'a>> {
    let view = known.view;
    let passed_over = known.of_it(&known.state.passed_over, daemon);
    let passed_over = passed_over.filter(|of| of.revision == view.names.text(to));
    let is_released = released(daemon) == Some(to) && revision(view, daemon, to).is_some();
    let can =
        |node: &NodeFact<'_>| is_released || reported(known, daemon, node).is_some_and(|t| t.previous == Some(to));
    // A node that the wanted revision made unwell leaves it, too.
    let should_run = |node: &NodeFact<'_>| node.should_run || node.belongs && has_wanted(daemon, node);
    let returns = |node: &NodeFact<'_>| has(node, to) || has_taken(daemon, node) && can(node);
    let back = |node: &NodeFact<'a>| {
        // Objects that the other revision lacks do not matter for this one.
        let lacks = missing_now(known, daemon, node, to).is_some() || lacking.has(node.name, known.now);
        let refuses = || reported(known, daemon, node).is_some_and(|reported| reported.phase == Some(State::Refused));
        NodeFact {
            failed: !returns(node),
            should_run: should_run(node),
            lacks,
            able: node.reports && node.agent != AgentLiveness::Dead && !node.left_alone && !lacks && !refuses(),
            passed_over: passed_over.and_then(|of| of.nodes.get(node.name)).map(|at| (*at).min(known.now)),
            ..node.clone()
        }
    };
    facts.iter().map(back).collect()
}

/// Of the nodes that cannot go back, by what [`returning`] gives, counts only those that are to leave the wanted
/// revision.
pub(super) fn count_unable(daemon: &WatchedDaemon, facts: &[NodeFact<'_>], rolled: &mut RolloutPlan) {
    if let Some(Standstill::Unable(_)) = rolled.held {
        let is_unable = |node: &&NodeFact<'_>| {
            node.belongs && has_taken(daemon, node) && !node.failed && !(node.able && node.reachable)
        };
        let unable = facts.iter().filter(is_unable).count();
        rolled.held = (unable > 0).then_some(Standstill::Unable(unable));
    }
}

/// How far a rollout back to `to` has come, by what [`returning`] gives.
pub(super) fn going_back(
    view: &ClusterSnapshot,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
    to: Name,
) -> GoingBack {
    let leaves = |node: &&NodeFact<'_>| node.belongs && has_taken(daemon, node);
    let unable = facts.iter().filter(leaves).filter(|n| n.failed).count();
    let is_other = |node: &NodeFact<'_>| node.instances.iter().any(|i| !i.ending) && !has(node, to);
    let stay = || facts.iter().filter(|node| node.should_run && !leaves(node));
    GoingBack {
        revision: view.names.text(to).to_owned(),
        left: facts.iter().filter(leaves).count() - unable,
        unable,
        others: stay().filter(|node| is_other(node)).count(),
        empty: stay().filter(|node| node.instances.iter().all(|i| i.ending)).count(),
    }
}

/// Whether a node has the wanted revision, or is being replaced: what it has next is not known.
fn has_taken(daemon: &WatchedDaemon, node: &NodeFact<'_>) -> bool {
    node.replacing || has_wanted(daemon, node)
}

/// The objects that a revision needs and that do not exist, as an agent reports.
pub(super) fn missing(reported: &ReportedDaemon, revision: Name) -> Option<Name> {
    reported.missing.filter(|(of, _)| *of == revision).map(|(_, objects)| objects)
}

/// The same by a node's agent, unless it is dead.
pub(super) fn missing_now(known: &Basis<'_>, daemon: &WatchedDaemon, node: &NodeFact<'_>, to: Name) -> Option<Name> {
    let reported = reported(known, daemon, node).filter(|_| node.agent != AgentLiveness::Dead)?;
    missing(reported, to)
}

/// What a node's agent reports of this DaemonSet.
fn reported<'a>(known: &Basis<'a>, daemon: &WatchedDaemon, node: &NodeFact<'_>) -> Option<&'a ReportedDaemon> {
    known.view.report(node.name)?.daemon(daemon.key).filter(|reported| is_of(daemon, reported))
}
