//! Which nodes the current revision may have broken, and which of those are lost: their Nodes were deleted, or the daemon
//! was taken away from them.
//!
//! Owns which loss counts as a failure. A node that is well with the revision is not lost, nor is one that an
//! autoscaler removes, nor one that breaks long after its update. Must not decide whether the rollout halts.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::cluster::broken::BrokenNodes;
use crate::core::cluster::broken::NodeVerdict;
use crate::core::cluster::broken::Suspect;
use crate::core::cluster::broken::Suspects;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released::ALL_RETRIED;
use crate::core::cluster::rollout;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::snapshot::KnownRevision;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::snapshot::WatchedNode;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

use super::Basis;
use super::cut_off;
use super::delays;
use super::min_ready;
use super::stages;

/// A node that is not well for so long is noted while its Node exists: it may be deleted while no coordinator runs.
const NOTED_AFTER: Span = Span::from_secs(60);

/// The taint of a Node that is cordoned.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taints of Nodes that the cluster autoscaler and Karpenter are about to remove.
const REMOVED: [&str; 2] = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];

/// The nodes that the current revision may have broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Broken {
    /// Names of nodes that are lost because their Nodes were deleted.
    pub(super) deleted: Vec<String>,
    /// Names of those from which the daemon was taken away.
    pub(super) taken_away: Vec<String>,
    /// How many more are lost.
    pub(super) more: usize,
    /// What is to be remembered, and is to be written on the ControllerRevision if it says something else.
    pub(super) suspects: Option<Suspects>,
    pub(super) write: Option<BrokenNodes>,
    /// When to look again.
    pub(super) look_again: Option<Timestamp>,
}

