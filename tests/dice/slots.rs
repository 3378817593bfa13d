//! The slots of a budget as plainly as they can be counted: what a coordinator gives must fit with what it sees given.

use daemonlet::core::cluster::node_daemons::Approval;
use daemonlet::core::cluster::requests::Call;
use daemonlet::core::cluster::requests::ClusterRequest;
use daemonlet::core::cluster::requests::RequestTarget;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::NodeEntry;
use daemonlet::core::model::ObjectKey;

use super::KEY;

pub(super) fn approval(approvals: &[Approval]) -> Option<&Approval> {
    approvals.iter().find(|approval| (approval.namespace.as_str(), approval.name.as_str()) == KEY)
}

/// The revision that runs on a node, and whether it is available.
pub(super) fn running<'v>(view: &'v ClusterSnapshot, entry: &NodeEntry) -> Option<(&'v str, bool)> {
    let daemon = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))?;
    let instance = entry.report.as_ref()?.daemon(daemon.key)?.instances.last()?;
    let is_available = instance.ready_since.is_some() && entry.node.as_ref().is_some_and(|node| node.ready);
    Some((view.names.text(instance.revision), is_available))
}

/// Whether a replacement is claimed on a node, or may be at any moment.
fn is_taken(view: &ClusterSnapshot, entry: &NodeEntry) -> bool {
    let (Some(report), Some(daemon)) = (&entry.report, view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))) else {
        return false;
    };
    let is_claimed = report.daemon(daemon.key).is_some_and(|report| report.replacing.is_some());
    let given = approval(&report.spec.approvals).filter(|approval| approval.when.is_none());
    let is_open =
        given.is_some_and(|given| running(view, entry).is_none_or(|(revision, _)| revision != given.revision));
    entry.node.is_some() && (is_claimed || is_open)
}

/// The approvals that `requests` give, each with its node as `view` shows it, without those that stand already.
pub(super) fn new<'v>(
    view: &'v ClusterSnapshot,
    requests: &'v [ClusterRequest],
) -> impl Iterator<Item = (&'v NodeEntry, Approval)> {
    requests.iter().filter_map(|request| {
        let (RequestTarget::Approvals(node), Call::Patch(_, _, patch)) = (&request.target, &request.call) else {
            return None;
        };
        let approvals: Vec<Approval> = serde_json::from_value(patch["spec"]["approvals"].clone()).unwrap_or_default();
        let (new, entry) = (approval(&approvals)?, view.nodes.get(node)?);
        let before = entry.report.as_ref().and_then(|report| approval(&report.spec.approvals));
        let is_new =
            before.is_none_or(|before| (&before.revision, &before.approved_at) != (&new.revision, &new.approved_at));
        is_new.then(|| (entry, new.clone()))
    })
}

/// What is wrong with the approvals that `requests` give to nodes whose instance is available, as `view` shows them: with
/// what is claimed and given already, they are more than `budget`.
pub(super) fn given_beyond(view: &ClusterSnapshot, requests: &[ClusterRequest], budget: usize) -> Option<String> {
    let is_given = |(entry, new): &(&NodeEntry, Approval)| {
        new.when.is_none() && running(view, entry).is_some_and(|(_, is_available)| is_available)
    };
    let given = new(view, requests).filter(is_given).count();
    let taken = view.nodes.values().filter(|entry| is_taken(view, entry)).count();
    (given > 0 && taken + given > budget).then(|| format!("{given} approvals beside {taken} in a budget of {budget}"))
}
