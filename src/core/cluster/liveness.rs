//! Which agents are dead: they do not renew their Leases, and what they last said is not believed.
//!
//! Owns how long a Lease may stay as it is. Times of other machines are compared with no clock: what counts is how
//! long this process has not seen `renewTime` change.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::snapshot::ClusterSnapshot;

/// The namespace of the agents' Leases, each named as its Node.
pub const NAMESPACE: &str = "daemonlet-node-lease";
/// An agent whose Lease has not changed for this long is dead.
pub const STALE: Span = Span::from_secs(60);
/// Between two lists of the Leases.
const EVERY: Span = Span::from_secs(15);
/// A list that comes later than this after its time leaves a gap.
const LATE: Span = Span::from_secs(5);
/// Between two batches of mirror pods.
const BATCH: Span = Span::from_secs(1);
/// A mirror pod of a dead agent's node is looked up again after this.
const LOOKUP_AGAIN: Span = Span::from_secs(30);
/// Mirror pods that are looked up in one batch.
const LOOKUPS: usize = 50;

/// What is known of the agents' Leases, by node.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    /// `renewTime`, and when it was first seen so.
    leases: BTreeMap<String, (String, Timestamp)>,
    /// A fingerprint of what the agent says in its NodeDaemons, and when it was first seen so.
    reports: BTreeMap<String, (String, Timestamp)>,
    /// Whether the mirror pod of the newest instance on a dead agent's node is Ready, and when it is looked up again.
    lookups: BTreeMap<MirrorPodLookup, (Option<bool>, Timestamp)>,
    /// When mirror pods were last looked up.
    last_batch: Option<Timestamp>,
    /// When the Leases are listed again.
    again: Option<Timestamp>,
    /// When they were last listed.
    listed: Option<Timestamp>,
}

/// A mirror pod to look up: the readiness of a node whose agent is dead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MirrorPodLookup {
    /// The node.
    pub node: String,
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
}

impl Liveness {
    /// Follows the reports: an agent that says something new lives.
    pub(super) fn follow(&mut self, view: &ClusterSnapshot, now: Timestamp) {
        let reports = view.nodes.iter().filter_map(|(name, entry)| Some((name, entry.report.as_ref()?)));
        for (name, report) in reports {
            note(&mut self.reports, name, &report.said.to_string(), now);
        }
        self.reports.retain(|name, _| view.nodes.contains_key(name));
        self.leases.retain(|name, _| view.nodes.contains_key(name));
        // An instance that is reported no more has gone.
        self.lookups.retain(|lookup, _| view.report(&lookup.node).is_some_and(|report| report.has(&lookup.pod.name)));
    }

    /// Whether the agent of a node has reported since this process looks, whatever has become of its report.
    pub(super) fn has_reported(&self, node: &str) -> bool {
        self.reports.contains_key(node)
    }

