//! Whether the daemon may start on this node, and whether its instance may stay.
//!
//! Owns the one exception from upstream's placement: an instance that ended to return does so on a node that is not healthy.

use crate::core::model::DaemonSet;
use crate::core::placement;
use crate::core::placement::Judgement;
use crate::core::placement::Misfit;
use crate::core::placement::Placement;
use crate::core::placement::TaintCheck;
use crate::core::record::Instance;
use crate::core::time::Timestamp;

use super::Planner;
use super::Reason;

impl Planner<'_> {
    /// Upstream's two results.
    pub(super) fn placed(&self, daemon_set: &DaemonSet) -> Placement {
        let namespace = self.facts.namespace_selector(daemon_set);
        placement::should_run(self.context.node, daemon_set, namespace.as_ref())
    }

    /// Why no new instance starts here. A node that is not ready or unreachable has taints for that, and a successor that
    /// waited until they go would leave the node without the daemon needlessly.
    pub(super) fn misplaced(&mut self, daemon_set: &DaemonSet) -> Option<Misfit> {
        let misfit = self.placed(daemon_set).misfit?;
        let live: Vec<_> = self.plan.record.live().cloned().collect();
        let is_successor = match live.is_empty() {
            true => self.had_ended,
            false => live.iter().any(|one| self.facts.former_node(one).is_some() || self.is_ordered(one)),
        };
        (!is_successor || !self.belongs(daemon_set)).then_some(misfit)
    }

    /// Until when nothing ends for want of labels that the Node may have yet to get, if nothing else is against the daemon.
    /// An instance that was started on this very Node proves that the Node had its labels: their absence now is evidence.
    pub(super) fn awaits_labels_until(&self, daemon_set: &DaemonSet) -> Option<Timestamp> {
        let until = self.facts.lacks_labels_until()?;
        let since = self.facts.node_since().filter(|_| self.context.node.registered);
        // Of an adopted instance it is not known when it was started.
        let is_later = |instance: &Instance, since| instance.created > since && !instance.is_adopted;
        if since.is_some_and(|since| self.plan.record.live().any(|instance| is_later(instance, since))) {
            return None;
        }
        let is_elsewhere = || self.judged(daemon_set).node_name.is_some_and(|name| !name.matches);
        // While the Node is not known, its labels and taints are not known either.
        (!self.context.node.registered || !is_elsewhere() && !self.is_evicted(daemon_set)).then_some(until)
    }

    /// Whether a taint of the node ends the instance.
    pub(super) fn is_evicted(&self, daemon_set: &DaemonSet) -> bool {
        self.judged(daemon_set).taints.iter().any(TaintCheck::evicts)
    }

    fn judged(&self, daemon_set: &DaemonSet) -> Judgement {
        let namespace = self.facts.namespace_selector(daemon_set);
        placement::judge(self.context.node, daemon_set, namespace.as_ref())
    }

    /// Whether it may start here as soon as the node is well.
    pub(super) fn belongs(&self, daemon_set: &DaemonSet) -> bool {
        let namespace = self.facts.namespace_selector(daemon_set);
        placement::belongs(self.context.node, daemon_set, namespace.as_ref())
    }

    /// There is evidence that the node is not for it: the instance ends, and does not return.
    pub(super) fn unplaced(&mut self, reason: Reason) {
        (self.plan.record.last, self.plan.record.returns) = (None, false);
        self.end_returns();
        let live: Vec<String> = self.plan.record.live().map(|i| i.uid.clone()).collect();
        for uid in live {
            self.end(&uid, reason.clone());
        }
        self.plan.record.pending_update = None;
        self.show_ended(reason);
    }
}
