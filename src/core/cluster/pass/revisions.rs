//! The ControllerRevisions of one DaemonSet among all that there are.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::RevisionHolder;
use crate::core::cluster::names::Name;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::KnownRevision;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;
use crate::core::model::STATIC_GATE;
use crate::core::owners;
use crate::core::time::Span;

use super::Basis;
use super::ClusterPlan;

/// The DaemonSet controller has so long to write the current ControllerRevision.
const AWAITED: Span = Span::from_secs(30);

/// What is to be written about the history of a DaemonSet.
pub(super) fn plan(
    known: &Basis<'_>,
    key: &ObjectKey,
    daemon: &WatchedDaemon,
    facts: &[NodeFact<'_>],
) -> history::RevisionPlan {
    let view = known.view;
    // Its times are those at which the API server created the revisions.
    let set_back = known.set_back();
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    let instances = facts.iter().flat_map(|node| node.instances);
    seen.extend(instances.map(|i| i.revision));
    let mut in_use: BTreeSet<String> = seen.into_iter().map(|name| view.names.text(name).to_owned()).collect();
    // First instances may take the released revision, even if no node runs it now.
    in_use.extend(RolloutStatus::of(&daemon.status, daemon.generation).released.map(|released| released.hash));
    let (revisions, others, releases) = known_revisions(view, key, daemon);
    let wanted = history::Wanted {
        name: &key.name,
        template: &daemon.template,
        collisions: daemon.status.get("collisionCount").and_then(Value::as_i64).and_then(|c| i32::try_from(c).ok()),
        limit: daemon.limit,
        others: &others,
        in_use: &in_use,
        now: known.now - set_back,
    };
    let mut plan = history::plan(&wanted, &revisions);
    plan.look_again = plan.look_again.map(|at| at + set_back);
    plan.writes.splice(..0, releases);
    plan
}

/// Why the current revision cannot be written, if the API server has refused it or its name is taken: nothing is rolled
/// out then.
pub(super) fn refused(known: &Basis<'_>, key: &ObjectKey, plan: &history::RevisionPlan) -> Option<String> {
    if let Some(name) = &plan.waits_for {
        return Some(format!(
            "ControllerRevision {name} of a former DaemonSet of this name is still there, and nothing is rolled out until \
             it is gone: if that lasts, see its ownerReferences and finalizers"
        ));
    }
    let create = plan.writes.iter().find_map(|write| match write {
        history::RevisionWrite::Create { name, .. } => Some(name),
        _ => None,
    });
    let target = RequestTarget::Revision(key.clone(), RevisionChange::Create, create?.clone());
    let why = known.state.retries.failure(&target)?;
    Some(format!("its ControllerRevision cannot be written, and nothing is rolled out without it: {why}"))
}

/// Why the current revision is missing though the node selector leaves it to the DaemonSet controller, which has had the time
/// to write it.
pub(super) fn awaited(
    known: &Basis<'_>,
    key: &ObjectKey,
    daemon: &WatchedDaemon,
    plan: &mut ClusterPlan,
) -> Option<String> {
    if !owners::is_gated(&daemon.daemon_set) {
        return None;
    }
    // A clock that was set back makes it wait longer once.
    let since = known.of_it(&known.state.awaited, daemon).copied().filter(|since| *since <= known.now);
    let since = since.unwrap_or(known.now);
    plan.awaited.insert(key.clone(), since);
    if since + AWAITED > known.now {
        plan.look([since + AWAITED]);
        return None;
    }
    Some(format!(
        "the node selector {STATIC_GATE} in its template leaves its ControllerRevisions to the DaemonSet controller, which has \
         written none of the current template, and nothing is rolled out without it: start the DaemonSet controller, or, if \
         the cluster has none, remove this node selector"
    ))
}

/// The ControllerRevisions of a namespace: those of other namespaces, of which there may be many, are not visited.
fn of_namespace<'a>(
    view: &'a ClusterSnapshot,
    namespace: &str,
) -> impl Iterator<Item = (&'a ObjectKey, &'a KnownRevision)> {
    let from = ObjectKey::new(namespace, "");
    view.revisions.range(from.clone()..).take_while(move |(key, _)| key.namespace == from.namespace)
}

/// The ControllerRevisions of a DaemonSet: those of another namespace that name it as their owner do not count.
pub(super) fn of<'a>(view: &'a ClusterSnapshot, daemon: &WatchedDaemon) -> impl Iterator<Item = &'a RevisionFact> {
    let (uid, namespace) = (daemon.uid.clone(), &daemon.daemon_set.key.namespace);
    let its = of_namespace(view, namespace).filter(move |(_, known)| known.controller.as_ref() == Some(&uid));
    its.map(|(_, known)| &known.revision)
}

/// The ControllerRevisions of a DaemonSet, and those that it is about to adopt.
pub(super) fn adopted<'a>(
    view: &'a ClusterSnapshot,
    daemon: &'a WatchedDaemon,
) -> impl Iterator<Item = &'a RevisionFact> {
    let is_its = |known: &KnownRevision| known.controller.as_ref().is_none_or(|uid| *uid == daemon.uid);
    let its = of_namespace(view, &daemon.daemon_set.key.namespace);
    its.map(|(_, known)| known).filter(move |known| is_its(known) && known.is_selected_by(daemon)).map(|k| &k.revision)
}

/// The revisions of a DaemonSet, and orphans that match its selector; those of others whose names begin as its own; and
/// the writes that release those that its selector no longer matches.
fn known_revisions<'a>(
    view: &'a ClusterSnapshot,
    key: &'a ObjectKey,
    daemon: &WatchedDaemon,
) -> (Vec<history::RevisionFact>, BTreeMap<&'a str, RevisionHolder>, Vec<history::RevisionWrite>) {
    let (mut own, mut others, mut releases) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (of, known) in of_namespace(view, &key.namespace) {
        let is_own = known.controller.as_ref().is_none_or(|uid| *uid == daemon.uid);
        if is_own && known.is_selected_by(daemon) {
            own.push(known.revision.clone());
        } else if is_own && known.controller.is_some() {
            let name = of.name.clone();
            releases.push(history::RevisionWrite::Release { name });
            others.insert(of.name.as_str(), RevisionHolder::Other);
        } else if of.name.starts_with(history::prefix(&key.name)) {
            others.insert(of.name.as_str(), RevisionHolder::Other);
        }
    }
    others.extend(view.others_revisions(key));
    (own, others, releases)
}
