//! Which certificate requests of nodes' agents are approved. [`crate::core::enrolment`] decides who may ask for what.

use std::collections::BTreeMap;

use crate::core::enrolment::ApprovalVerdict;
use crate::core::enrolment::NotApprovable;

use super::pass::ObjectWrite;
use super::snapshot::ClusterSnapshot;
use super::snapshot::WatchedKind;

/// Why a certificate request is not approved.
#[derive(Clone, Debug, PartialEq)]
pub enum NotApproved {
    /// It never will be by this coordinator.
    LeftAlone(NotApprovable),
    /// The cluster does not have this Node.
    NoNode(String),
}

/// Approvals, and what is not approved, by name.
pub(super) fn plan(view: &ClusterSnapshot) -> (Vec<ObjectWrite>, BTreeMap<&str, NotApproved>) {
    let (mut writes, mut left) = (Vec::new(), BTreeMap::new());
    if !view.is_listed(WatchedKind::Nodes) {
        return (writes, left);
    }
    for (name, request) in &view.certificate_requests {
        match &request.verdict {
            ApprovalVerdict::NotOurs => {}
            ApprovalVerdict::LeaveAlone(why) => drop(left.insert(name.as_str(), NotApproved::LeftAlone(why.clone()))),
            ApprovalVerdict::IfNodeExists(node) => match view.nodes.get(node).is_some_and(|entry| entry.node.is_some())
            {
                true => writes.push(ObjectWrite::Certificate { name: name.clone(), node: node.clone() }),
                false => drop(left.insert(name, NotApproved::NoNode(node.clone()))),
            },
        }
    }
    (writes, left)
}