    /// Whether the Leases are to be listed.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back makes it wait no longer.
        self.again.is_none_or(|again| again <= now || again > now + EVERY)
    }

    /// When the Leases are to be listed again, if they have been.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.again
    }

    /// A request for them was sent.
    pub(super) fn asked(&mut self, now: Timestamp) {
        self.again = Some(now + EVERY);
    }

    /// Takes a list of the Leases: node and `renewTime` of each.
    pub(super) fn listed(&mut self, leases: &BTreeMap<String, String>, now: Timestamp) {
        // While no API server answers no agent can renew, and a clock that was set tells nothing: the wait begins anew.
        let is_gap = self.listed.is_none_or(|last| now - last > EVERY + LATE || now < last);
        self.listed = Some(now);
        self.leases.retain(|name, _| leases.contains_key(name));
        for (name, renewed) in leases {
            note(&mut self.leases, name, renewed, now);
        }
        if is_gap {
            self.leases.values_mut().for_each(|(_, since)| *since = now);
        }
    }

    /// Since when the agent of a node is dead, if it is. One that never had a Lease is not.
    pub(super) fn dead_since(&self, node: &str, now: Timestamp) -> Option<Timestamp> {
        let (_, renewed) = self.leases.get(node)?;
        let said = self.reports.get(node).map_or(*renewed, |(_, said)| *said);
        let since = said.max(*renewed);
        // By the last list: what is not read any more says nothing.
        let listed = self.listed.filter(|listed| now - *listed <= STALE)?;
        (listed - since >= STALE).then_some(since)
    }

    /// Whether the mirror pod was Ready when it was last looked up; `None`: unknown.
    pub(super) fn is_ready(&self, lookup: &MirrorPodLookup) -> Option<bool> {
        self.lookups.get(lookup)?.0
    }

    /// Which of these are to be looked up now, and when the next one is.
    pub(super) fn lookups(
        &self,
        wanted: Vec<MirrorPodLookup>,
        now: Timestamp,
    ) -> (Vec<MirrorPodLookup>, Option<Timestamp>) {
        let ready = self.last_batch.map(|looked| looked + BATCH).filter(|ready| *ready > now && *ready <= now + BATCH);
        if let Some(ready) = ready.filter(|_| !wanted.is_empty()) {
            return (Vec::new(), Some(ready));
        }
        let at = |lookup: &MirrorPodLookup| self.lookups.get(lookup).map_or(Timestamp::MIN, |(_, again)| *again);
        let (mut due, later): (Vec<MirrorPodLookup>, Vec<MirrorPodLookup>) =
            wanted.into_iter().partition(|lookup| at(lookup) <= now);
        due.sort_by_key(|lookup| (at(lookup), lookup.clone()));
        let rest = due.split_off(due.len().min(LOOKUPS));
        let next = later.iter().map(at).chain((!rest.is_empty()).then_some(now + BATCH)).min();
        (due, next)
    }

    /// A request for the pod was sent.
    pub(super) fn looking_up(&mut self, lookup: MirrorPodLookup, now: Timestamp) {
        self.lookups.entry(lookup).or_insert((None, now)).1 = now + LOOKUP_AGAIN;
        self.last_batch = Some(now);
    }

    /// Takes the answer: the pod, or that there is none.
    pub(super) fn looked_up(&mut self, lookup: &MirrorPodLookup, pod: Option<&Value>) {
        let conditions = pod.map(|pod| pod.list_at(["status", "conditions"]));
        let ready =
            conditions.into_iter().flatten().any(|c| c.str_at("type") == "Ready" && c.str_at("status") == "True");
        self.lookups.entry(lookup.clone()).and_modify(|(known, _)| *known = Some(ready));
    }
}

/// Notes what is seen of a node now, and since when.
fn note(seen: &mut BTreeMap<String, (String, Timestamp)>, name: &str, what: &str, now: Timestamp) {
    match seen.get_mut(name) {
        // A clock that was set back makes no agent live longer than a span more.
        Some((known, since)) if known == what => *since = (*since).min(now),
        _ => drop(seen.insert(name.to_owned(), (what.to_owned(), now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;

    const SECOND: i64 = 1_000;

    fn leases(renewed: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("a".to_owned(), renewed.to_owned())])
    }

    #[test]
    fn a_lease_that_does_not_change_is_a_dead_agents() {
        let mut liveness = Liveness::default();
        assert!(liveness.is_due(at(0)));
        for second in (0..=60).step_by(15) {
            liveness.listed(&leases("x"), at(second * SECOND));
            assert_eq!(liveness.dead_since("a", at(second * SECOND)), (second >= 60).then_some(at(0)), "{second}");
        }
        assert_eq!(liveness.dead_since("b", at(60 * SECOND)), None, "it never had one");
        liveness.listed(&leases("y"), at(75 * SECOND));
        assert_eq!(liveness.dead_since("a", at(75 * SECOND)), None);
        // Nobody could renew while the API server was away.
        assert_eq!(liveness.dead_since("a", at(300 * SECOND)), None, "nothing is read");
        liveness.listed(&leases("y"), at(300 * SECOND));
        assert_eq!(liveness.dead_since("a", at(300 * SECOND)), None);
    }

    #[test]
    fn a_mirror_pod_is_looked_up_and_again_later() {
        let lookup = |number: u32| MirrorPodLookup { node: format!("{number:02}"), pod: ObjectKey::new("ns", "p") };
        let mut liveness = Liveness::default();
        let all: Vec<MirrorPodLookup> = (0..60).map(lookup).collect();
        let (now, next) = liveness.lookups(all.clone(), at(0));
        assert_eq!((now.len(), next), (LOOKUPS, Some(at(SECOND))));
        now.iter().for_each(|lookup| liveness.looking_up(lookup.clone(), at(0)));
        assert_eq!(liveness.is_ready(&lookup(0)), None);
        let ready = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        liveness.looked_up(&lookup(0), Some(&ready));
        liveness.looked_up(&lookup(1), None);
        assert_eq!((liveness.is_ready(&lookup(0)), liveness.is_ready(&lookup(1))), (Some(true), Some(false)));
        assert_eq!(liveness.lookups(all.clone(), at(SECOND - 1)), (vec![], Some(at(SECOND))), "one batch a second");
        let (now, next) = liveness.lookups(all, at(SECOND));
        assert_eq!((now.len(), next), (10, Some(at(0) + LOOKUP_AGAIN)));
    }
}
