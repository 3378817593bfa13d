//! Which cluster answers: another one under the same address proves nothing about what runs here.
//!
//! Owns which cluster identified itself on which connection. Behind a new connection there may be another cluster, and its
//! watches need not show that: resource versions of the old one mean nothing there.

use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::super::super::observation::Observation;
use super::super::super::observation::ObservedApi;
use super::super::super::requests::Reply;
use super::super::super::requests::Request;

/// How long a GET that failed, or that contradicted the watch, is taken for an answer; and how often a cluster is asked
/// which one it is.
pub(super) const ASK_AGAIN: Span = Span::from_secs(5);

/// An API server that has not answered for so long is reported.
const SILENT: Span = Span::from_secs(1);

/// Half of the time until it is asked again after a first refusal; each takes twice as long as the one before.
const REFUSED_AGAIN: Span = Span::from_millis(150);

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct ClusterIdentityCheck {
    asked_at: Option<Timestamp>,
    asked_on: u64,
    /// When it was first asked there.
    #[serde(default)]
    first_asked_at: Option<Timestamp>,
    /// How often it has not identified itself there.
    #[serde(default)]
    refused: u32,
    /// The connection on which it last identified itself.
    known_on: Option<u64>,
    /// The last connection on which it forbade the question.
    #[serde(default)]
    believed_on: Option<u64>,
    /// The UID of another cluster than the one that is remembered.
    pub(super) other: Option<String>,
    /// The remembered cluster answers again, and what another one showed is still to be forgotten.
    #[serde(default)]
    pub(super) is_back: bool,
    /// The newest connection, whether it is there or not.
    #[serde(default)]
    newest: Option<u64>,
    /// The same, while it is there.
    #[serde(default)]
    pub(super) linked_on: Option<u64>,
    /// The first connection on which it had yet to identify itself, since it last did.
    #[serde(default)]
    doubted_on: Option<u64>,
    /// The connection on which it was asked and did not identify itself, and why.
    #[serde(default)]
    unsaid: Option<(u64, ApiFailure)>,
}

impl ClusterIdentityCheck {
    /// Takes its answers. `known`: the cluster that is remembered; the first one to answer is.
    pub(super) fn observe(&mut self, observation: &Observation, known: &mut Option<String>) {
        let api = observation.api.as_ref();
        self.newest = api.map(|api| api.connections_opened).filter(|opened| *opened > 0);
        self.linked_on = self.newest.filter(|_| observation.is_linked());
        for reply in &observation.replies {
            match reply {
                Reply::ClusterIdentity { connection, cluster: Ok(uid) } => self.said(uid, *connection, known, api),
                Reply::ClusterIdentity { connection, cluster: Err(failure) } => self.did_not_say(*connection, failure),
                Reply::RemovalConfirmed { cluster: Some(uid), .. } => self.is(uid, known),
                _ => {}
            }
        }
        if known.is_some() && self.may_yet_say() {
            self.doubted_on = self.doubted_on.or(self.newest);
        }
    }

    /// An answer to the question. One of a connection that is not the newest any more is late.
    fn said(&mut self, uid: &str, connection: u64, known: &mut Option<String>, api: Option<&ObservedApi>) {
        if self.known_on.is_some_and(|known_on| connection < known_on) {
            return;
        }
        // The view from a connection in between, whose cluster never identified itself, may be another cluster's.
        let is_between = |doubted: u64| doubted < connection;
        let skipped = self.known_on.max(self.believed_on).is_some_and(|before| before + 1 < connection);
        let has_news = api.is_some_and(|api| api.has_news);
        let is_doubtful = self.doubted_on.take().is_some_and(is_between) || skipped;
        self.is_back |= known.is_some() && is_doubtful && has_news;
        (self.known_on, self.unsaid) = (Some(connection), None);
        self.is(uid, known);
    }

    /// Where the question was forbidden, it stays so, whatever else fails there, or late on an older connection.
    fn did_not_say(&mut self, connection: u64, failure: &ApiFailure) {
        if self.unsaid.as_ref().is_some_and(|(newer, _)| connection < *newer) {
            return;
        }
        self.refused += u32::from(connection == self.asked_on);
        if !self.is_forbidden(connection) {
            self.unsaid = Some((connection, failure.clone()));
        }
        if self.is_forbidden(connection) {
            // It is believed.
            (self.believed_on, self.doubted_on) = (Some(connection), None);
        }
    }

    fn is(&mut self, uid: &str, known: &mut Option<String>) {
        match known {
            Some(known) => {
                let other = (*known != uid).then(|| uid.to_owned());
                self.is_back |= self.other.is_some() && other.is_none();
                self.other = other;
            }
            None => *known = Some(uid.to_owned()),
        }
    }

    fn is_forbidden(&self, connection: u64) -> bool {
        let forbids = |(on, failure): &(u64, ApiFailure)| *on == connection && failure.kind == FailureKind::Forbidden;
        self.unsaid.as_ref().is_some_and(forbids)
    }

    /// Whether it has not identified itself on the newest connection, and has not forbidden the question.
    pub(super) fn may_yet_say(&self) -> bool {
        self.newest.is_some_and(|on| self.known_on != Some(on) && !self.is_forbidden(on))
    }

    /// Whether `known` answers on `connection`: by an earlier answer, by `replies`, or because it is believed to.
    pub(super) fn has_said(&self, known: &str, connection: u64, replies: &[Reply]) -> bool {
        let says = |reply: &Reply| match reply {
            Reply::ClusterIdentity { connection: on, cluster: Ok(uid) } => *on == connection && uid == known,
            Reply::ClusterIdentity { connection: on, cluster: Err(failure) } => {
                *on == connection && failure.kind == FailureKind::Forbidden
            }
            _ => false,
        };
        self.known_on == Some(connection) || self.is_forbidden(connection) || replies.iter().any(says)
    }

    /// Whether the newest connection is there, and it has not answered the question on it for so long that it may never do.
    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        let is_asked = self.linked_on == Some(self.asked_on) && self.unsaid().is_none() && self.may_yet_say();
        is_asked && self.first_asked_at.is_some_and(|at| now - at >= SILENT)
    }

    /// Why it has not identified itself on the newest connection.
    pub(super) fn unsaid(&self) -> Option<&ApiFailure> {
        self.unsaid.as_ref().filter(|(on, _)| Some(*on) == self.newest).map(|(_, failure)| failure)
    }

    /// Asks on every new connection, before any view of it counts.
    pub(super) fn ask(&mut self, now: Timestamp) -> Option<Request> {
        let connection = self.linked_on?;
        let again = self.again();
        let is_old = |at| !(Span::ZERO..again).contains(&(now - at));
        let is_due = self.asked_on != connection || self.asked_at.is_none_or(is_old);
        if !is_due || self.known_on == Some(connection) {
            return None;
        }
        if self.asked_on != connection || self.first_asked_at.is_none() {
            self.first_asked_at = Some(now);
        }
        self.refused = if self.asked_on == connection { self.refused } else { 0 };
        (self.asked_at, self.asked_on) = (Some(now), connection);
        Some(Request::ClusterIdentity { connection })
    }

    /// How long after a question it is asked again. An API server that has just started refuses for a moment, and its whole
    /// view waits for this answer; one that is silent is not asked more often.
    fn again(&self) -> Span {
        match self.refused {
            0 => ASK_AGAIN,
            times => doubled(REFUSED_AGAIN, times, ASK_AGAIN),
        }
    }

    /// When it is asked again.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let is_open = self.linked_on.is_some() && self.may_yet_say();
        self.asked_at.filter(|_| is_open).map(|at| at + self.again())
    }
}
