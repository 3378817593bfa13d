//! Which revision is released, and whether the rollout of the current one is halted.
//!
//! Both are facts that outlive nodes and coordinators: they are read from the API, and only added to here.

use std::collections::BTreeSet;

use crate::core::annotations;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released::ALL_RETRIED;
use crate::core::cluster::released::FailedNodes;
use crate::core::cluster::released::FirstInstances;
use crate::core::cluster::released::HaltCause;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::RETRIED_BYTES;
use crate::core::cluster::released::Released;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutHold;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::rollout::RolloutRules;
use crate::core::cluster::snapshot::KnownRevision;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::DaemonSet;
use crate::core::time::Timestamp;

use super::Basis;
use super::broken::Broken;
use super::delays;
use super::facts;
use super::min_ready;
use super::rules;

/// Nodes that a halt names at most.
const NODES: usize = 10;

/// Why the rollout of the current revision is halted: since it once was, or from now on.
pub(super) fn halted(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    known_current: Option<&KnownRevision>,
    facts: &[NodeFact<'_>],
    broken: &Broken,
) -> Option<Halted> {
    let current = known_current.map(|known| &known.revision);
    if let Some(halted) = current.and_then(|current| current.halted.clone()) {
        return Some(halted);
    }
    // A released revision works: nodes that fail it now are reported, and no node goes back.
    if RolloutStatus::of(&daemon.status, daemon.generation).released.is_some_and(|r| r.hash == daemon.hash) {
        return None;
    }
    let noted = known.of_it(&known.state.halts, daemon).filter(|noted| noted.revision == daemon.hash);
    // A halt is ended by naming its nodes as retried.
    let is_ended = |halted: &Halted| {
        let current = current.filter(|_| !halted.nodes.is_empty());
        current.is_some_and(|current| halted.nodes.iter().all(|node| current.is_retried(node)))
    };
    // A halt that could not be written stands all the same, also for another coordinator. So does one that was written
    // on a ControllerRevision that was deleted.
    let uid = known_current.map(|known| known.uid.as_str());
    let unwritten = noted.filter(|noted| noted.stands(uid)).map(|noted| noted.halted.clone());
    // A halt without nodes was written by hand. If the ControllerRevision exists and does not have it, it was ended by
    // hand, too.
    let in_status = Halted::of_status(&daemon.status, &daemon.hash);
    let in_status = in_status.filter(|halted| !halted.nodes.is_empty() || current.is_none());
    let is_decided = known.state.decided.get(&daemon.daemon_set.key) == Some(&daemon.uid);
    let of_former_term = || in_status.filter(|_| !is_decided);
    if let Some(halted) = unwritten.or_else(of_former_term).filter(|halted| !is_ended(halted)) {
        return Some(halted);
    }
    let is_retried = |name: &str| current.is_some_and(|current| current.is_retried(name));
    let failed = facts.iter().filter(|n| n.failed && !is_retried(n.name)).map(|n| n.name);
    let failed: Vec<&str> = failed.chain(broken.deleted.iter().chain(&broken.taken_away).map(String::as_str)).collect();
    let number = failed.len() + broken.more;
    let desired = facts.iter().filter(|n| n.should_run).count();
    let halts = number > rules::max_failed(&daemon.daemon_set, known.settings, desired);
    if let Some(noted) = noted.filter(|_| halts) {
        return Some(noted.halted.clone());
    }
    halts.then(|| Halted {
        time: Some(known.now.in_whole_seconds()),
        cause: HaltCause::Failed(FailedNodes {
            nodes: number,
            deleted: broken.deleted.len(),
            taken_away: broken.taken_away.len(),
            more: broken.more,
        }),
        nodes: failed.into_iter().take(NODES).map(str::to_owned).collect(),
    })
}

/// Why nothing more is approved although the current revision is released: instances of it failed with the overlays of
/// their nodes, or after these were removed. This lasts until those nodes want other overlays, or are retried.
pub(super) fn failed_overlays(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
) -> Option<RolloutHold> {
    // A node that went back to what ran with overlays shows that they are gone.
    let has_overlays = |node: &NodeFact<'_>| {
        node.overlays.is_some() || node.instances.iter().any(|i| !i.ending && i.overlays.is_some())
    };
    let failed = facts.iter().filter(|node| node.failed && has_overlays(node)).count();
    let desired = facts.iter().filter(|node| node.should_run).count();
    let is_over = failed > rules::max_failed(&daemon.daemon_set, known.settings, desired);
    is_over.then_some(RolloutHold::FailedOverlays(failed))
}

