//! Why a daemon is not as it should be on a node, as its agent says.
//!
//! Owns the texts of `kubectl daemonlet` for it. Must not judge whether it is bad.

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::FailedReport;
use crate::core::status::State;

use super::OverviewNode;

/// What an approved revision waits for on a node.
fn awaited(node: &OverviewNode, report: &DaemonReport) -> Option<String> {
    let is_it = |approval: &&Approval| {
        approval.namespace == report.namespace && approval.name == report.name && approval.uid == report.uid
    };
    let approval = node.approvals.iter().find(is_it).filter(|_| report.replacing.is_none())?;
    let (revision, when) = (approval.pair(), approval.when?);
    if report.instances.iter().any(|instance| instance.pair() == revision && !instance.ending) {
        return None;
    }
    let images = if report.staged.as_ref() == Some(&revision) { "; its images are on the node" } else { "" };
    Some(format!("revision {revision} waits: {}{images}", when.words()))
}

/// Why nothing is known of a daemon that is to run on a node.
pub(super) fn missing(node: &OverviewNode) -> &'static str {
    match &node.report {
        None => "no agent: the node has no NodeDaemons",
        Some(_) => "the node's agent says nothing of it: see `daemonlet explain` there",
    }
}

/// That the agent of a node does not renew its Lease any longer, if it is so.
pub(super) fn silence(node: &OverviewNode) -> Option<String> {
    let since = node.silent_since?;
    Some(format!("the node's agent has not renewed its Lease since {since}: this is what it last said"))
}

/// Why a daemon is not as it should be on a node, in one line; empty: it is.
pub(super) fn reason(node: &OverviewNode, report: &DaemonReport) -> String {
    let mut parts = Vec::new();
    if !node.ready {
        parts.push("the node is not Ready".to_owned());
    }
    parts.extend(silence(node));
    if let Some(replacing) = &report.replacing {
        parts.push(format!("is being replaced by revision {replacing}"));
    }
    if !report.message.is_empty() {
        parts.push(report.message.clone());
    } else if let Some(awaited) = awaited(node, report) {
        parts.push(awaited);
    }
    // Of a daemon that fails with that very revision, the message says it already.
    let is_said = |failed: &FailedReport| {
        matches!(report.phase, Some(State::Failing | State::NotAccepted))
            && report.instances.iter().any(|i| i.revision == failed.revision)
    };
    if let Some(failed) = report.failed.as_ref().filter(|failed| !is_said(failed)) {
        parts.push(format!("revision {} failed here ({}: {})", failed.revision, failed.cause, failed.message));
    }
    parts.join("; ")
}
