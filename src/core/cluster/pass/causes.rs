//! What goes wrong with the wanted revision, by cause and node.
//!
//! Owns the texts of the causes. Must not decide what follows from them.

use super::Basis;
use super::broken::Broken;
use super::delays;
use super::facts::has_wanted;
use super::facts::missing;
use super::lacking;
use super::lacking::Lacking;
use super::reported::NodeRow;
use super::status;
use crate::core::cluster::conditions;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::requests::SendError;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::rollout::Standstill;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::FIRST_INSTALL;
use std::collections::BTreeSet;

/// The cause of nodes that are late, and for which no other cause is known.
const LATE: &str = "not available within the progress deadline";
/// The cause of nodes on which an older instance stays.
const ENDS: &str = "an older instance does not end";
/// The cause of nodes that start nothing though nothing holds it.
const WAITS: &str = "waits to start, and NodeDaemons says for what,";
/// The cause of nodes that lack an object.
pub(super) const MISSING: &str = "needs an object that does not exist";
/// The cause of nodes whose Nodes were deleted.
const DELETED: &str = "its Node was deleted after it took the revision and before it was available";
/// The cause of nodes that may not run it any more, or whose agents leave it alone.
const TAKEN_AWAY: &str = "it was taken away after the node took the revision and before it was available";

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
    format!("{MISSING} ({most}{others})")
}

/// What goes wrong, by cause: the revision that failed, else daemons that are refused or failing; agents that do not
/// claim what they are given; nodes that are lost, those that keep the rollout from going on, and those that are late.
/// `towards`: the nodes as the rollout sees them; `back`: those that lack an object to go back.
pub(super) fn causes(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
    (towards, rolled): (&[NodeFact<'_>], &RolloutPlan),
    (broken, back): (&Broken, Option<&Lacking>),
) -> conditions::Causes {
    let view = known.view;
    let mut causes = conditions::Causes::new();
    let mut add = |cause: &str, node: &str| causes.entry(cause.to_owned()).or_default().push(node.to_owned());
    for NodeRow { name: node, reported, .. } in known.nodes_with(daemon.key) {
        let Some(reported) = reported else { continue };
        match (reported.failed, reported.phase) {
            (Some((revision, cause)), _) if revision == daemon.wanted => add(view.names.text(cause), node),
            (_, Some(state)) if status::is_trouble(state) => add(state.as_str(), node),
            _ if reported.pull_failed => add("image cannot be pulled", node),
            _ => {}
        }
    }
    // If no approvals are given, none can be unclaimed.
    for node in towards.iter().filter(|n| n.passed_over.is_some() && n.should_run && !is_withheld(rolled)) {
        add("approval not claimed", node.name);
    }
    for node in facts.iter().filter(|n| n.ends_late) {
        add(ENDS, node.name);
    }
    match back {
        Some(back) => back.nodes.keys().for_each(|node| add(MISSING, node)),
        None => facts.iter().filter(|n| n.lacks).for_each(|node| add(MISSING, node.name)),
    }
    for node in facts.iter().filter(|n| n.refused_until.is_some()) {
        add("the API server refuses to keep its approvals", node.name);
    }
    broken.deleted.iter().for_each(|node| add(DELETED, node));
    broken.taken_away.iter().for_each(|node| add(TAKEN_AWAY, node));
    if let Some((stuck, nodes)) = &rolled.stuck {
        nodes.iter().for_each(|index| add(stuck.text(), facts[*index].name));
    }
    let counts = |node: &&NodeFact<'_>| node.should_run || node.belongs && (node.replacing || has_wanted(daemon, node));
    for node in facts.iter().filter(counts) {
        match node.agent {
            AgentLiveness::Dead if node.reports => add("agent does not renew its Lease", node.name),
            _ if !node.reports => add("no agent", node.name),
            _ if node.left_alone => add("left alone by its agent", node.name),
            _ => {}
        }
    }
    let named: BTreeSet<String> = causes.values().flatten().cloned().collect();
    let is_late = |n: &NodeFact<'_>| n.late || delays::claim_ends(known, daemon, n).is_some_and(|at| at <= known.now);
    // If nothing holds the rollout, a node waits for an object or another daemon.
    let asks = daemon.daemon_set.annotations.contains_key(FIRST_INSTALL) && daemon.released.is_none();
    let is_free = rolled.is_open && !asks;
    for node in facts.iter().filter(|n| is_late(n) && n.ready && n.is_liveness_known() && !named.contains(n.name)) {
        let reported = view.report(node.name).and_then(|report| report.daemon(daemon.key));
        let cause = match reported.is_some_and(delays::waits) {
            true if is_free => WAITS,
            true => continue,
            false => LATE,
        };
        causes.entry(cause.to_owned()).or_default().push(node.name.to_owned());
    }
    causes
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
pub(super) fn unwritten(known: &Basis<'_>, daemon: &WatchedDaemon, current: &RevisionFact) -> Option<(String, String)> {
    let changes = [RevisionChange::Halt, RevisionChange::Broken, RevisionChange::Step];
    let key = &daemon.daemon_set.key;
    changes.into_iter().find_map(|change| {
        let target = RequestTarget::Revision(key.clone(), change, current.name.clone());
        let SendError::Refused(why) = known.state.retries.failure(&target)? else { return None };
        let what = match change {
            RevisionChange::Halt => "its halt",
            RevisionChange::Broken => "which nodes it broke",
            _ => "its step",
        };
        Some((format!("{what} cannot be noted on ControllerRevision {}", current.name), why.clone()))
    })
}
