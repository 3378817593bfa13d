//! Which agents are dead: they do not renew their Leases, and their last report is not believed.
//!
//! Owns how long a Lease may stay unchanged. Only the time since this process last saw `renewTime` change counts,
//! whatever the node's clock shows. Until it has seen a change, an agent counts as alive only if `renewTime` is recent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::is_condition_true;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::snapshot::ClusterSnapshot;

/// The namespace of the agents' Leases, each named as its Node.
pub const NAMESPACE: &str = "daemonlet-node-lease";
/// An agent whose Lease has not changed for this long is dead.
pub const STALE: Span = Span::from_secs(60);
/// A Lease that was renewed within this time before the first list is valid, if clocks differ by less than 30 s. Agents
/// renew it every 20 s.
const JUST_NOW: Span = Span::from_secs(30);
/// Between two lists of the Leases.
const EVERY: Span = Span::from_secs(15);
/// A list that failed is asked for again after this, and after twice as long each time that it fails again.
const AGAIN: Span = Span::from_secs(1);
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
    /// A fingerprint of the agent's report, and when it was first seen so.
    reports: BTreeMap<String, (String, Timestamp)>,
    /// Agents that have renewed their Lease or changed their report since this process began to watch.
    confirmed: BTreeSet<String>,
    /// Agents that are dead, and since when. They stay dead until they renew or change their report, also while no list
    /// comes.
    dead: BTreeMap<String, Timestamp>,
    /// Agents that report and have had no Lease in any list since then.
    without: BTreeMap<String, Timestamp>,
    /// Whether the mirror pod of the newest instance on a dead agent's node is Ready, and when it is looked up again.
    lookups: BTreeMap<MirrorPodLookup, (Option<bool>, Timestamp)>,
    /// When mirror pods were last looked up.
    last_batch: Option<Timestamp>,
    /// When the Leases were first asked for.
    first_asked: Option<Timestamp>,
    /// When the Leases are listed again.
    again: Option<Timestamp>,
    /// When they were last listed.
    listed: Option<Timestamp>,
    /// Lists that failed since then.
    failures: u32,
    /// Whether the last of them was refused.
    is_refused: bool,
}

/// What is known of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentLiveness {
    /// It renews its Lease, or has had no time to write one.
    Alive,
    /// It reports and writes no Lease: it counts as alive, and its death will not be noticed.
    NoLease,
    /// It has a Lease, and this process has not seen it renewed yet: its last report may be outdated.
    Unknown,
    /// It does not renew its Lease.
    Dead,
}

/// A mirror pod to look up: the readiness of a node whose agent is dead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MirrorPodLookup {
    pub node: String,
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
}

impl Liveness {
    /// Takes the reports: an agent whose report changed is alive.
    pub(super) fn follow(&mut self, view: &ClusterSnapshot, now: Timestamp) {
        let reports = view.nodes.iter().filter_map(|(name, entry)| Some((name, entry.report.as_ref()?)));
        for (name, report) in reports {
            if note(&mut self.reports, name, &report.said.to_string(), now) == NodeChange::Changed {
                self.confirm(name);
            }
        }
        self.reports.retain(|name, _| view.nodes.contains_key(name));
        self.leases.retain(|name, _| view.nodes.contains_key(name));
        self.confirmed.retain(|name| view.nodes.contains_key(name));
        self.dead.retain(|name, _| view.nodes.contains_key(name));
        self.without.retain(|name, _| view.report(name).is_some_and(|report| report.said != 0));
        // An instance that is reported no more has gone.
        self.lookups.retain(|lookup, _| view.report(&lookup.node).is_some_and(|report| report.has(&lookup.pod.name)));
    }

    fn confirm(&mut self, node: &str) {
        self.dead.remove(node);
        self.confirmed.insert(node.to_owned());
    }

    /// Whether the agent of a node has reported since this process began to watch, even if its report is gone.
    pub(super) fn has_reported(&self, node: &str) -> bool {
        self.reports.contains_key(node)
    }

