//! Times by the nodes' clocks.
//!
//! Owns what such a time counts as. A kubelet reports since when a pod is ready, and an agent when it was made, each by
//! its node's clock. A time in the future would keep a node unavailable, and with it a whole rollout, until the
//! coordinator's clock gets there: it counts as the moment at which the coordinator first saw it. A pod that became
//! ready since the coordinator last looked is ready since the coordinator saw that, even if it was ready long ago by
//! its node's clock: otherwise the time for which it has to be available would be over at once. The same holds for the
//! time at which an instance was made: otherwise its progress deadline would be over at once. What is there at the
//! first look counts by its node's clock, and is marked as found: by a right clock it may have been ready for longer. If
//! its time lies ahead, as seen by a coordinator whose clock is behind, it has been ready for an unknown time. An approval that
//! a former holder of the Lease gave has its time limit from the first look on: that one's clock may differ, and no agent could
//! claim it meanwhile.

use std::collections::BTreeMap;

use crate::core::cluster::names::Name;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::ClusterSnapshot;
use super::NodeReport;
use super::ReportedDaemon;

/// A report may come so much later than the event that it reports.
const LAG: Span = Span::from_secs(2);

/// When instances were first seen, or first seen ready, or approvals first seen, by their daemon and the time by the clock of
/// who wrote it; `None`: no pass has looked at it yet.
pub(super) type FirstSeen = BTreeMap<(Name, Timestamp), Option<Timestamp>>;

/// What is known of a time that was in the future when it was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenAhead {
    /// When it was first seen.
    at: Timestamp,
    /// Whether an instance is ready since then by its node's clock, and was ready already when this coordinator first looked.
    is_found: bool,
}

/// Sets `time` to when it was first seen, if the clock by which it was written is behind that.
fn count_from(first_seen: &mut FirstSeen, daemon: Name, time: &mut Timestamp, now: Timestamp) {
    let at = (daemon, *time);
    let Some(seen) = first_seen.get_mut(&at) else { return };
    let first = *seen.get_or_insert(now);
    match *time + LAG < first {
        true => *time = first.min(now),
        false => drop(first_seen.remove(&at)),
    }
}

impl ClusterSnapshot {
    /// Makes sure that no reported time lies after `now`.
    pub fn heed_clocks(&mut self, now: Timestamp) {
        self.nodes.values_mut().filter_map(|entry| entry.report.as_mut()).for_each(|report| report.heed_clock(now));
    }
}

impl NodeReport {
    /// The instances that are ready in the new report `daemons`, and were not in this one.
    pub(super) fn become_ready(&self, daemons: &[(Name, ReportedDaemon)]) -> FirstSeen {
        if self.said == 0 {
            return FirstSeen::new();
        }
        let was_ready = |key: Name, since: Timestamp| {
            let reported = self.daemon(key).into_iter().flat_map(|reported| &reported.instances);
            self.ahead.contains_key(&since) || reported.into_iter().any(|instance| instance.ready_since == Some(since))
        };
        let ready = daemons.iter().flat_map(|(key, reported)| {
            reported.instances.iter().filter_map(|instance| Some((*key, instance.ready_since?)))
        });
        let seen = |at: (Name, Timestamp)| match self.became_ready.get(&at) {
            Some(seen) => Some((at, *seen)),
            None => (!was_ready(at.0, at.1)).then_some((at, None)),
        };
        ready.filter_map(seen).collect()
    }

    /// The instances that are in the new report `daemons`, and were not in this one.
    pub(super) fn appear(&self, daemons: &[(Name, ReportedDaemon)]) -> FirstSeen {
        if self.said == 0 {
            return FirstSeen::new();
        }
        let was_there = |key: Name, created: Timestamp| {
            let reported = self.daemon(key).into_iter().flat_map(|reported| &reported.instances);
            self.ahead.contains_key(&created) || reported.into_iter().any(|instance| instance.created == created)
        };
        let reported = daemons.iter().flat_map(|(key, reported)| reported.instances.iter().map(|i| (*key, i.created)));
        let seen = |at: (Name, Timestamp)| match self.appeared.get(&at) {
            Some(seen) => Some((at, *seen)),
            None => (!was_there(at.0, at.1)).then_some((at, None)),
        };
        reported.filter_map(seen).collect()
    }

    /// Of its approvals those that a former holder of the Lease gave and that were not claimed when this one first looked;
    /// `before`: what was known of the same object.
    pub(super) fn unclaimed_since(&self, before: Option<&Self>) -> FirstSeen {
        let is_claimed = |key: Name| self.daemon(key).is_some_and(|reported| reported.replacing.is_some());
        let seen = |at: (Name, Timestamp)| match before {
            Some(before) => before.unclaimed.get(&at).map(|seen| (at, *seen)),
            None => (!is_claimed(at.0)).then_some((at, None)),
        };
        self.approvals.iter().filter_map(|(key, _, given)| seen((*key, given.at))).collect()
    }

    fn heed_clock(&mut self, now: Timestamp) {
        // An earlier pass has replaced the reported times already, and within a term no time lies before that of a former pass.
        if !std::mem::replace(&mut self.is_new, false) {
            return;
        }
        let first_look = *self.first_look.get_or_insert(now);
        let before = std::mem::take(&mut self.ahead);
        let ahead = &mut self.ahead;
        // Whether it was so before, if it is a time since when an instance is ready that was not seen to become so.
        let mut heed = |time: &mut Timestamp, is_found: bool| -> bool {
            let known = before.get(time).copied();
            let Some(seen) = known.or_else(|| (*time > now).then_some(SeenAhead { at: now, is_found })) else {
                return false;
            };
            ahead.entry(*time).or_insert(seen).is_found |= seen.is_found;
            *time = seen.at;
            seen.is_found
        };
        for (key, reported) in &mut self.daemons {
            for instance in &mut reported.instances {
                count_from(&mut self.appeared, *key, &mut instance.created, now);
                heed(&mut instance.created, false);
                if let Some(since) = &mut instance.ready_since {
                    let is_found = !self.became_ready.contains_key(&(*key, *since));
                    instance.is_found = is_found && *since <= first_look;
                    count_from(&mut self.became_ready, *key, since, now);
                    instance.was_ready = heed(since, is_found);
                }
            }
        }
        for (key, _, approval) in &mut self.approvals {
            count_from(&mut self.unclaimed, *key, &mut approval.at, now);
            heed(&mut approval.at, false);
        }
    }
}