/// The nodes whose failures of the current revision still do not count, if that is to be written: some no longer report
/// theirs and are Ready, so that the next one there counts, or all that it has broken are to be named.
pub(super) fn retried(
    daemon: &WatchedDaemon,
    current: &RevisionFact,
    facts: &[NodeFact<'_>],
) -> Option<BTreeSet<String>> {
    let is_as_then = |n: &NodeFact<'_>| n.failed || !n.ready || !n.is_liveness_known();
    // A coordinator that takes over believes the halt in the status as long as it names them.
    let in_status = Halted::of_status(&daemon.status, &daemon.hash);
    let is_named = |name: &String| in_status.as_ref().is_some_and(|halted| halted.nodes.contains(name));
    if current.retried.is_empty() {
        return None;
    }
    let as_then: BTreeSet<&str> = facts.iter().filter(|n| is_as_then(n)).map(|n| n.name).collect();
    let stays = |name: &String| is_named(name) || as_then.contains(name.as_str());
    let mut left: BTreeSet<String> = current.retried.iter().filter(|name| stays(name)).cloned().collect();
    if current.retried.contains(ALL_RETRIED) {
        let claims = |n: &NodeFact<'_>| n.replacing && n.approval.is_some_and(|given| given.revision == daemon.wanted);
        // A node that has not reported may have it.
        let may_have = |n: &NodeFact<'_>| claims(n) || n.unreported_until.is_some() || facts::has_wanted(daemon, n);
        let has_taken = |n: &NodeFact<'_>| n.failed || may_have(n);
        let mut room = RETRIED_BYTES.saturating_sub(left.iter().map(|name| name.len() + 1).sum());
        for n in facts.iter().filter(|n| has_taken(n) && is_as_then(n) && !current.retried.contains(n.name)) {
            let Some(rest) = room.checked_sub(n.name.len() + 1) else { break };
            room = rest;
            left.insert(n.name.to_owned());
        }
    }
    (left != current.retried).then_some(left)
}

/// Why nothing more is approved while the nodes of a retry of all cannot be named: the retry would also cover nodes
/// that fail later. A coordinator that has just taken over does not know whether they can be named.
pub(super) fn unnoted_retry(known: &Basis<'_>, daemon: &WatchedDaemon, current: &RevisionFact) -> Option<RolloutHold> {
    let (key, name) = (&daemon.daemon_set.key, &current.name);
    if !current.retried.contains(ALL_RETRIED) {
        return None;
    }
    let target = RequestTarget::Revision(key.clone(), RevisionChange::Halt, name.clone());
    let why = known.state.retries.failure(&target).map(ToString::to_string);
    let is_decided = known.state.decided.get(key) == Some(&daemon.uid);
    (why.is_some() || !is_decided).then(|| RolloutHold::RetryUnnamed { revision: name.clone(), why })
}

/// Whether nodes stay on what they have, however far the rollout has come.
fn is_kept(daemon_set: &DaemonSet) -> bool {
    annotations::is_paused(daemon_set) || rules::unbounded(daemon_set).is_some()
}

/// The released revision, and what first instances of a newer one do. The current one is released when every node that
/// can take it has it available, and nothing older ends there any more: one that is unreachable, has no agent or a dead one,
/// refuses it or has failed it does not count (too many failures halt it). While too many nodes are silent, nothing is
/// released.
pub(super) fn released(
    daemon: &WatchedDaemon,
    current: Option<&RevisionFact>,
    facts: &[NodeFact<'_>],
    (rules, rolled): (&RolloutRules, &RolloutPlan),
    now: Timestamp,
    is_held: bool,
) -> Option<(Released, FirstInstances)> {
    let has_it = |n: &NodeFact<'_>| {
        let live = || n.instances.iter().filter(|i| !i.ending);
        let is_current = n.instances.iter().all(|i| i.revision == daemon.wanted || i.ending && n.ends_late);
        is_current
            && !n.claims_other(daemon.wanted)
            && live().any(|i| rollout::available(n.ready, i, min_ready(daemon), now))
    };
    // A node that went away with it, or is not well, is waited for as long as it may still count as failed.
    let may_fail_yet = |n: &NodeFact<'_>| {
        let newest = n.instances.iter().rev().find(|i| !i.ending && i.revision == daemon.wanted);
        let is_waited_for = newest.is_some_and(|i| i.created + delays::deadline(daemon) > now);
        n.belongs && !n.failed && is_waited_for && !has_it(n)
    };
    let before = RolloutStatus::of(&daemon.status, daemon.generation).released;
    let is_on_delete = rules::is_on_delete(&daemon.daemon_set);
    // Nodes that are away count: the rollout still has to reach them.
    let runs_another =
        facts.iter().any(|n| n.belongs && n.instances.iter().any(|i| !i.ending && i.revision != daemon.wanted));
    // A node without a report, one that is kept on the old revision, and one whose agent's liveness is unknown may have
    // the old revision. A few nodes do not speak for all.
    let may_release = !is_held
        && (rolled.is_through && !is_kept(&daemon.daemon_set) || is_on_delete || before.is_none() && !runs_another)
        && facts
            .iter()
            .all(|n| !(n.should_run && n.reachable && (n.unreported_until.is_some() || !n.is_liveness_known())))
        && !rollout::is_unproven(rules, facts)
        && !facts.iter().any(may_fail_yet);
    let mut counting = facts.iter().filter(|n| n.should_run && n.reachable && n.able && !n.failed).peekable();
    let is_released = may_release && counting.peek().is_some() && counting.all(has_it);
    if let Some(current) = current.filter(|_| is_released) {
        let generation = daemon.generation;
        let released = Released { name: current.name.clone(), hash: daemon.hash.clone(), generation };
        return Some((released, FirstInstances::Complete));
    }
    let released = Released { generation: daemon.generation, ..before? };
    let first_instances = match released.hash == daemon.hash {
        true => FirstInstances::Complete,
        // Nodes of an uncoordinated DaemonSet start it without asking.
        _ if annotations::is_uncoordinated(&daemon.daemon_set) => FirstInstances::RollingOut,
        _ if is_held || !(rolled.is_open || is_on_delete) => FirstInstances::Held,
        _ => FirstInstances::RollingOut,
    };
    Some((released, first_instances))
}
