//! The approvals that are to stand on each node.
//!
//! Owns what of a rollout's plan becomes an approval, and which approvals mean nothing any more.

use std::collections::BTreeSet;

use crate::core::cluster::names::Name;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;
use crate::core::update_trigger::UpdateTrigger;

use super::Basis;
use super::ClusterPlan;

/// Gives and withdraws what the rollout of one DaemonSet to the revision `target` has planned. `when`: what nodes wait
/// for on which something runs.
pub(super) fn give(
    known: &Basis<'_>,
    daemon: &WatchedDaemon,
    (facts, rolled): (&[NodeFact<'_>], &RolloutPlan),
    (target, when): (Name, Option<UpdateTrigger>),
    plan: &mut ClusterPlan,
) {
    let (view, key) = (known.view, &daemon.daemon_set.key);
    let revision = view.names.text(target);
    for (index, approve) in rolled.withdraw.iter().map(|i| (*i, false)).chain(rolled.approve.iter().map(|i| (*i, true)))
    {
        let node = facts[index].name;
        let Some(report) = view.report(node) else { continue };
        let spec = plan.specs.entry(node.to_owned()).or_insert_with(|| report.spec.clone());
        spec.approvals.retain(|a| a.namespace != key.namespace || a.name != key.name);
        if approve {
            spec.approvals.push(Approval {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: daemon.uid.clone(),
                revision: revision.to_owned(),
                overlays: facts[index].overlays.map_or_else(String::new, |digest| view.names.text(digest).to_owned()),
                approved_at: known.now.to_string(),
                lease: known.state.lease().cloned(),
                when: when.filter(|_| facts[index].instances.iter().any(|instance| !instance.ending)),
            });
        }
    }
}

/// Withdraws approvals of DaemonSets that are gone, or are other objects by now, and unclaimed ones on nodes whose Nodes are
/// gone; `ours`: key and UID of those that are
/// coordinated. What was approved stands where the DaemonSet is not read yet.
pub(super) fn withdraw_gone(known: &Basis<'_>, ours: &BTreeSet<(Name, Name)>, plan: &mut ClusterPlan) {
    let names = &known.view.names;
    let unread: BTreeSet<Name> = known.view.unread_daemons().filter_map(|key| names.find(&key.to_string())).collect();
    let is_known = |key: Name, uid: Name| ours.contains(&(key, uid)) || unread.contains(&key);
    for (node, entry) in &known.view.nodes {
        let Some(report) = &entry.report else { continue };
        let stands = |key: Name, uid: Name| {
            let is_claimed = || report.told(key).is_some_and(|told| told.replacing);
            is_known(key, uid) && (entry.node.is_some() || is_claimed())
        };
        if report.approvals.iter().all(|(key, uid, _)| stands(*key, *uid)) {
            continue;
        }
        let spec = plan.specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
        spec.approvals.retain(|approval| {
            let key = names.find(&ObjectKey::new(&approval.namespace, &approval.name).to_string());
            key.zip(names.find(&approval.uid)).is_some_and(|(key, uid)| stands(key, uid))
        });
    }
}

/// What stands was approved by whoever held the Lease, or believed to: agents claim what names the present holder.
pub(super) fn name_the_lease(known: &Basis<'_>, plan: &mut ClusterPlan) {
    let Some(lease) = known.state.lease() else { return };
    let is_earlier = |approval: &Approval| approval.lease.as_ref() != Some(lease);
    for (node, entry) in known.view.nodes.iter().filter(|(_, entry)| entry.node.is_some()) {
        let Some(report) = entry.report.as_ref().filter(|_| !known.state.approved.contains(node)) else { continue };
        if report.spec.approvals.iter().any(is_earlier) {
            let spec = plan.specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
            spec.approvals.iter_mut().for_each(|approval| approval.lease = Some(lease.clone()));
        }
    }
}
