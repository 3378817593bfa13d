//! Warning events on DaemonSets: what goes wrong with a revision, once for each cause.
//!
//! Owns which causes become events, and when. One event stands for all nodes and grows into a series; the condition
//! Degraded names the nodes. A cause that passes by itself makes none.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::core::model::ObjectKey;
use crate::core::named::named;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::snapshot::WatchedDaemon;
pub use cause::TroubleCause;

mod cause;

/// A cause becomes an event once it has stood for this long.
const STANDS: Span = Span::from_secs(30);
/// Between two writes about one cause.
const PERIOD: Span = Span::from_secs(60);
/// A written event is remembered for so long: as long as API servers keep it.
const KEPT: Span = Span::from_secs(3_600);
/// Events of one revision within that time: causes that come and go, or that an agent words differently each time, must
/// not fill a namespace.
const MOST: usize = 20;
/// The API's limit of a note in bytes.
const NOTE: usize = 1_024;

named! {
    /// The reason of an event, in alphabetical order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TroubleReason {
        /// The condition Degraded names the nodes.
        Degraded = "Degraded",
        /// Written at once.
        RolloutHalted = "RolloutHalted",
        TooFewAgents = "TooFewAgents",
        TooManyApprovals = "TooManyApprovals",
        TooManyDaemonSets = "TooManyDaemonSets",
    }
}

/// What goes wrong with one revision of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// The DaemonSet.
    pub key: ObjectKey,
    pub uid: String,
    /// The hash of the revision.
    pub revision: String,
    pub cause: TroubleCause,
}

impl Trouble {
    fn revision_of(&self) -> (ObjectKey, String) {
        (self.key.clone(), self.revision.clone())
    }
}

/// Since when a cause stands, and what was written about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CauseState {
    /// Since when it stands; `None`: it has passed.
    since: Option<Timestamp>,
    /// On how many nodes it stood when it was last written, and when that was.
    written: Option<(usize, Timestamp)>,
}

/// The causes that stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TroubleEvents(BTreeMap<Trouble, CauseState>);

/// The events to write now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EventPlan {
    /// The causes as they are after it.
    pub(super) next: TroubleEvents,
    /// What is written, each with the number of nodes.
    pub(super) due: Vec<(Trouble, usize)>,
    /// When to look again.
    pub(super) look_again: Option<Timestamp>,
}

impl TroubleEvents {
    /// The events to write at `now` about the causes that are `standing`, each with the number of nodes.
    pub(super) fn plan(&self, standing: BTreeMap<Trouble, usize>, now: Timestamp) -> EventPlan {
        let mut plan = EventPlan::default();
        // A clock that was set back makes nothing wait longer.
        let is_kept = |cause: &CauseState| cause.written.is_some_and(|(_, at)| at <= now && now < at + KEPT);
        let kept = self.0.iter().filter(|(trouble, cause)| is_kept(cause) && !standing.contains_key(trouble));
        let passed = |cause: &CauseState| CauseState { since: None, ..cause.clone() };
        plan.next.0.extend(kept.map(|(trouble, cause)| (trouble.clone(), passed(cause))));
        let mut counts: BTreeMap<(ObjectKey, String), usize> = BTreeMap::new();
        for trouble in self.0.iter().filter(|(_, cause)| cause.written.is_some()).map(|(trouble, _)| trouble) {
            *counts.entry(trouble.revision_of()).or_default() += 1;
        }
        for (trouble, nodes) in standing {
            let known = self.0.get(&trouble);
            let stood = known.and_then(|known| known.since).filter(|since| *since <= now);
            let since = stood.unwrap_or(now);
            let mut written = known.and_then(|known| known.written);
            let number = counts.entry(trouble.revision_of()).or_default();
            let due = match written {
                Some((before, at)) if stood.is_some_and(|since| at >= since) => {
                    (nodes > before).then_some(at.min(now) + PERIOD)
                }
                _ if trouble.cause.reason() == TroubleReason::RolloutHalted => Some(now),
                // A cause that comes back continues the event that was made.
                _ => (written.is_some() || *number < MOST).then_some(since + STANDS),
            };
            match due {
                Some(at) if at <= now => {
                    *number += usize::from(written.is_none());
                    written = Some((nodes, now));
                    plan.due.push((trouble.clone(), nodes));
                }
                Some(at) => plan.look_again = plan.look_again.into_iter().chain([at]).min(),
                None => {}
            }
            plan.next.0.insert(trouble, CauseState { since: Some(since), written });
        }
        plan
    }

    /// The event was not written: it is written again in a while.
    pub(super) fn failed(&mut self, trouble: &Trouble) {
        if let Some(CauseState { written: Some((nodes, _)), .. }) = self.0.get_mut(trouble) {
            *nodes = 0;
        }
    }
}

/// Too few agents say that they run a DaemonSet without a mode.
pub(super) fn too_few_agents(key: &ObjectKey, uid: &str) -> Trouble {
    Trouble { key: key.clone(), uid: uid.to_owned(), revision: String::new(), cause: TroubleCause::TooFewAgents }
}

/// A namespace has more DaemonSets than are coordinated there; this is the first that is not.
pub(super) fn too_many_daemon_sets(key: &ObjectKey, uid: &str) -> Trouble {
    let cause = TroubleCause::TooManyDaemonSets(key.namespace.clone());
    Trouble { key: key.clone(), uid: uid.to_owned(), revision: String::new(), cause }
}

/// On some nodes no approval of a DaemonSet has room beside those of others.
pub(super) fn too_many_approvals(daemon: &WatchedDaemon) -> Trouble {
    let (key, uid, revision) = (daemon.daemon_set.key.clone(), daemon.uid.clone(), daemon.hash.clone());
    Trouble { key, uid, revision, cause: TroubleCause::TooManyApprovals }
}

