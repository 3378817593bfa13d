//! This node's Lease: a sign that its agent makes passes.
//!
//! Owns when it is renewed. If the Lease does not change, the coordinator takes the agent for dead and ignores its last
//! report. Without NodeDaemons there is no coordinator to read the Lease, and no Lease.

use crate::core::model::NodeView;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::Scope;

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
    /// Not before; `None` while NodeDaemons is not served.
    next: Option<Timestamp>,
    writing: bool,
    version: Option<String>,
    /// Why the API server refuses to keep it, if it does.
    #[serde(default)]
    problem: Option<Problem>,
    /// How long the last refusal was waited for.
    pause: Span,
}

impl NodeLease {
    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation) {
        for reply in &observation.replies {
            let Reply::LeaseRenewed(result) = reply else { continue };
            self.answered(result, observation.now, observation.random);
        }
        let now = observation.now;
        let is_served = observation.snapshot().is_some_and(|api| api.lists(&Scope::NodeDaemons) > 0);
        self.next = match self.next {
            _ if !is_served => None,
            // A clock that was set back makes it wait no longer.
            Some(next) => Some(next.min(now + REFUSED)),
            None => Some(now),
        };
        self.problem.take_if(|_| !is_served);
    }

    fn answered(&mut self, result: &Result<String, ApiFailure>, now: Timestamp, random: f64) {
        self.writing = false;
        let failed = result.as_ref().err().map(|failure| failure.kind);
        let is_refused = matches!(failed, Some(FailureKind::Forbidden | FailureKind::NotFound));
        // A server that has just started does not know its roles yet.
        self.pause = if is_refused { (self.pause + self.pause).clamp(AGAIN, REFUSED) } else { Span::ZERO };
        let wait = match failed {
            None => EVERY.mul_f64(1.0 - random / 10.0),
            Some(_) if is_refused => self.pause,
            Some(_) => AGAIN,
        };
        self.problem = result.as_ref().err().filter(|_| is_refused).map(|failure| {
            Problem {
            object: "Lease".to_owned(),
            reason: format!("this node's Lease is not written: {failure}; trying again"),
            hint: Some(
                "apply rbac.yaml and admission-policies.yaml of this version; without the Lease the coordinator cannot \
                 tell that an agent is dead"
                    .to_owned(),
            ),
        }
        });
        (self.next, self.version) = (Some(now + wait), result.as_ref().ok().cloned());
    }

    /// The renewal that is due, if any.
    pub(in super::super) fn requests(&mut self, observation: &Observation, node: &NodeView) -> Option<Request> {
        let is_there = observation.snapshot().is_some_and(|api| api.node.is_some());
        // Not for a Node that is gone: it would own an object that nothing needs.
        let node_uid = node.uid.clone().filter(|_| is_there)?;
        self.next.filter(|next| *next <= observation.now && !self.writing)?;
        self.writing = true;
        Some(Request::RenewLease { node_uid, version: self.version.clone(), at: observation.now })
    }

    /// Why the Lease is not written, if the API server refuses it.
    pub(in super::super) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// When the next renewal is due.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.writing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done with an answer: when the next renewal is due after it, and whether a problem is shown.
    fn answered(lease: &mut NodeLease, result: Result<&str, FailureKind>) -> (Option<Span>, bool) {
        let result = result.map(str::to_owned).map_err(|kind| ApiFailure::new(kind, "no"));
        lease.writing = true;
        lease.answered(&result, Timestamp::default(), 0.0);
        (lease.due().map(|due| due - Timestamp::default()), lease.problem().is_some())
    }

    #[test]
    fn a_renewal_follows_in_its_time_and_a_refusal_is_shown_and_waited_for_ever_longer() {
        let mut lease = NodeLease::default();
        assert_eq!(answered(&mut lease, Ok("7")), (Some(EVERY), false));
        assert_eq!(lease.version.as_deref(), Some("7"));
        // Another agent may hold it by now: the next renewal reads it first.
        assert_eq!(answered(&mut lease, Err(FailureKind::Conflict)), (Some(AGAIN), false));
        assert_eq!(lease.version, None);
        let waits: Vec<_> = (0..8).map(|_| answered(&mut lease, Err(FailureKind::Forbidden))).collect();
        let seconds: Vec<i64> = waits.iter().filter_map(|(wait, _)| Some(wait.as_ref()?.as_secs_ceil())).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert!(waits.iter().all(|(_, is_shown)| *is_shown));
        assert_eq!(answered(&mut lease, Ok("8")), (Some(EVERY), false));
        assert_eq!(answered(&mut lease, Err(FailureKind::NotFound)), (Some(AGAIN), true), "from the beginning");
    }
}
