//! What goes wrong with the wanted revision, by cause and node.
//!
//! Owns which nodes have which cause. Must not decide what follows from it.

use super::Basis;
use super::broken::Broken;
use super::delays;
use super::facts;
use super::facts::has_wanted;
use super::facts::missing;
use super::lacking;
use super::lacking::Lacking;
use super::older;
use super::reported::NodeRow;
use crate::core::cluster::events::TroubleCause;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::released::Released;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::requests::SendError;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::rollout::Standstill;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::FIRST_INSTALL;
use crate::core::record::Cause;
use crate::core::status::State;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// What goes wrong, with the nodes.
type NodesByCause = BTreeMap<TroubleCause, Vec<String>>;

/// The cause of nodes that lack an object, with the objects that most of them report. `back`: those that are to go
/// back.
pub(super) fn missing_objects(known: &Basis<'_>, daemon: &WatchedDaemon, back: Option<&Lacking>) -> String {
    let live = known.nodes_with(daemon.key).filter(|row| !row.agent.is_dead());
    let reported =
        live.filter_map(|row| row.reported).filter(|reported| reported.uid.is_none_or(|uid| uid == daemon.uid_name));
    let said =
        reported.filter_map(|reported| missing(reported, daemon.wanted)).map(|objects| known.view.names.text(objects));
    let (most, are_others) = back.map_or_else(|| lacking::most(said), Lacking::most);
    let others = if are_others { ", elsewhere others" } else { "" };
    format!("{} ({most}{others})", TroubleCause::ObjectMissing)
}

