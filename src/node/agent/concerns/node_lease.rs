//! This node's Lease: a sign that its agent makes passes.
//!
//! Owns when it is renewed. The coordinator takes an agent whose Lease does not change for dead, and does not believe
//! what it last said. Without NodeDaemons nobody reads it, and there is none.

use crate::core::model::NodeView;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::FailureKind;
use crate::node::api::Scope;

use super::super::log::Log;
use super::super::observation::Observation;
use super::super::requests::Reply;
use super::super::requests::Request;

/// Between two renewals; each is up to a tenth earlier.
const EVERY: Span = Span::from_secs(20);
/// After one that failed.
const AGAIN: Span = Span::from_secs(5);
/// At most this after one that the API server refuses for what it is: a right, or the namespace, is missing.
const REFUSED: Span = Span::from_secs(300);

/// When the Lease is renewed, and the version of it that is known.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct NodeLease {
    /// Not before; `None` while there is nobody to ask.
    next: Option<Timestamp>,
    writing: bool,
    version: Option<String>,
    is_refused: bool,
    /// How long the last refusal was waited for.
    pause: Span,
}

impl NodeLease {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, log: &mut Log) {
        let now = observation.now;
        for reply in &observation.replies {
            let Reply::LeaseRenewed(result) = reply else { continue };
            self.writing = false;
            let refused = |kind| matches!(kind, FailureKind::Forbidden | FailureKind::NotFound);
            let (next, version) = match result {
                Ok(version) => {
                    self.pause = Span::ZERO;
                    (now + EVERY.mul_f64(1.0 - observation.random / 10.0), Some(version.clone()))
                }
                Err(failure) if refused(failure.kind) => {
                    if !self.is_refused {
                        log.warn(format!("this node's Lease is not written: {failure}")).hint(Some(
                            "apply rbac.yaml and admission-policies.yaml of this version; without the Lease the \
                             coordinator cannot tell that an agent is dead",
                        ));
                    }
                    // A server that has just started does not know its roles yet.
                    self.pause = (self.pause + self.pause).clamp(AGAIN, REFUSED);
                    (now + self.pause, None)
                }
                Err(_) => (now + AGAIN, None),
            };
            self.is_refused = result.as_ref().is_err_and(|failure| refused(failure.kind));
            (self.next, self.version) = (Some(next), version);
        }
        let is_served = observation.snapshot().is_some_and(|api| api.lists(&Scope::NodeDaemons) > 0);
        self.next = match self.next {
            _ if !is_served => None,
            // A clock that was set back makes it wait no longer.
            Some(next) => Some(next.min(now + REFUSED)),
            None => Some(now),
        };
    }

    /// The renewal that is due, if any.
    pub(in super::super) fn requests(&mut self, observation: &Observation, node: &NodeView) -> Option<Request> {
        let is_there = observation.snapshot().is_some_and(|api| api.node.is_some());
        // Not for a Node that is gone: it would own what nothing wants.
        let node_uid = node.uid.clone().filter(|_| is_there)?;
        self.next.filter(|next| *next <= observation.now && !self.writing)?;
        self.writing = true;
        Some(Request::RenewLease { node_uid, version: self.version.clone(), at: observation.now })
    }

    /// When the next renewal is due.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.writing)
    }
}
