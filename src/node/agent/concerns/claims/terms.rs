//! Whether the coordinator that approved still holds the Lease.
//!
//! Owns what is known of the Leases that approvals name. An approval under a Lease that another process holds is not
//! claimed: its coordinator was stopped meanwhile, and the present holder counts anew. It names itself in its approvals.

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::node_daemons::Spec;
use crate::core::plan::Withheld;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::log::Log;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

/// A Lease that could not be read is read again after this.
const AGAIN: Span = Span::from_secs(5);

/// The Leases under which nothing is claimed now.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Terms {
    /// Each with the time at which it is read again; `None`: another process holds it for good.
    withheld: Vec<(LeaseTerm, Option<Timestamp>)>,
    /// Whether it is reported that one cannot be read.
    is_reported: bool,
    /// Whether an approval has named one: from then on all are to.
    #[serde(default)]
    has_seen_one: bool,
}

impl Terms {
    /// Why an approval may not be claimed, if so.
    pub(super) fn withholds(&self, approval: &Approval) -> Option<Withheld> {
        let Some(lease) = &approval.lease else { return self.has_seen_one.then_some(Withheld::NoLease) };
        let (_, again) = self.withheld.iter().find(|(withheld, _)| withheld == lease)?;
        Some(if again.is_some() { Withheld::LeaseNotRead } else { Withheld::NotApproved })
    }

    /// A claim was not made: its coordinator does not hold `lease`, or the Lease could not be read because of `failure`.
    pub(super) fn not_held(&mut self, lease: LeaseTerm, failure: Option<&ApiFailure>, now: Timestamp, log: &mut Log) {
        if let Some(failure) = failure.filter(|_| !std::mem::replace(&mut self.is_reported, true)) {
            let LeaseTerm { namespace, name, .. } = &lease;
            let hint = "apply rbac.yaml of this version: it lets agents read the coordinator's Lease";
            log.warn(format!(
                "an approval is not claimed: the coordinator's Lease {namespace}/{name} cannot be read: {failure}; \
                 trying again"
            ))
            .hint((failure.kind == FailureKind::Forbidden).then_some(hint));
        }
        self.withheld.retain(|(withheld, _)| *withheld != lease);
        self.withheld.push((lease, failure.map(|_| now + AGAIN)));
    }

    /// A claim was made.
    pub(super) fn held(&mut self) {
        self.is_reported = false;
    }

    /// Forgets Leases that no approval names, and those that are to be read again.
    pub(super) fn follow(&mut self, spec: &Spec, now: Timestamp) {
        self.has_seen_one |= spec.approvals.iter().any(|approval| approval.lease.is_some());
        self.withheld.retain(|(withheld, again)| {
            let is_named = spec.approvals.iter().any(|approval| approval.lease.as_ref() == Some(withheld));
            // A clock that was set back makes it wait no longer.
            is_named && again.is_none_or(|again| again > now && again <= now + AGAIN)
        });
    }

    /// When one is read again.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.withheld.iter().filter_map(|(_, again)| *again).min()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_approval_without_a_lease_is_withheld_once_another_has_named_one() {
        let mut terms = Terms::default();
        let mut withholds = |lease: serde_json::Value| {
            let mut approval = json!({"namespace": "", "name": "net", "uid": "u", "revision": "r", "approvedAt": ""});
            approval["lease"] = lease;
            let spec: Spec = serde_json::from_value(json!({"approvals": [approval]})).unwrap();
            terms.follow(&spec, Timestamp::default());
            terms.withholds(&spec.approvals[0])
        };
        assert_eq!(withholds(json!(null)), None, "of an earlier version");
        assert_eq!(withholds(json!({"namespace": "", "name": "lease", "uid": "l", "transitions": 1})), None);
        assert_eq!(withholds(json!(null)), Some(Withheld::NoLease), "this version has given one");
    }
}
