//! The host ports that other daemons of this node hold.
//!
//! Must not decide which of two daemons has a port.

use std::sync::Arc;

use crate::core::model::ObjectKey;
use crate::core::model::UpdateStrategy;
use crate::core::ports;
use crate::core::ports::HostPort;
use crate::core::record::Phase;
use crate::core::sources::Desired;

use super::ObservedState;

impl ObservedState<'_> {
    /// Those of all but `key`, each with whose they are; `only_desired`: only those that they will still use once they
    /// follow their definitions.
    pub(super) fn ports_held_by_others(&self, key: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)> {
        let mut held = Vec::new();
        for record in self.state.records.values().filter(|r| r.key != *key) {
            let wanted = match self.subjects.iter().find(|s| s.record.key == record.key).map(|s| &s.desired) {
                Some(Desired::Gone { .. }) if only_desired => continue,
                Some(Desired::Wanted { daemon_set: d, .. }) if d.update_strategy != UpdateStrategy::OnDelete => Some(d),
                _ => None,
            };
            for instance in record.instances.iter().filter(|i| !only_desired || i.phase == Phase::Live) {
                let Some(own) = &instance.daemon_set else { continue };
                let mut has = ports::host_ports(own.pod_template());
                let later = wanted.filter(|wanted| only_desired && !Arc::ptr_eq(wanted, own));
                if let Some(later) = later.map(|wanted| ports::host_ports(wanted.pod_template())) {
                    has.retain(|port| later.iter().any(|l| l.clashes(port)));
                }
                held.push((format!("{} (pod {})", record.key, instance.pod_name), has));
            }
        }
        held
    }
}
