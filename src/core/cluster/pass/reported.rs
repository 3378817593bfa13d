//! What the agents report, by daemon.
//!
//! Owns the index of one pass, whether a DaemonSet is run by agents, and when it is let go.

use std::collections::BTreeMap;

use crate::core::cluster::events;
use crate::core::cluster::liveness::AgentLiveness;
use crate::core::cluster::names::Name;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::rollout::UNCLAIMED;
use crate::core::cluster::snapshot::ClusterSnapshot;
use crate::core::cluster::snapshot::NodeEntry;
use crate::core::cluster::snapshot::NodeReport;
use crate::core::cluster::snapshot::ReportedDaemon;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::cluster::state::CoordinatorState;
use crate::core::model::MODE_LABEL;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::policy::is_mistyped;
use crate::core::time::Timestamp;

use super::Basis;
use super::ClusterPlan;
use super::FewAgents;

impl<'a> Basis<'a> {
    /// What is remembered of a DaemonSet: nothing of a former one of the same name.
    pub(super) fn of_it<T>(&self, memory: &'a BTreeMap<ObjectKey, T>, daemon: &WatchedDaemon) -> Option<&'a T> {
        let key = &daemon.daemon_set.key;
        let is_it = self.state.decided.get(key).is_none_or(|uid| *uid == daemon.uid);
        memory.get(key).filter(|_| is_it)
    }

    /// Every node, with what its agent reports of a daemon.
    pub(super) fn nodes_with(&self, daemon: Name) -> impl Iterator<Item = NodeRow<'a>> {
        let reported = self.reported.get(&daemon).into_iter().flatten().copied();
        let nodes = self.view.nodes.iter().zip(self.agents).zip(reported.chain(std::iter::repeat(None)));
        nodes.map(|(((name, entry), agent), reported)| NodeRow { name, entry, agent, reported })
    }
}

/// One node, with what its agent reports of one daemon.
pub(super) struct NodeRow<'a> {
    pub(super) name: &'a str,
    /// Node and NodeDaemons.
    pub(super) entry: &'a NodeEntry,
    /// What is known of its agent.
    pub(super) agent: &'a AgentFact,
    /// What the agent reports.
    pub(super) reported: Option<&'a ReportedDaemon>,
}

/// What is known of a node's agent, whatever the daemon: looked up once in a pass.
pub(super) struct AgentFact {
    /// Whether it lives.
    pub(super) liveness: AgentLiveness,
    /// Since when it has not reported, if it has not.
    pub(super) unreported: Option<Timestamp>,
    /// When its node's approvals are tried again that the API server has refused to keep.
    pub(super) refused_until: Option<Timestamp>,
}

impl AgentFact {
    /// Of each node of the view, in its order.
    pub(super) fn all(view: &ClusterSnapshot, state: &CoordinatorState, now: Timestamp) -> Vec<Self> {
        let of = |name: &String| Self {
            liveness: state.liveness.of(name, now),
            unreported: state.unreported.get(name).copied(),
            refused_until: state.retries.refused_until(&RequestTarget::Approvals(name.clone())),
        };
        view.nodes.keys().map(of).collect()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.liveness == AgentLiveness::Dead
    }
}

/// What the agents report, by daemon: each in the order of the view's nodes. A pass that looks into every report for every
/// question spends most of its time waiting for memory.
pub(super) fn by_daemon(view: &ClusterSnapshot) -> BTreeMap<Name, Vec<Option<&ReportedDaemon>>> {
    let unreported = |daemon: &WatchedDaemon| (daemon.key, vec![None; view.nodes.len()]);
    let mut all: BTreeMap<Name, Vec<Option<&ReportedDaemon>>> = view.daemons.values().map(unreported).collect();
    for (number, entry) in view.nodes.values().enumerate() {
        for (daemon, reported) in entry.report.iter().flat_map(NodeReport::daemons) {
            let slot = all.get_mut(&daemon).and_then(|of_it| of_it.get_mut(number));
            slot.into_iter().for_each(|slot| *slot = Some(reported));
        }
    }
    all
}

/// Whether the DaemonSet is run by agents in place of the DaemonSet controller: its label says so, or, where it has
/// none (agents with `default-mode = "static"`, or with the same DaemonSet in a folder), agents on more than half of
/// the nodes where it should run. Fewer agents are reported and change nothing, so that a stolen node identity cannot
/// take a DaemonSet over.
pub(super) fn is_ours(known: &Basis<'_>, daemon: &WatchedDaemon, plan: &mut ClusterPlan) -> bool {
    let labels = &daemon.daemon_set.labels;
    // A misspelt mode was meant for the agents: the definition is refused, and a condition says so.
    if labels.contains_key(MODE_LABEL) {
        return daemon.daemon_set.mode_label() == Some(Mode::Static) || is_mistyped(labels);
    }
    let (mut should, mut run, mut claim) = (0, 0, None);
    for NodeRow { name, entry, reported, .. } in known.nodes_with(daemon.key) {
        let is_static = reported.is_some_and(|reported| reported.is_static && reported.uid == Some(daemon.uid_name));
        claim = claim.or(is_static.then_some(name));
        let should_run = entry.node.is_some() && daemon.should_run(entry);
        should += usize::from(should_run);
        run += usize::from(should_run && is_static);
    }
    let is_most = 2 * run > should;
    if let Some(node) = claim.filter(|_| !is_most) {
        let key = daemon.daemon_set.key.clone();
        plan.troubles.insert(events::too_few_agents(&key, &daemon.uid), run);
        plan.few.push(FewAgents { key, node: node.to_owned(), run, should });
    }
    is_most
}

/// Whether it is certain that no agent runs the DaemonSet in place of the DaemonSet controller any more: its label says so,
/// or the agent of each node that has a live one reports, and none runs it. Where reports are missing for a short time, they
/// may only be late.
pub(super) fn is_let_go(known: &Basis<'_>, daemon: &WatchedDaemon) -> bool {
    let runs_elsewhere = |row: NodeRow<'_>| {
        row.entry.report.as_ref().is_some_and(|r| r.said != 0)
            && row.reported.is_none_or(|reported| !reported.is_static)
    };
    let has_agent = |row: &NodeRow<'_>| {
        let since = row.agent.unreported;
        let is_late = row.entry.report.is_some() || since.is_none_or(|since| since + UNCLAIMED > known.now);
        row.entry.node.is_some() && is_late && !row.agent.is_dead()
    };
    let mut nodes = known.nodes_with(daemon.key).filter(has_agent).peekable();
    daemon.daemon_set.mode_label().is_some() || nodes.peek().is_some() && nodes.all(runs_elsewhere)
}