    /// Whether the Leases are to be listed.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back makes no wait longer.
        self.again.is_none_or(|again| again <= now || again > now + EVERY)
    }

    /// When the Leases are to be listed again, if they have been.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.again
    }

    /// A request for them was sent.
    pub(super) fn asked(&mut self, now: Timestamp) {
        self.first_asked.get_or_insert(now);
        self.again = Some(now + EVERY);
    }

    /// The list failed. `is_refused`: it will fail again until the coordinator is given the right.
    pub(super) fn failed(&mut self, is_refused: bool, now: Timestamp) {
        let wait = (0..self.failures.min(10)).fold(AGAIN, |wait, _| wait + wait);
        self.failures += 1;
        self.is_refused = is_refused;
        self.again = Some(now + wait.min(EVERY));
    }

    /// Whether the Leases were listed, or cannot be listed for now. Before that, nothing is decided from reports.
    pub(super) fn has_begun(&self, now: Timestamp) -> bool {
        // A clock that was set back makes no wait longer.
        let is_over = |asked: Timestamp| now < asked || now - asked >= STALE;
        self.listed.is_some() || self.is_refused || self.first_asked.is_some_and(is_over)
    }

    /// Whether the lists come, and when the last did.
    pub(super) fn progress(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        (self.listed.is_some_and(|listed| now - listed <= STALE), self.listed)
    }

    /// Whether the lists fail, and none has come for so long that agents that die are not noticed.
    pub(super) fn is_failing(&self, now: Timestamp) -> bool {
        self.failures > 0 && !self.progress(now).0
    }

    /// Takes a list of the Leases: node and `renewTime` of each.
    pub(super) fn listed(&mut self, leases: &BTreeMap<String, String>, now: Timestamp) {
        let last = self.listed.replace(now);
        (self.failures, self.is_refused) = (0, false);
        if last.is_some_and(|last| now - last > STALE) {
            self.confirmed.clear();
        }
        self.leases.retain(|name, _| leases.contains_key(name));
        for (name, renewed) in leases {
            match note(&mut self.leases, name, renewed, now) {
                // An agent whose Lease was there at the first list may have died before that.
                NodeChange::First if last.is_none() && !is_of_now(renewed, now) => {}
                NodeChange::First | NodeChange::Changed => self.confirm(name),
                NodeChange::Same => {}
            }
        }
        // Agents cannot renew while no API server answers, and a jump of the clock proves nothing: the wait starts
        // again, but dead agents stay dead. Of a shorter gap only the usual interval counts, because this process
        // itself was delayed.
        match last.map(|last| now - last) {
            Some(gap) if Span::ZERO <= gap && gap <= EVERY + LATE => {}
            Some(gap) if Span::ZERO <= gap && gap < STALE => {
                let said = self.reports.values_mut().map(|(_, since)| since);
                let seen = self.leases.values_mut().map(|(_, since)| since).chain(said);
                seen.for_each(|since| *since = (*since + (gap - EVERY)).min(now));
            }
            _ => self.leases.values_mut().for_each(|(_, since)| *since = now),
        }
        self.note_missing(last, now);
        for (name, (_, renewed)) in &self.leases {
            let since = self.reports.get(name).map_or(*renewed, |(_, said)| *renewed.max(said));
            if now - since >= STALE {
                self.dead.entry(name.clone()).or_insert(since);
            }
        }
    }

    /// Notes which agents that report have no Lease. `last`: when the Leases were listed before.
    fn note_missing(&mut self, last: Option<Timestamp>, now: Timestamp) {
        // No agent can write one while no API server answers, and a jump of the clock proves nothing.
        if last.is_none_or(|last| last > now || now - last > STALE) {
            self.without.clear();
        }
        self.without.retain(|name, _| !self.leases.contains_key(name));
        for name in self.reports.keys().filter(|name| !self.leases.contains_key(*name)) {
            self.without.entry(name.clone()).or_insert(now);
        }
    }

    /// What is known of the agent of a node.
    pub(super) fn of(&self, node: &str, now: Timestamp) -> AgentLiveness {
        if self.dead.contains_key(node) {
            return AgentLiveness::Dead;
        }
        // Leases that are no longer listed prove nothing.
        let is_read = self.listed.is_some_and(|listed| now - listed <= STALE);
        match self.without.get(node) {
            Some(since) if is_read && *since + STALE <= now => AgentLiveness::NoLease,
            _ if is_read && self.leases.contains_key(node) && !self.confirmed.contains(node) => AgentLiveness::Unknown,
            _ => AgentLiveness::Alive,
        }
    }

    /// Since when the agent of a node is dead, if it is. One that never had a Lease is not.
    pub fn dead_since(&self, node: &str) -> Option<Timestamp> {
        self.dead.get(node).copied()
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
        let ready = pod.is_some_and(|pod| is_condition_true(pod, "Ready"));
        self.lookups.entry(lookup.clone()).and_modify(|(known, _)| *known = Some(ready));
    }
}

/// How a Lease or a report compares with the last one that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeChange {
    First,
    Same,
    Changed,
}

/// Notes what is seen of a node now, and since when.
fn note(seen: &mut BTreeMap<String, (String, Timestamp)>, name: &str, what: &str, now: Timestamp) -> NodeChange {
    match seen.get_mut(name) {
        // A clock that was set back makes no agent live longer than a span more.
        Some((known, since)) if known == what => {
            *since = (*since).min(now);
            NodeChange::Same
        }
        _ => match seen.insert(name.to_owned(), (what.to_owned(), now)) {
            Some(_) => NodeChange::Changed,
            None => NodeChange::First,
        },
    }
}

fn is_of_now(renewed: &str, now: Timestamp) -> bool {
    renewed.parse().is_ok_and(|renewed: Timestamp| (now - JUST_NOW..=now + LATE).contains(&renewed))
}

#[cfg(test)]
mod tests;
