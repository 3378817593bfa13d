//! `DaemonSet.status`: every counter as upstream's `updateDaemonSetStatus` computes it.
//!
//! Owns the arithmetic. What an unreachable node last said does not count as ready, nor does what ends for a replacement
//! that its node has claimed: the node says so seconds after it has ended.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::names::Name;
use super::rollout::InstanceFact;
use super::rollout::NodeFact;

/// The counters of `DaemonSet.status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// Nodes that should run it and have an instance.
    pub current_number_scheduled: usize,
    /// Nodes that should not run it and have an instance.
    pub number_misscheduled: usize,
    /// Nodes that should run it.
    pub desired_number_scheduled: usize,
    /// Nodes whose oldest instance that does not end is ready, on a node that is; without those that have claimed another one.
    pub number_ready: usize,
    /// Nodes whose oldest instance is of the current revision; without those that have claimed another revision.
    pub updated_number_scheduled: usize,
    /// Nodes whose oldest instance that does not end is available.
    pub number_available: usize,
    /// Desired less available.
    pub number_unavailable: usize,
}

impl Counters {
    /// These as far as they are certain: ready and available keep the values of `before`, where those are possible.
    /// `least`: without the nodes of which it is not known.
    pub fn within(self, least: &Self, before: &Self) -> Self {
        let number_available = before.number_available.clamp(least.number_available, self.number_available);
        Self {
            number_ready: before.number_ready.clamp(least.number_ready, self.number_ready),
            number_available,
            number_unavailable: self.desired_number_scheduled - number_available,
            ..self
        }
    }
}

/// Whether an instance is available: on a node that is ready or not, with `minReadySeconds`, at a time.
pub type IsAvailable = fn(bool, &InstanceFact, Span, Timestamp) -> bool;

/// Counts. `wanted`: the current revision, and whether an old instance serves until the new one is available; `min_ready`: its
/// `minReadySeconds`. Gives also when a count will change by time alone.
pub fn count(
    nodes: &[NodeFact<'_>],
    (wanted, surges): (Name, bool),
    (min_ready, is_available): (Span, IsAvailable),
    now: Timestamp,
) -> (Counters, Option<Timestamp>) {
    let mut counters = Counters::default();
    let mut look_again: Option<Timestamp> = None;
    for node in nodes {
        let oldest = node.instances.first();
        if !node.should_run {
            counters.number_misscheduled += usize::from(oldest.is_some());
            continue;
        }
        counters.desired_number_scheduled += 1;
        let Some(oldest) = oldest else { continue };
        counters.current_number_scheduled += 1;
        let is_updated = oldest.revision == wanted && !node.claims_other(wanted);
        counters.updated_number_scheduled += usize::from(is_updated);
        // A pod that ends is Ready to upstream until it has ended, and no agent reports since when.
        let serving = node.instances.iter().find(|instance| !instance.ending).unwrap_or(oldest);
        let serves = node.ready && (surges || !node.is_taken_away());
        counters.number_ready += usize::from(serves && serving.ready_since.is_some());
        counters.number_available += usize::from(is_available(serves, serving, min_ready, now));
        if let Some(at) = serving.ready_since.map(|since| since + min_ready).filter(|at| *at > now && serves) {
            look_again = Some(look_again.map_or(at, |l| l.min(at)));
        }
    }
    counters.number_unavailable = counters.desired_number_scheduled - counters.number_available;
    (counters, look_again)
}

#[cfg(test)]
mod tests {
    use super::super::liveness::AgentLiveness;
    use super::super::names::Names;
    use super::super::rollout::available;
    use super::*;
    use crate::core::time::at;
    use crate::core::time::ms;

    fn instance(revision: Name, ready_since: Option<i64>) -> InstanceFact {
        InstanceFact {
            revision,
            overlays: None,
            ready_since: ready_since.map(at),
            was_ready: false,
            is_found: false,
            created: at(0),
            ending: false,
        }
    }

    #[test]
    fn counters_are_upstreams() {
        let mut names = Names::default();
        let (past, wanted) = (names.of("past"), names.of("wanted"));
        let (new, old, unready) = ([instance(wanted, Some(0))], [instance(past, Some(90))], [instance(wanted, None)]);
        let surge = [instance(past, Some(0)), instance(wanted, Some(95))];
        let ends = [InstanceFact { ending: true, ..instance(past, None) }, instance(wanted, Some(0))];
        let node = |name, instances| NodeFact {
            name,
            should_run: true,
            belongs: true,
            ready: true,
            reachable: true,
            able: true,
            lacks: false,
            agent: AgentLiveness::Alive,
            reports: true,
            left_alone: false,
            unreported_until: None,
            zone: None,
            spread: None,
            canary: false,
            instances,
            overlays: None,
            approval: None,
            replacing: false,
            claim: None,
            returning: None,
            awaits_rollout: false,
            staged: None,
            failed: false,
            ends_late: false,
            late: false,
            broken: false,
            passed_over: None,
            refused_until: None,
        };
        let nodes = [
            node("new", &new),
            node("old, not available yet", &old),
            node("unready", &unready),
            node("surge: the oldest counts", &surge),
            node("surge: the old one ends", &ends),
            node("empty", &[]),
            NodeFact { ready: false, ..node("ready on a NotReady node", &new) },
            NodeFact { should_run: false, ..node("misscheduled", &new) },
            NodeFact { should_run: false, ..node("nothing to do with it", &[]) },
        ];
        let expected = Counters {
            current_number_scheduled: 6,
            number_misscheduled: 1,
            desired_number_scheduled: 7,
            number_ready: 4,
            updated_number_scheduled: 3,
            number_available: 3,
            number_unavailable: 4,
        };
        assert_eq!(count(&nodes, (wanted, false), (ms(20), available), at(100)), (expected, Some(at(110))));
        // Of what a node replaces nothing is left a moment after the claim, and what is undone still comes.
        let claims =
            |claim, instances| NodeFact { replacing: true, claim: Some((claim, None)), ..node("claims", instances) };
        let of = |claim, instances, surges| {
            let counters = count(&[claims(claim, instances)], (wanted, surges), (ms(0), available), at(100)).0;
            (counters.updated_number_scheduled, counters.number_ready, counters.number_available)
        };
        assert_eq!(of(wanted, &old, false), (0, 0, 0), "it ends");
        assert_eq!(of(wanted, &old, true), (0, 1, 1), "it serves until the new one does");
        assert_eq!(of(wanted, &new, false), (1, 1, 1), "the new one is there");
        assert_eq!(of(past, &new, false), (0, 0, 0), "it goes on to a revision that is undone");
        assert_eq!(of(past, &new, true), (0, 1, 1));
        let staged = |revision| NodeFact { staged: Some(revision), ..node("staged", &new) };
        let updated = [staged(past), staged(wanted)]
            .map(|node| count(&[node], (wanted, false), (ms(0), available), at(100)).0.updated_number_scheduled);
        assert_eq!(updated, [0, 1], "it boots into a revision that is undone");
    }
}