/// The event about `trouble` on so many `nodes`: its name, the body that makes it, and the series of one that is there.
pub(super) fn body(trouble: &Trouble, nodes: usize, now: Timestamp) -> (String, Value, Value) {
    let Trouble { key, uid, revision, cause } = trouble;
    let (reason, cause) = (cause.reason(), cause.note());
    let mut hash = Sha256::new();
    [uid, revision, reason.as_str(), &cause].iter().for_each(|part| hash.update(format!("{part}\0")));
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{}.{hash}", key.name);
    let time = format!("{:.6}", jiff::Timestamp::from_millisecond(now.as_millis()).unwrap_or_default());
    let mut note = match revision.as_str() {
        "" => cause,
        revision => format!("revision {revision}: {cause}"),
    };
    let end = (0..=NOTE.min(note.len())).rev().find(|at| note.is_char_boundary(*at));
    note.truncate(end.unwrap_or(0));
    // A series has at least two.
    let series = json!({"count": nodes.max(2), "lastObservedTime": time});
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": key.namespace, "name": name},
        "eventTime": time,
        "type": "Warning",
        "reason": reason.as_str(),
        "action": "Rollout",
        "note": note,
        "reportingController": "daemonlet.dev/coordinator",
        "reportingInstance": "coordinator",
        "regarding": {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": key.namespace, "name": key.name, "uid": uid,
        },
    });
    if nodes > 1 {
        event["series"] = series.clone();
    }
    (name, event, json!({"series": series}))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::core::cluster::released::HaltCause;
    use crate::core::record::Cause;
    use crate::core::time::at;

    fn trouble(cause: TroubleCause) -> Trouble {
        Trouble { key: ObjectKey::new("kube-system", "net"), uid: "u".to_owned(), revision: "r".to_owned(), cause }
    }

    fn halt() -> Trouble {
        trouble(TroubleCause::Halted(HaltCause::Written("failed".to_owned())))
    }

    fn image() -> Trouble {
        trouble(TroubleCause::Failed(Some(Cause::Image)))
    }

    #[test]
    fn a_cause_that_stands_is_written_once_and_then_as_it_spreads() {
        let mut events = TroubleEvents::default();
        let mut written = Vec::new();
        for second in 0..600 {
            // One node more every second, until all 200 have it.
            let nodes = (second + 1).min(200);
            let standing = BTreeMap::from([(image(), usize::try_from(nodes).unwrap())]);
            let plan = events.plan(standing, at(second * 1_000));
            written.extend(plan.due.iter().map(|(_, nodes)| (second, *nodes)));
            events = plan.next;
        }
        assert_eq!(written, [(30, 31), (90, 91), (150, 151), (210, 200)], "and never again");
        let passed = events.plan(BTreeMap::new(), at(600_000)).next;
        let standing = || BTreeMap::from([(image(), 200)]);
        let again = passed.plan(standing(), at(700_000));
        assert_eq!((again.due.len(), again.look_again), (0, Some(at(730_000))), "it comes back");
        assert_eq!(again.next.plan(standing(), at(730_000)).due.len(), 1);
        assert!(passed.plan(BTreeMap::new(), at(210_000 + 3_600_000)).next.0.is_empty(), "an event lives for an hour");
    }

    #[test]
    fn causes_without_end_make_a_bounded_number_of_events() {
        let mut events = TroubleEvents::default();
        let mut written = BTreeSet::new();
        for second in 0..3_600 {
            // Each stands for half a minute, and then it is another; a halt is written all the same.
            let cause = TroubleCause::StepUnwritten(format!("net-{}", second / 31));
            let mut standing = BTreeMap::from([(trouble(cause), 1)]);
            standing.extend((second > 3_000).then(|| (halt(), 1)));
            let plan = events.plan(standing, at(second * 1_000));
            written.extend(plan.due.iter().map(|(trouble, _)| trouble.clone()));
            events = plan.next;
        }
        assert_eq!(written.iter().filter(|trouble| matches!(trouble.cause, TroubleCause::Halted(_))).count(), 1);
        assert_eq!(written.len(), MOST + 1);
    }

    #[test]
    fn a_halt_is_written_at_once_other_causes_when_they_last_and_a_failed_write_is_repeated() {
        let events = TroubleEvents::default();
        let halt = halt();
        let standing = BTreeMap::from([(image(), 1), (halt.clone(), 1)]);
        let mut plan = events.plan(standing.clone(), at(0));
        assert_eq!(plan.due, [(halt.clone(), 1)]);
        assert_eq!(plan.look_again, Some(at(30_000)));
        plan.next.failed(&halt);
        let again = plan.next.plan(BTreeMap::from([(halt.clone(), 1)]), at(60_000));
        assert_eq!(again.due, [(halt, 1)]);
    }

    #[test]
    fn one_name_for_one_cause_of_one_revision() {
        let (name, event, series) = body(&image(), 1, at(1_500));
        assert_eq!(body(&image(), 9, at(9_000)).0, name);
        assert_ne!(body(&trouble(TroubleCause::Failed(Some(Cause::Probe))), 1, at(1_500)).0, name);
        assert_eq!((event["note"].as_str(), event.get("series")), (Some("revision r: image"), None));
        assert_eq!(event["eventTime"], "1970-01-01T00:00:01.500000Z");
        assert_eq!(series["series"]["count"], 2);
        assert_eq!(body(&image(), 9, at(9_000)).1["series"]["count"], 9);
    }
}
