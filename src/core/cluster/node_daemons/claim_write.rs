//! A write that claims approvals, made again on a later state of the object.
//!
//! Owns which claims still hold there. The coordinator writes approvals of all daemons into the object that an agent
//! claims on: where many of them change, the version that an agent has read is never the last one for long, and a claim
//! that is bound to it would never go through.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use super::Approval;
use super::DaemonReport;
use super::LeaseTerm;
use super::Precondition;
use super::Spec;
use super::Status;
use super::StatusPatch;
use crate::core::json::Json;

/// What a write of the status claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimWrite {
    /// The UID of the object.
    pub uid: String,
    pub status: Status,
    /// The approvals that it claims and the object does not show as claimed.
    pub approvals: Vec<Approval>,
}

impl ClaimWrite {
    /// The Leases by which was approved what is claimed.
    pub fn terms(&self) -> BTreeSet<&LeaseTerm> {
        self.approvals.iter().filter_map(|approval| approval.lease.as_ref()).collect()
    }

    /// The write for `object`, bound to its version: the status without claims of approvals that do not stand there. What
    /// the status is then, and how it is written. `None`: it is another object, or all claims have gone.
    pub fn on(&self, object: &Value) -> Option<(Status, StatusPatch)> {
        let part = |name: &str| object.get(name).cloned().unwrap_or_default();
        let (uid, version) = (object.str_at(["metadata", "uid"]), object.text_at(["metadata", "resourceVersion"])?);
        let spec: Spec = serde_json::from_value(part("spec")).ok()?;
        let live: Status = serde_json::from_value(part("status")).ok()?;
        let stands = |daemon: &DaemonReport| {
            let of_it = |a: &&Approval| a.namespace == daemon.namespace && a.name == daemon.name;
            match self.approvals.iter().find(of_it).filter(|a| Some(&*a.pair()) == daemon.claim()) {
                Some(approval) => spec.approvals.contains(approval),
                None => live.daemons.iter().any(|l| l.is_of(daemon) && l.claim() == daemon.claim()),
            }
        };
        let mut status = self.status.clone();
        for daemon in status.daemons.iter_mut().filter(|daemon| daemon.claim().is_some()) {
            if !stands(daemon) {
                (daemon.replacing, daemon.staged) = (None, None);
            }
        }
        let of = Precondition { uid: &self.uid, resource_version: Some(version) };
        let patch = StatusPatch::changes(&of, &live, &status);
        (uid == self.uid && self.approvals.iter().any(|a| status.holds(a))).then_some((status, patch))
    }
}

#[cfg(test)]
mod tests;
