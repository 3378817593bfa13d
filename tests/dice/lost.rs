//! Nodes that a revision broke and that were deleted, as plainly as they can be counted: a coordinator that has seen too
//! many of them gives that revision to no more nodes. Nor does one that has seen it halted, until the halt is taken away
//! from the ControllerRevision that says it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use daemonlet::core::cluster::released::ALL_RETRIED;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::cluster::requests::ClusterRequest;
use daemonlet::core::cluster::snapshot::ClusterSnapshot;
use daemonlet::core::cluster::snapshot::WatchedDaemon;
use daemonlet::core::model::MAX_FAILED;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use super::KEY;
use super::slots;

/// The progress deadline: one that was well until then breaks for another reason.
const DEADLINE: Span = Span::from_secs(600);

/// What a coordinator has seen since it began to lead, by the UID of Nodes.
#[derive(Default)]
pub(super) struct Lost {
    /// The revision that was wanted.
    hash: String,
    /// Nodes that had it and were not well when something was last decided, by name.
    unwell: BTreeMap<String, String>,
    /// Those that were so and are gone.
    lost: BTreeSet<String>,
    /// UID of the ControllerRevision that said that it is halted, if one did.
    halted_on: Option<String>,
}

fn daemon(view: &ClusterSnapshot) -> Option<&WatchedDaemon> {
    view.daemons.get(&ObjectKey::new(KEY.0, KEY.1))
}

impl Lost {
    /// An operator has requested that it is tried again.
    pub(super) fn forgive(&mut self) {
        self.lost.clear();
        self.halted_on = None;
    }

    /// Takes note of what a pass `has_decided` by what it sees.
    pub(super) fn look(&mut self, view: &ClusterSnapshot, has_decided: bool, now: Timestamp) {
        // Of a definition that is refused nothing is decided.
        let Some(daemon) = daemon(view).filter(|daemon| daemon.refused.is_none()) else { return };
        let current = view.revisions.values().find(|known| known.revision.hash == daemon.hash);
        let is_released = RolloutStatus::of(&daemon.status, 0).released.is_some_and(|r| r.hash == daemon.hash);
        // It was deleted, and is made again.
        if current.is_none() && self.hash == daemon.hash {
            return;
        }
        let Some(current) = current.filter(|_| self.hash == daemon.hash && !is_released) else {
            *self = Self { hash: daemon.hash.clone(), ..Self::default() };
            return;
        };
        if !has_decided {
            return;
        }
        // It sees later what an operator has requested.
        if current.revision.retried.contains(ALL_RETRIED) {
            self.forgive();
        }
        match &current.revision.halted {
            Some(_) => self.halted_on = Some(current.uid.clone()),
            None => drop(self.halted_on.take_if(|on| *on == current.uid)),
        }
        let there: BTreeMap<&str, &str> = view
            .nodes
            .iter()
            .filter_map(|(name, entry)| Some((entry.node.as_ref()?.view.uid.as_deref()?, name.as_str())))
            .collect();
        let (here, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.unwell).into_iter().partition(|(uid, _)| there.contains_key(uid.as_str()));
        let gone = gone.into_iter().filter(|(_, name)| !current.revision.is_retried(name));
        self.lost.extend(gone.map(|(uid, _)| uid));
        let unreported = here.into_iter().filter(|(_, name)| view.report(name).is_none());
        self.unwell = unreported.collect();
        let is_unwell = |name: &str| {
            let entry = &view.nodes[name];
            let reported = entry.report.as_ref().and_then(|report| report.daemon(daemon.key));
            let is_soon =
                reported.and_then(|reported| reported.instances.last()).is_some_and(|i| i.created + DEADLINE > now);
            let has_it = slots::running(view, entry) == Some((daemon.hash.as_str(), false));
            has_it && is_soon && !current.revision.is_retried(name)
        };
        let unwell = there.into_iter().filter(|(_, name)| is_unwell(name));
        self.unwell.extend(unwell.map(|(uid, name)| (uid.to_owned(), name.to_owned())));
    }

    /// What is wrong with what `requests` give, if anything is.
    pub(super) fn given_against(&self, view: &ClusterSnapshot, requests: &[ClusterRequest]) -> Option<String> {
        let daemon = daemon(view).filter(|daemon| daemon.hash == self.hash)?;
        let current = view.revisions.values().find(|known| known.revision.hash == daemon.hash)?;
        let given = slots::new(view, requests).filter(|(_, new)| new.revision == daemon.hash).count();
        if given > 0 && self.halted_on.as_ref().is_some_and(|on| *on != current.uid) {
            return Some(format!("gives {}, which was halted on a ControllerRevision that is gone", self.hash));
        }
        let mut lost = self.lost.clone();
        let uids: BTreeSet<&str> = view.nodes.values().filter_map(|e| e.node.as_ref()?.view.uid.as_deref()).collect();
        let noted = current.revision.broken.nodes.iter().filter(|broken| !uids.contains(broken.uid.as_str()));
        lost.extend(noted.map(|broken| broken.uid.clone()));
        let most = daemon.daemon_set.annotations.get(MAX_FAILED).map_or(1, |text| text.parse().unwrap());
        (given > 0 && lost.len() > most).then(|| format!("gives {} {given} times, which has lost {lost:?}", self.hash))
    }
}
