//! The approvals that are to stand on each node.
//!
//! Owns which parts of a rollout's plan become approvals, and which approvals are void.

use std::collections::BTreeSet;

use crate::core::cluster::events;
use crate::core::cluster::names::Name;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;
use crate::core::update_trigger::UpdateTrigger;

use super::Basis;
use super::ClusterPlan;

/// Approvals of all namespaces that are not trusted on one node: with many more, and a report of 1 MiB, the API server takes
/// no write of the object, and no approval of what is trusted.
const OF_TENANTS: usize = 512;
/// Approvals that each of these namespaces may have in any case.
const SHARE: usize = 4;

/// Gives and withdraws the approvals that the rollout of one DaemonSet to the revision `target` has planned. `when`:
/// the trigger for which nodes wait that run an instance.
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
        if approve && !has_room(view, plan.specs.get(node).unwrap_or(&report.spec), key) {
            *plan.troubles.entry(events::too_many_approvals(daemon)).or_default() += 1;
            continue;
        }
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

/// Whether one of `key` may be among the approvals of a node.
fn has_room(view: &ClusterSnapshot, standing: &Spec, key: &ObjectKey) -> bool {
    let others = || standing.approvals.iter().filter(|a| a.namespace != key.namespace || a.name != key.name);
    view.trusts(&key.namespace)
        || others().filter(|a| !view.trusts(&a.namespace)).count() < OF_TENANTS
        || others().filter(|a| a.namespace == key.namespace).count() < SHARE
}

/// Withdraws approvals of DaemonSets that are gone, or are other objects by now, and unclaimed ones on nodes whose
/// Nodes are gone; `ours`: key and UID of those that are coordinated. Approvals of a DaemonSet that is not read yet
/// stand.
pub(super) fn withdraw_gone(known: &Basis<'_>, ours: &BTreeSet<(Name, Name)>, plan: &mut ClusterPlan) {
    let names = &known.view.names;
    let unread: BTreeSet<Name> = known.view.unread_daemons().filter_map(|key| names.find(&key.to_string())).collect();
    let is_known = |key: Name, uid: Name| ours.contains(&(key, uid)) || unread.contains(&key);
    for (node, entry) in &known.view.nodes {
        let Some(report) = &entry.report else { continue };
        let stands = |key: Name, uid: Name| {
            let is_claimed = || report.daemon(key).is_some_and(|reported| reported.replacing.is_some());
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

/// Withdraws the unclaimed approvals of a DaemonSet whose definition is refused: no pass decides whether they are to stand.
pub(super) fn withdraw_refused(known: &Basis<'_>, daemon: &WatchedDaemon, plan: &mut ClusterPlan) {
    let key = &daemon.daemon_set.key;
    for (node, entry) in &known.view.nodes {
        let Some(report) = &entry.report else { continue };
        let is_claimed = report.daemon(daemon.key).is_some_and(|reported| reported.replacing.is_some());
        if !is_claimed && report.approvals.iter().any(|(of, uid, _)| *of == daemon.key && *uid == daemon.uid_name) {
            let spec = plan.specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
            spec.approvals.retain(|a| a.namespace != key.namespace || a.name != key.name);
        }
    }
}

/// Names the present holder of the Lease in approvals that a former one gave: agents claim no others. Approvals that
/// were not `judged` in this pass (key and UID) keep the former name: it is not decided yet whether they are to stand.
pub(super) fn name_the_lease(known: &Basis<'_>, judged: &BTreeSet<(Name, Name)>, plan: &mut ClusterPlan) {
    let Some(lease) = known.state.lease() else { return };
    let names = &known.view.names;
    let is_judged = |approval: &Approval| {
        let key = names.find(&ObjectKey::new(&approval.namespace, &approval.name).to_string());
        key.zip(names.find(&approval.uid)).is_some_and(|of| judged.contains(&of))
    };
    // An older resource drops the name: it is written once in a term.
    let is_dropped = |node: &str, approval: &Approval| approval.lease.is_none() && known.state.approved.contains(node);
    let is_earlier = |node: &str, approval: &Approval| {
        approval.lease.as_ref() != Some(lease) && is_judged(approval) && !is_dropped(node, approval)
    };
    for (node, entry) in known.view.nodes.iter().filter(|(_, entry)| entry.node.is_some()) {
        let Some(report) = &entry.report else { continue };
        if report.spec.approvals.iter().any(|approval| is_earlier(node, approval)) {
            let spec = plan.specs.entry(node.clone()).or_insert_with(|| report.spec.clone());
            let earlier = spec.approvals.iter_mut().filter(|approval| is_earlier(node, approval));
            earlier.for_each(|approval| approval.lease = Some(lease.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn approvals_of_tenants_leave_those_of_trusted_namespaces_room_on_a_node() {
        let view = ClusterSnapshot::default().trusting(vec!["kube-system".to_owned()]);
        let standing = |of: &[(&str, usize)]| -> Spec {
            let names = of.iter().flat_map(|(namespace, count)| (0..*count).map(move |number| (namespace, number)));
            let of = |(namespace, number)| json!({"namespace": namespace, "name": format!("d{number}"), "uid": "u", "revision": "r", "approvedAt": "t"});
            serde_json::from_value(json!({"approvals": names.map(of).collect::<Vec<_>>()})).unwrap()
        };
        let has_room = |of: &[(&str, usize)], namespace: &str, name: &str| {
            has_room(&view, &standing(of), &ObjectKey::new(namespace, name))
        };
        assert!(has_room(&[("a", 511), ("kube-system", 90)], "a", "new"), "what is trusted does not count");
        let full = [("a", 509), ("b", 3)];
        assert!(!has_room(&full, "a", "new"));
        assert!(has_room(&full, "a", "d7"), "another revision takes the place of the first");
        assert!(has_room(&full, "b", "new") && has_room(&full, "kube-system", "new"));
        assert!(!has_room(&[("a", 509), ("b", 4)], "b", "new"));
        // The longest that there are fit beside the longest report.
        let longest = json!({"namespace": "n".repeat(63), "name": "n".repeat(253), "uid": "u".repeat(36), "revision": "r".repeat(10),
            "overlays": "o".repeat(64), "approvedAt": "2023-11-14T22:13:20.123456789Z", "when": "manual",
            "lease": {"namespace": "n".repeat(63), "name": "n".repeat(63), "uid": "u".repeat(36), "transitions": i64::MAX}});
        assert!(longest.to_string().len() * OF_TENANTS < 400 << 10);
    }
}