/// Looks at the nodes that have taken the `current` revision, and at those that had when they were last seen.
pub(super) fn plan(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    current: Option<&KnownRevision>,
    facts: &[NodeFact<'_>],
) -> Broken {
    let of_it = known.of_it(&known.state.broken, daemon).filter(|before| before.revision == daemon.hash);
    // The ControllerRevision was deleted, and the history makes it again.
    let Some(KnownRevision { revision: current, uid: current_uid, .. }) = current else {
        return Broken { suspects: of_it.cloned(), ..Broken::default() };
    };
    // A released revision works: a node that breaks now has another reason.
    if stages::is_released(daemon) {
        let write = (current.broken != BrokenNodes::default()).then(BrokenNodes::default);
        return Broken { write, ..Broken::default() };
    }
    // A ControllerRevision that was made anew does not name them yet.
    let is_forgiven = current.retried.contains(ALL_RETRIED);
    let is_new = |before: &&Suspects| before.noted_on != *current_uid && current.broken == BrokenNodes::default();
    let of_former = of_it.filter(is_new).filter(|_| !is_forgiven);
    let noted = of_former.map_or(&current.broken, |before| &before.noted);
    let mut listed = noted.clone();
    let node_of = |name: &str| known.view.nodes.get(name).and_then(|entry| entry.node.as_ref());
    let is_there = |name: &str, uid: &str| node_of(name).is_some_and(|node| node.view.uid.as_deref() == Some(uid));
    // The node has no report, or an empty one, or one that may be outdated.
    let doubtful: BTreeSet<&str> =
        facts.iter().filter(|fact| !fact.is_liveness_known()).map(|fact| fact.name).collect();
    let is_unknown =
        |name: &str| known.view.report(name).is_none_or(|report| report.said == 0) || doubtful.contains(name);
    let of_node: BTreeMap<&str, &NodeFact<'_>> = facts.iter().map(|fact| (fact.name, fact)).collect();
    let is_taken_away = |name: &str, uid: &str| {
        is_there(name, uid) && !is_unknown(name) && of_node.get(name).is_none_or(|fact| is_taken_away(fact))
    };
    // Its agent may be about to end it for good, or about to start it again.
    let is_idle =
        |name: &str, uid: &str| is_there(name, uid) && of_node.get(name).is_none_or(|fact| runs_nothing(fact));
    let none = BTreeMap::new();
    let before = of_it.map_or(&none, |before| &before.nodes);
    let mut suspects = BTreeMap::new();
    for fact in facts {
        let Some((node, uid)) = node_of(fact.name).and_then(|node| Some((node, node.view.uid.as_ref()?))) else {
            continue;
        };
        let found = suspect(known, daemon, (current, noted), (node, uid), fact, before.get(uid));
        suspects.extend(found.map(|suspect| (uid.clone(), suspect)));
    }
    for (uid, suspect) in before {
        if suspects.contains_key(uid) {
            continue;
        }
        let name = suspect.node.as_str();
        let is_forgiven = is_forgiven || current.is_retried(name);
        let is_lost = !is_there(name, uid) || is_taken_away(name, uid);
        if is_lost && suspect.verdict != NodeVerdict::Innocent && !noted.has(uid) && !is_forgiven {
            suspects.insert(uid.clone(), Suspect { verdict: NodeVerdict::Lost, ..suspect.clone() });
        } else if !is_lost && (is_unknown(name) || is_idle(name, uid) && !is_forgiven) {
            let verdict = if suspect.verdict == NodeVerdict::Lost { NodeVerdict::Broken } else { suspect.verdict };
            suspects.insert(uid.clone(), Suspect { verdict, ..suspect.clone() });
        }
    }
    let is_broken = |uid: &str| suspects.get(uid).is_some_and(|suspect| suspect.verdict == NodeVerdict::Broken);
    listed.nodes.retain(|broken| {
        let (name, uid) = (broken.node.as_str(), broken.uid.as_str());
        !is_there(name, uid) || is_unknown(name) || is_idle(name, uid) || is_broken(uid)
    });
    let kept = listed.clone();
    let mut look_again: Option<Timestamp> = None;
    let failed: BTreeSet<&str> = facts.iter().filter(|fact| fact.failed).map(|fact| fact.name).collect();
    let of = |verdict: NodeVerdict| suspects.iter().filter(move |(_, suspect)| suspect.verdict == verdict);
    for (uid, suspect) in of(NodeVerdict::Lost) {
        let is_noted = listed.note(uid, &suspect.node, known.now);
        listed.more += usize::from(!is_noted);
    }
    for (uid, suspect) in of(NodeVerdict::Broken).filter(|(uid, _)| !noted.has(uid)) {
        let is_ready = node_of(&suspect.node).is_some_and(|node| node.ready);
        match suspect.since.map(|since| since + NOTED_AFTER) {
            // It is slow, and its Node is well: nothing deletes that.
            _ if is_ready && !failed.contains(suspect.node.as_str()) => {}
            Some(at) if at > known.now => look_again = Some(look_again.map_or(at, |look| look.min(at))),
            _ => drop(listed.note(uid, &suspect.node, known.now)),
        }
    }
    let names = |is_such: &dyn Fn(&str, &str) -> bool| {
        let such = listed.nodes.iter().filter(|broken| is_such(&broken.node, &broken.uid));
        such.map(|broken| broken.node.clone()).collect()
    };
    Broken {
        deleted: names(&|name, uid| !is_there(name, uid)),
        taken_away: names(&is_taken_away),
        more: listed.more,
        suspects: Suspects {
            revision: daemon.hash.clone(),
            nodes: suspects,
            noted: if of_former.is_some() { kept } else { current.broken.clone() },
            noted_on: of_former.map_or(current_uid, |before| &before.noted_on).clone(),
        }
        .some(),
        write: (listed != current.broken).then_some(listed),
        look_again,
    }
}

/// Whether nothing of the daemon runs on a node, and its agent begins nothing.
fn runs_nothing(fact: &NodeFact<'_>) -> bool {
    !fact.failed && !fact.replacing && fact.instances.iter().all(|instance| instance.ending)
}

/// Whether nothing of the daemon runs on a node any more because it may not, or because its agent leaves it alone.
fn is_taken_away(fact: &NodeFact<'_>) -> bool {
    runs_nothing(fact) && (!fact.should_run || fact.left_alone)
}

/// What a node that has taken the revision counts as; `None`: it is well, or has not taken it.
fn suspect(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    (current, noted): (&RevisionFact, &BrokenNodes),
    (node, uid): (&WatchedNode, &str),
    fact: &NodeFact<'_>,
    before: Option<&Suspect>,
) -> Option<Suspect> {
    let newest = fact.instances.iter().rev().find(|i| !i.ending && i.revision == daemon.wanted);
    let claimed = fact.approval.filter(|given| fact.replacing && given.revision == daemon.wanted);
    let took = newest
        .map(|newest| newest.created)
        .or(claimed.map(|given| delays::claimed_at(known, daemon, (fact.name, given))));
    // A node on which it failed may have gone back.
    if took.is_none() && !fact.failed {
        return None;
    }
    let is_well = newest.is_some_and(|i| rollout::available(fact.ready, i, min_ready(daemon), known.now));
    // If the update waits for a drain, a cordon announces no removal.
    let is_drained = UpdateTrigger::of(&daemon.daemon_set) == Some(UpdateTrigger::Drain);
    let announces = |key: &str| REMOVED.contains(&key) || key == UNSCHEDULABLE && !is_drained;
    let is_announced = node.view.taints.iter().any(|taint| announces(&taint.key));
    // If this process does not remember the node, an autoscaler's taint counts as set while it was well.
    let is_removed = || node.view.taints.iter().any(|taint| REMOVED.contains(&taint.key.as_str()));
    let is_leaving = is_announced && (node.ready || before.map_or_else(is_removed, |before| before.is_leaving));
    let since = before.and_then(|before| before.since).filter(|since| *since <= known.now);
    let since = since.or_else(|| cut_off::by_its_condition(known, node)).unwrap_or(known.now);
    let verdict = if current.is_retried(fact.name) {
        NodeVerdict::Innocent
    } else if fact.failed {
        NodeVerdict::Broken
    } else if is_well || is_leaving {
        NodeVerdict::Innocent
    } else if noted.has(uid) || took.is_some_and(|took| since < took + delays::deadline(daemon)) {
        NodeVerdict::Broken
    } else {
        NodeVerdict::Innocent
    };
    let since = (!is_well || fact.failed).then_some(since);
    let is_known = since.is_some() || is_announced;
    is_known.then(|| Suspect { node: fact.name.to_owned(), since, is_leaving, verdict })
}
