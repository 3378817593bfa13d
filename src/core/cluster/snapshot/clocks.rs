//! Times that are told by clocks ahead of ours.
//!
//! Owns what such a time counts as: the moment at which the coordinator first saw it. A kubelet says since when a pod
//! is ready and an agent when it was made, each by its node's clock; a time to come would keep a node unavailable, and
//! with it a whole rollout, until the coordinator's clock gets there.

use std::collections::BTreeMap;

use crate::core::time::Timestamp;

use super::ClusterSnapshot;
use super::NodeReport;

impl ClusterSnapshot {
    /// Makes sure that nothing that is told lies after `now`.
    pub fn heed_clocks(&mut self, now: Timestamp) {
        self.nodes.values_mut().filter_map(|entry| entry.report.as_mut()).for_each(|report| report.heed_clock(now));
    }
}

impl NodeReport {
    fn heed_clock(&mut self, now: Timestamp) {
        // What an earlier pass has heeded is no more what was said.
        let is_new = std::mem::replace(&mut self.is_new, false);
        let told = if is_new { std::mem::take(&mut self.ahead) } else { BTreeMap::new() };
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
