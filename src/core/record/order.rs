//! Orders to replace an instance at the same revision, and how long to wait between tries.
//!
//! Owns the back-off: 1 s, doubled each time, at most 15 min, as upstream's `failedPodsBackoff` of the DaemonSet
//! controller.

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;

use super::DaemonRecord;
use super::Fingerprint;

/// The first delay.
const MIN_BACKOFF: Span = Span::from_secs(1);
/// The longest delay.
pub const MAX_BACKOFF: Span = Span::from_mins(15);

/// Why a new incarnation is to replace an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum RestartCause {
    /// Its mirror pod was deleted from outside.
    Deleted,
    /// Its mirror pod was marked Failed.
    Failed {
        /// Reason and message of the mirror pod.
        message: String,
    },
    /// Its mirror pod was marked Succeeded.
    Succeeded,
    /// An administrator asked for it on this node.
    ByHand,
    /// The kubelet did not accept it.
    NotAccepted {
        /// The kubelet's reason, if there is one.
        reason: String,
    },
}

impl RestartCause {
    /// Whether retries back off.
    pub fn backs_off(&self) -> bool {
        matches!(self, RestartCause::Failed { .. } | RestartCause::Succeeded | RestartCause::NotAccepted { .. })
    }

    /// The cause as part of a sentence about the pod.
    pub fn words(&self) -> String {
        match self {
            RestartCause::Deleted => "its pod was deleted".to_owned(),
            RestartCause::Failed { message } if message.is_empty() => "its pod failed".to_owned(),
            RestartCause::Failed { message } => format!("its pod failed: {message}"),
            RestartCause::Succeeded => "its pod exited by itself".to_owned(),
            RestartCause::ByHand => "a restart was requested on this node".to_owned(),
            RestartCause::NotAccepted { reason } => format!("the kubelet did not accept it: {reason}"),
        }
    }
}

/// The order to replace an instance with a new incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartOrder {
    #[serde(flatten)]
    pub cause: RestartCause,
    /// When it was given.
    pub at: Timestamp,
    /// When it is due at the earliest.
    pub due: Timestamp,
}

/// How often in a row an instance had to be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryBackoff {
    /// Tries so far.
    pub tries: u32,
    /// When the last was ordered.
    pub last: Timestamp,
    /// What the kubelet's last rejection may have depended on: pods, Node, template.
    #[serde(default, deserialize_with = "Fingerprint::or_unknown")]
    pub surroundings: Fingerprint,
    /// Whether the kubelet rejected it: then the count restarts once an instance is accepted.
    #[serde(default)]
    pub not_accepted: bool,
}

impl RetryBackoff {
    /// The delay before the next try.
    pub fn delay(&self) -> Span {
        doubled(MIN_BACKOFF, self.tries.saturating_sub(1), MAX_BACKOFF)
    }
}

impl DaemonRecord {
    /// Orders that a new incarnation replaces `uid`; an earlier order stays. A cause that backs off waits longer each
    /// time; the count restarts after twice the longest delay, or when `surroundings` have changed.
    pub fn order_restart(&mut self, uid: &str, cause: RestartCause, now: Timestamp, surroundings: &Fingerprint) {
        let Some(instance) = self.instances.iter_mut().find(|i| i.uid == uid) else { return };
        if instance.restart.is_some() || instance.phase != super::Phase::Live {
            return;
        }
        let due = if cause.backs_off() {
            let same = |b: &&RetryBackoff| b.surroundings == *surroundings && now - b.last <= MAX_BACKOFF * 2;
            let tries = self.backoff.as_ref().filter(same).map_or(0, |b| b.tries);
            let backoff = RetryBackoff {
                tries: tries.saturating_add(1),
                last: now,
                surroundings: surroundings.clone(),
                not_accepted: matches!(cause, RestartCause::NotAccepted { .. }),
            };
            let due = now + backoff.delay();
            self.backoff = Some(backoff);
            due
        } else {
            now
        };
        instance.restart = Some(RestartOrder { cause, at: now, due });
    }
}

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectKey;
    use crate::core::record::Instance;
    use crate::core::time::at;

    use super::*;

    fn failed() -> RestartCause {
        RestartCause::Failed { message: String::new() }
    }

    fn due(record: &mut DaemonRecord, now: Timestamp, pods: u64) -> Span {
        record.instances = vec![Instance::new("u", "p", 0, "r", at(0))];
        record.order_restart("u", failed(), now, &Fingerprint::OfApi(pods));
        record.instances[0].restart.as_ref().unwrap().due - now
    }

    #[test]
    fn each_try_waits_twice_as_long_up_to_a_quarter_of_an_hour() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        let delays: Vec<i64> = (1..=12).map(|i| due(&mut record, at(i), 1).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(due(&mut record, at(100), 2).as_secs(), 1, "what it depends on has changed");
        due(&mut record, at(200), 2);
        assert_eq!(due(&mut record, at(201) + MAX_BACKOFF * 2, 2).as_secs(), 1, "long ago");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_order_wait_longer_than_it_was_to() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        for _ in 0..3 {
            due(&mut record, at(7_200_000), 1);
        }
        record.not_after(at(0));
        let order = record.instances[0].restart.as_ref().unwrap();
        assert_eq!((order.at, order.due), (at(0), at(4_000)));
        record.instances = vec![Instance::new("u", "p", 0, "r", at(0))];
        record.order_restart("u", RestartCause::Deleted, at(7_200_000), &Fingerprint::Unknown);
        record.not_after(at(0));
        assert_eq!(record.instances[0].restart.as_ref().unwrap().due, at(0));
    }

    #[test]
    fn an_order_by_hand_is_due_at_once_and_the_first_order_stands() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances = vec![Instance::new("u", "p", 0, "r", at(0))];
        record.order_restart("u", RestartCause::ByHand, at(5), &Fingerprint::Unknown);
        record.order_restart("u", failed(), at(6), &Fingerprint::Unknown);
        let order = record.instances[0].restart.clone().unwrap();
        assert_eq!((order.cause, order.due, record.backoff), (RestartCause::ByHand, at(5), None));
    }
}
