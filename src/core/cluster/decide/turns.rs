//! In which order a pass's writes are sent.
//!
//! Owns that trusted namespaces come first, that others have turns, and that each namespace's decisions come before its
//! reports. An approval that waits behind many writes is refused with a conflict: its agent has reported meanwhile.

use std::collections::BTreeMap;

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::pass::ObjectWrite;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::state::CoordinatorState;

/// A write, what it is about, and the namespace that it is for if that is not trusted.
pub(super) type Turn = (Option<String>, RequestTarget, ObjectWrite);

/// `writes` in the order in which they are sent: first those of trusted namespaces, then one of each other namespace, another
/// one of each, and so on. Of a namespace, what failed the last time comes last: it may be refused for good.
pub(super) fn ordered(
    view: &ClusterSnapshot,
    state: &CoordinatorState,
    writes: Vec<(RequestTarget, ObjectWrite)>,
) -> Vec<Turn> {
    let turns = writes.into_iter().map(|(target, write)| (tenant(view, &write), target, write));
    let mut turns: Vec<Turn> = turns.collect();
    turns.sort_by_key(|(of, target, write)| (of.is_some(), state.retries.has_failed(target), rank(write)));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut numbered: Vec<(usize, Turn)> = turns
        .into_iter()
        .map(|turn| {
            let count = turn.0.as_ref().map(|of| counts.entry(of.clone()).or_default());
            let number = count.map_or(0, |count| {
                *count += 1;
                *count
            });
            (number, turn)
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, turn)| turn).collect()
}

/// The rank of a write: first what decisions depend on, then the decisions, then mere reports.
fn rank(write: &ObjectWrite) -> u8 {
    match write {
        // A halt in the status stops every node, and each join, at once.
        ObjectWrite::Revision { .. } | ObjectWrite::Status { at_once: true, .. } => 0,
        ObjectWrite::Approvals { .. } => 1,
        ObjectWrite::Certificate { .. } => 2,
        ObjectWrite::Status { .. } => 3,
    }
}

/// The namespace that a write is for, unless that is trusted or the write is for no namespace. Approvals of a node are
/// for all namespaces whose approvals change: if one of these is trusted, the write is, too.
fn tenant(view: &ClusterSnapshot, write: &ObjectWrite) -> Option<String> {
    let unless_trusted = |namespace: &str| (!view.trusts(namespace)).then(|| namespace.to_owned());
    match write {
        ObjectWrite::Revision { key, .. } | ObjectWrite::Status { key, .. } => unless_trusted(&key.namespace),
        ObjectWrite::Certificate { .. } => None,
        ObjectWrite::Approvals { node, spec } => {
            let before = view.report(node).map(|report| &report.spec);
            let mut changed =
                before.into_iter().flat_map(|before| changed(before, spec).chain(self::changed(spec, before)));
            let first = unless_trusted(&changed.next()?.namespace)?;
            changed.all(|approval| !view.trusts(&approval.namespace)).then_some(first)
        }
    }
}

/// The approvals of `one` that `other` does not have.
fn changed<'a>(one: &'a Spec, other: &'a Spec) -> impl Iterator<Item = &'a Approval> {
    one.approvals.iter().filter(|approval| !other.approvals.contains(approval))
}
