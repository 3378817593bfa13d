//! Instances that a new incarnation is to replace.
//!
//! Owns when such an order is due. Orders with other causes (a deleted or failed pod, an administrator) are in the
//! record; instances that the kubelet does not accept are found here.

use crate::core::record::Fingerprint;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::record::RestartCause;

use super::Accepted;
use super::Fingerprints;
use super::Planner;

impl Planner<'_> {
    /// Orders another try for an instance that the kubelet did not accept.
    pub(super) fn order_retries(&mut self) {
        let (facts, now) = (self.facts, self.context.now);
        for index in 0..self.plan.record.instances.len() {
            let instance = &mut self.plan.record.instances[index];
            if instance.phase != Phase::Live || instance.orphaned || instance.restart.is_some() {
                continue;
            }
            let accepted = facts.accepted(instance);
            instance.no_room |= matches!(accepted, Accepted::NoRoom(_)) && !instance.started;
            match accepted {
                Accepted::Yes if self.plan.record.backoff.as_ref().is_some_and(|b| b.not_accepted) => {
                    self.plan.record.backoff = None
                }
                Accepted::Rejected(reason) | Accepted::NoRoom(reason) => {
                    let (cause, instance) = (RestartCause::NotAccepted { reason }, instance.clone());
                    self.plan.record.order_restart(&instance.uid, cause, now, facts.surroundings(&instance).then);
                    self.plan.record.rejected = Some(instance.revision);
                }
                // What follows depends on the revision.
                Accepted::No(_) => {}
                Accepted::Yes | Accepted::NotYet | Accepted::Unknown(_) => {}
            }
        }
    }

    /// Whether a new incarnation should replace the instance now. A rejected one is retried as soon as the reason for
    /// the rejection may have gone, also if that was before the rejection was known.
    pub(super) fn is_ordered(&mut self, instance: &Instance) -> bool {
        let Some(order) = &instance.restart else { return false };
        let not_accepted = matches!(order.cause, RestartCause::NotAccepted { .. });
        let before = self.plan.record.backoff.as_ref().map(|b| &b.surroundings);
        let Fingerprints { then, now } = self.facts.surroundings(instance);
        // What the API server showed is not compared with sandboxes.
        let is_lost = |before: &Fingerprint| now.is_of_runtime() && !before.is_of_runtime();
        let differs = before.is_none_or(|before| before != now && !is_lost(before)) || then != now;
        let changed = not_accepted && *now != Fingerprint::Unknown && differs;
        if order.due <= self.context.now || changed {
            return true;
        }
        self.wake(order.due);
        false
    }
}
