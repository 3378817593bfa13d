//! Times that are told by other clocks than ours.
//!
//! Owns what such a time counts as. A kubelet says since when a pod is ready and an agent when it was made, each by its
//! node's clock. A time to come would keep a node unavailable, and with it a whole rollout, until the coordinator's clock
//! gets there: it counts as the moment at which the coordinator first saw it. A pod that was ready long ago by its node's
//! clock, and was not when the coordinator last looked, is ready since the coordinator saw that: else the time for which it
//! has to be available would be over at once. So is one made when the coordinator first saw it that was made long ago by its
//! node's clock: else its progress deadline would be over. What is there at the first look counts by its node's clock.

use std::collections::BTreeMap;

use crate::core::cluster::names::Name;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::ClusterSnapshot;
use super::NodeReport;
use super::Told;

/// A report that comes so much later than what it tells is in time.
const LAG: Span = Span::from_secs(2);

/// When instances were first seen, or first seen ready, by their daemon and the time since when they are by their node's
/// clock; none: no pass has looked at it yet.
pub(super) type FirstSeen = BTreeMap<(Name, Timestamp), Option<Timestamp>>;

/// What is to be one such time, if it was seen: that, where the clock of its node is behind it.
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
    /// Makes sure that nothing that is told lies after `now`.
    pub fn heed_clocks(&mut self, now: Timestamp) {
        self.nodes.values_mut().filter_map(|entry| entry.report.as_mut()).for_each(|report| report.heed_clock(now));
    }
}

impl NodeReport {
    /// The instances that are ready by what the agent says now, and were not by this.
    pub(super) fn become_ready(&self, daemons: &[(Name, Told)]) -> FirstSeen {
        let was_ready = |key: Name, since: Timestamp| {
            let told = self.told(key).into_iter().flat_map(|told| &told.instances);
            self.ahead.contains_key(&since) || told.into_iter().any(|instance| instance.ready_since == Some(since))
        };
        let ready = daemons
            .iter()
            .flat_map(|(key, told)| told.instances.iter().filter_map(|instance| Some((*key, instance.ready_since?))));
        let seen = |at: (Name, Timestamp)| match self.became_ready.get(&at) {
            Some(seen) => Some((at, *seen)),
            None => (!was_ready(at.0, at.1)).then_some((at, None)),
        };
        ready.filter_map(seen).collect()
    }

    /// The instances that the agent tells of now, and did not when it last told anything.
    pub(super) fn appear(&self, daemons: &[(Name, Told)]) -> FirstSeen {
        if self.said == 0 {
            return FirstSeen::new();
        }
        let was_there = |key: Name, created: Timestamp| {
            let told = self.told(key).into_iter().flat_map(|told| &told.instances);
            self.ahead.contains_key(&created) || told.into_iter().any(|instance| instance.created == created)
        };
        let told = daemons.iter().flat_map(|(key, told)| told.instances.iter().map(|i| (*key, i.created)));
        let seen = |at: (Name, Timestamp)| match self.appeared.get(&at) {
            Some(seen) => Some((at, *seen)),
            None => (!was_there(at.0, at.1)).then_some((at, None)),
        };
        told.filter_map(seen).collect()
    }

    fn heed_clock(&mut self, now: Timestamp) {
        // What an earlier pass has heeded is no more what was said.
        let is_new = std::mem::replace(&mut self.is_new, false);
        let told = if is_new { std::mem::take(&mut self.ahead) } else { BTreeMap::new() };
        for (key, instance) in self
            .daemons
            .iter_mut()
            .filter(|_| is_new)
            .flat_map(|(key, told)| told.instances.iter_mut().map(|instance| (*key, instance)))
        {
            count_from(&mut self.appeared, key, &mut instance.created, now);
            if let Some(since) = &mut instance.ready_since {
                count_from(&mut self.became_ready, key, since, now);
            }
        }
        let ahead = &mut self.ahead;
        let mut heed = |time: &mut Timestamp| {
            let known = told.get(time).map(|seen| now.min(*seen));
            if let Some(seen) = known.or_else(|| (*time > now).then_some(now)) {
                if is_new {
                    ahead.insert(*time, seen);
                }
                *time = seen;
            }
        };
        for instance in self.daemons.iter_mut().flat_map(|(_, told)| told.instances.iter_mut()) {
            heed(&mut instance.created);
            instance.ready_since.iter_mut().for_each(&mut heed);
        }
        self.approvals.iter_mut().for_each(|(_, _, approval)| heed(&mut approval.at));
    }
}