/// What goes wrong, by cause: the revision that failed, else daemons that are refused or failing; agents that do not
/// claim what they are given; nodes that are lost, those that keep the rollout from going on, and those that are late.
/// `towards`: the nodes as the rollout sees them; `back`: those that lack an object to go back; `kept_on`: the released
/// revision, if nodes that join are to start that.
pub(super) fn causes(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
    (towards, rolled): (&[NodeFact<'_>], &RolloutPlan),
    (broken, back, kept_on): (&Broken, Option<&Lacking>, Option<&Released>),
) -> NodesByCause {
    let view = known.view;
    let mut causes = NodesByCause::new();
    let mut add = |cause, node: &str| causes.entry(cause).or_default().push(node.to_owned());
    for NodeRow { name: node, reported, .. } in known.nodes_with(daemon.key) {
        let Some(reported) = reported else { continue };
        match (reported.failed, reported.phase) {
            (Some((revision, cause)), _) if revision == daemon.wanted => add(TroubleCause::Failed(cause), node),
            (_, Some(State::Refused)) => add(TroubleCause::Refused, node),
            (_, Some(State::Failing)) => add(TroubleCause::Failing, node),
            (_, Some(State::NotAccepted)) => add(TroubleCause::Failed(Some(Cause::NotAccepted)), node),
            _ if reported.pull_failed => add(TroubleCause::ImageNotPulled, node),
            _ => {}
        }
    }
    // If no approvals are given, none can be unclaimed.
    for node in towards.iter().filter(|n| n.passed_over.is_some() && n.should_run && !is_withheld(rolled)) {
        add(TroubleCause::ApprovalNotClaimed, node.name);
    }
    for node in facts.iter().filter(|n| n.ends_late) {
        add(TroubleCause::OldDoesNotEnd, node.name);
    }
    match back {
        Some(back) => back.nodes.keys().for_each(|node| add(TroubleCause::ObjectMissing, node)),
        None => facts.iter().filter(|n| n.lacks).for_each(|node| add(TroubleCause::ObjectMissing, node.name)),
    }
    for node in facts.iter().filter(|n| n.refused_until.is_some()) {
        add(TroubleCause::ApprovalsRefused, node.name);
    }
    broken.deleted.iter().for_each(|node| add(TroubleCause::NodeDeleted, node));
    broken.taken_away.iter().for_each(|node| add(TroubleCause::TakenAway, node));
    if let Some((stuck, nodes)) = &rolled.stuck {
        nodes.iter().for_each(|index| add(TroubleCause::Stuck(*stuck), facts[*index].name));
    }
    let counts = |node: &&NodeFact<'_>| node.should_run || node.belongs && (node.replacing || has_wanted(daemon, node));
    for node in facts.iter().filter(counts) {
        match node.agent {
            AgentLiveness::Dead if node.reports => add(TroubleCause::AgentDead, node.name),
            _ if !node.reports && known.state.may_yet_report(node.name, known.now) => {}
            _ if !node.reports => add(TroubleCause::NoAgent, node.name),
            _ if node.left_alone => add(TroubleCause::LeftAlone, node.name),
            AgentLiveness::NoLease => add(TroubleCause::LeaseNotWritten, node.name),
            _ => {}
        }
    }
    if let Some(released) = kept_on {
        cannot_join(known, daemon, released).for_each(|node| add(TroubleCause::ReleasedNotStarted, node));
    }
    let mut named: BTreeSet<String> = causes.values().flatten().cloned().collect();
    for node in older::lasting(known, daemon, facts).into_iter().filter(|node| !named.contains(*node)) {
        causes.entry(TroubleCause::OlderUnavailable).or_default().push(node.to_owned());
    }
    named.extend(causes.get(&TroubleCause::OlderUnavailable).into_iter().flatten().cloned());
    let is_late = |n: &NodeFact<'_>| n.late || delays::claim_ends(known, daemon, n).is_some_and(|at| at <= known.now);
    // If nothing holds the rollout, a node waits for an object or another daemon.
    let asks = daemon.daemon_set.annotations.contains_key(FIRST_INSTALL) && daemon.released.is_none();
    let is_free = rolled.is_open && !asks;
    for node in facts.iter().filter(|n| is_late(n) && n.ready && n.is_liveness_known() && !named.contains(n.name)) {
        let reported = view.report(node.name).and_then(|report| report.daemon(daemon.key));
        let cause = match reported.is_some_and(delays::waits) {
            true if is_free => TroubleCause::Waits,
            true => continue,
            false => TroubleCause::Late,
        };
        causes.entry(cause).or_default().push(node.name.to_owned());
    }
    causes
}

/// Nodes that have nothing and cannot start the `released` revision: it has no ControllerRevision, and the newest is not to
/// start, or something else has kept it from starting for a minute.
fn cannot_join<'a>(known: &Basis<'a>, daemon: &WatchedDaemon, released: &Released) -> impl Iterator<Item = &'a str> {
    let hash = known.view.names.find(&released.hash);
    let is_gone = hash.is_none_or(|hash| facts::revision(known.view, daemon, hash).is_none());
    let cannot = move |row: &NodeRow<'a>| {
        let reported = row.reported.filter(|reported| delays::waits(reported));
        let is_over = || delays::of(known, daemon, row).and_then(|delay| delay.waits_until());
        let should_run = row.entry.node.is_some() && daemon.should_run(row.entry);
        reported.filter(|_| should_run && !row.agent.is_dead()).is_some_and(|reported| match reported.awaits_rollout {
            // Else it is not for this node.
            true => is_gone,
            false => is_over().is_some_and(|at| at <= known.now),
        })
    };
    known.nodes_with(daemon.key).filter(cannot).map(|row| row.name)
}

/// Whether the rollout is held by something other than its nodes: a pause, a step, a partition.
fn is_withheld(rolled: &RolloutPlan) -> bool {
    use Standstill::Canary;
    use Standstill::Hold;
    use Standstill::NoCanary;
    use Standstill::Outage;
    use Standstill::Partition;
    use Standstill::Step;
    let held = rolled.held.as_ref();
    held.is_some_and(|held| {
        matches!(held, Hold(_) | Step(_) | NoCanary { .. } | Canary { .. } | Outage { .. } | Partition(_))
    })
}

/// What the API server refuses to store about the rollout of the `current` revision, so that another coordinator would
/// not know it, and its message, which may differ at each attempt.
pub(super) fn unwritten(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    current: &RevisionFact,
) -> Option<(TroubleCause, String)> {
    let changes = [RevisionChange::Halt, RevisionChange::Broken, RevisionChange::Step];
    let key = &daemon.daemon_set.key;
    changes.into_iter().find_map(|change| {
        let target = RequestTarget::Revision(key.clone(), change, current.name.clone());
        let SendError::Refused(why) = known.state.retries.failure(&target)? else { return None };
        let what = match change {
            RevisionChange::Halt => TroubleCause::HaltUnwritten,
            RevisionChange::Broken => TroubleCause::BrokenUnwritten,
            _ => TroubleCause::StepUnwritten,
        };
        Some((what(current.name.clone()), why.clone()))
    })
}
