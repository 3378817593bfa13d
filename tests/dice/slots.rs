//! The slots of a budget as plainly as they can be counted: what a coordinator gives must fit with what it sees given.

use daemonlet::core::cluster::names::Name;
use daemonlet::core::cluster::node_daemons::Approval;
use daemonlet::core::cluster::requests::Call;
use daemonlet::core::cluster::requests::ClusterRequest;
use daemonlet::core::cluster::requests::RequestTarget;
use daemonlet::core::cluster::rollout::InstanceFact;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::NodeEntry;
use daemonlet::core::cluster::snapshot::WatchedDaemon;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use super::KEY;
use super::agent::ROLE;

/// The revision that approvals lead to, and whether the coordinator takes a node's agent for dead.
type Given<'g> = (&'g str, &'g dyn Fn(&str) -> bool);

pub(super) fn approval(approvals: &[Approval]) -> Option<&Approval> {
    approvals.iter().find(|approval| (approval.namespace.as_str(), approval.name.as_str()) == KEY)
}

/// The revision that runs on a node, and whether it is available.
pub(super) fn running<'v>(view: &'v ClusterSnapshot, entry: &NodeEntry) -> Option<(&'v str, bool)> {
    let daemon = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))?;
    let instance = live(daemon, entry).last()?;
    let is_available = instance.ready_since.is_some() && entry.node.as_ref().is_some_and(|node| node.ready);
    Some((view.names.text(instance.revision), is_available))
}

/// The instances on a node that do not end, oldest first.
fn live<'v>(daemon: &WatchedDaemon, entry: &'v NodeEntry) -> impl Iterator<Item = &'v InstanceFact> {
    let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
    reported.into_iter().flat_map(|reported| &*reported.instances).filter(|instance| !instance.ending)
}

/// Whether an instance of a revision is on a node, also one that ends.
pub(super) fn ran(daemon: &WatchedDaemon, entry: &NodeEntry, revision: Name) -> bool {
    let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
    reported.is_some_and(|reported| reported.instances.iter().any(|instance| instance.revision == revision))
}

/// Whether a revision runs on a node, beside another one or alone.
pub(super) fn has(view: &ClusterSnapshot, entry: &NodeEntry, revision: &str) -> bool {
    let Some(daemon) = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1)) else { return false };
    live(daemon, entry).any(|instance| view.names.text(instance.revision) == revision)
}

/// Whether the DaemonSet selects a Node.
pub(super) fn is_selected(entry: &NodeEntry) -> bool {
    entry.node.as_ref().is_some_and(|node| node.view.labels.get(ROLE).is_some_and(|role| role == "net"))
}

/// Whether what is ready has been so for `minReadySeconds`.
fn is_available(daemon: &WatchedDaemon, instance: &InstanceFact, now: Timestamp) -> bool {
    let min_ready = Span::from_secs(daemon.daemon_set.min_ready_seconds.into());
    instance.ready_since.is_some_and(|since| since + min_ready <= now)
}

/// Whether something that is ready runs on a node that is.
pub(super) fn serves(daemon: &WatchedDaemon, entry: &NodeEntry) -> bool {
    let is_ready = entry.node.as_ref().is_some_and(|node| node.ready);
    is_ready && live(daemon, entry).any(|instance| instance.ready_since.is_some())
}

/// Whether a node takes a slot by what runs there: a surge that is not over, or that nothing that runs is available. With the
/// revision that is given that is so whatever becomes of the node; with another one only where it can take that.
fn is_unavailable(view: &ClusterSnapshot, (name, entry): (&str, &NodeEntry), given: Given<'_>, now: Timestamp) -> bool {
    let (Some(daemon), Some(node)) = (view.daemons.get(&ObjectKey::new(KEY.0, KEY.1)), &entry.node) else {
        return false;
    };
    let surges = daemon.daemon_set.allows_surge();
    let number = live(daemon, entry).count();
    let Some(newest) = live(daemon, entry).last() else { return false };
    let has_it = view.names.text(newest.revision) == given.0;
    let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
    let lacks = reported.and_then(|reported| reported.missing).is_some();
    let can = node.reachable && node.view.taints.is_empty() && !given.1(name) && !lacks;
    let is_both = number > 1 && (surges || has_it);
    // What was ready for an unknown time counts as available where it is to be replaced.
    let counts = |instance: &InstanceFact| is_available(daemon, instance, now) || instance.was_ready && !has_it;
    let is_served = node.ready && live(daemon, entry).any(counts);
    is_selected(entry) && (is_both || !is_served && (has_it || can && !surges))
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
    entry.node.is_some() && (is_claimed && is_selected(entry) || is_open)
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

/// Whether one instance runs on a node.
fn has_one(view: &ClusterSnapshot, entry: &NodeEntry) -> bool {
    view.daemons.get(&ObjectKey::new(KEY.0, KEY.1)).is_some_and(|daemon| live(daemon, entry).count() == 1)
}

/// Whether the end of what runs on a node may take service away: it is available, or was found ready, which it may have been for
/// longer than it seems.
fn may_serve(view: &ClusterSnapshot, entry: &NodeEntry, now: Timestamp) -> bool {
    let Some(daemon) = view.daemons.get(&ObjectKey::new(KEY.0, KEY.1)) else { return false };
    let is_ready = entry.node.as_ref().is_some_and(|node| node.ready);
    let newest = live(daemon, entry).last().filter(|newest| is_ready && newest.ready_since.is_some());
    newest.is_some_and(|newest| is_available(daemon, newest, now) || newest.was_ready || newest.is_found)
}

/// What is wrong with the approvals that `requests` give to nodes whose instance may be available, as `view` shows them: with
/// what is claimed and given already, and with nodes that are not available, they are more than `budget`. `is_dead`: whether
/// the coordinator takes a node's agent for dead.
pub(super) fn given_beyond(
    view: &ClusterSnapshot,
    requests: &[ClusterRequest],
    (budget, now): (usize, Timestamp),
    is_dead: impl Fn(&str) -> bool,
) -> Option<String> {
    let given: Vec<(&NodeEntry, Approval)> = new(view, requests).filter(|(_, new)| new.when.is_none()).collect();
    let revision = &given.first()?.1.revision;
    let is_unavailable =
        |(name, entry): (&str, &NodeEntry)| is_unavailable(view, (name, entry), (revision, &is_dead), now);
    let takes = |(name, entry): (&str, &NodeEntry)| is_taken(view, entry) || is_unavailable((name, entry));
    let is_costly =
        |entry: &NodeEntry| given.iter().any(|(of, _)| std::ptr::eq(*of, entry)) && may_serve(view, entry, now);
    let costly = view.nodes.iter().filter(|(name, entry)| !takes((name, entry)) && is_costly(entry)).count();
    let taken = view.nodes.iter().filter(|(name, entry)| takes((name, entry))).count();
    // What takes a slot because it may not serve has its own; of a surge that is not over one of two ends.
    let is_alone = |entry: &NodeEntry| !is_taken(view, entry) && has_one(view, entry);
    let doubtful =
        view.nodes.iter().filter(|(name, entry)| is_unavailable((name, entry)) && is_alone(entry) && is_costly(entry));
    let doubtful = doubtful.count();
    (costly + doubtful > 0 && taken + costly > budget)
        .then(|| format!("{costly} approvals, and {doubtful} of those, beside {taken} in a budget of {budget}"))
}
