//! What one pass of the coordinator knows of the world, as a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::node_daemons::LeaseTerm;
use super::requests::CoordinatorReply;
use super::snapshot::ClusterSnapshot;
use super::snapshot::WatchedKind;

/// Everything that [`super::decide::decide`] may look at besides what the coordinator remembers.
#[derive(Clone, Debug)]
pub struct ClusterObservation {
    /// When it was made, by the clock of the term.
    pub now: Timestamp,
    /// How far the wall clock is ahead of that, as it has jumped; negative: behind.
    pub ahead: Span,
    /// Whether this process coordinates.
    pub leadership: Leadership,
    /// The cluster; none of its times lies after `now`.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Watches and GETs that failed since the last observation, and why. What they brought before stays.
    pub unreadable: Vec<(WatchedKind, String)>,
    /// When each watch last brought something, and when it last failed.
    pub watches: BTreeMap<WatchedKind, WatchHealth>,
    /// Answers that came since the last observation; what they brought is in the snapshot.
    pub replies: Vec<CoordinatorReply>,
}

/// How a watch goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchHealth {
    /// When it last brought something.
    pub last_event: Option<Timestamp>,
    /// When it last failed, or a GET of one of its objects did.
    pub failed: Option<Timestamp>,
}

/// Who coordinates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Another process, or none.
    #[default]
    Following,
    /// This process.
    Leading {
        /// Counts up each time that the Lease is acquired: nothing is remembered from an earlier term.
        term: u64,
        /// The Lease as this process holds it.
        lease: LeaseTerm,
    },
}
