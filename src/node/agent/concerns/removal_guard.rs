//! Confirms removals before they are made: by a GET for one daemon, by a second complete list for many, and by the identity
//! of the cluster that answers.
//!
//! Owns what counts as confirmed. Until it is, nothing that is missing in the API counts as gone.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::sources::Confirmation;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::super::definitions::ApiDefinitions;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;
use super::etcd_rollback::EtcdRollbackReport;

mod cluster;

use cluster::ASK_AGAIN;
use cluster::ClusterIdentityCheck;

/// What has been asked, and what was answered.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct RemovalGuard {
    confirmations: BTreeMap<ObjectKey, ConfirmationAnswer>,
    cluster: ClusterIdentityCheck,
    second_list: Option<SecondList>,
    pub(in super::super) etcd_rollback: EtcdRollbackReport,
}

/// An answer to a GET, and what it was an answer about.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct ConfirmationAnswer {
    about: u64,
    at: Timestamp,
    /// `None` while the GET is under way.
    answer: Option<Confirmation>,
}

/// Removals that wait for a second complete list.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct SecondList {
    /// When a fresh list may be asked for.
    at: Timestamp,
    asked: bool,
    /// The number that the count of lists must exceed, once the list is under way.
    beyond: Option<u64>,
}

/// What a question is made from.
#[derive(Clone, Copy)]
pub(in super::super) struct QuestionInputs<'a> {
    pub(in super::super) records: &'a Records,
    pub(in super::super) definitions: &'a ApiDefinitions,
    /// The cluster that is remembered.
    pub(in super::super) cluster: Option<&'a String>,
    pub(in super::super) removals_delay: Span,
}

impl ConfirmationAnswer {
    fn confirmation(&self, now: Timestamp) -> Confirmation {
        match &self.answer {
            Some(Confirmation::Failed(_) | Confirmation::StillThere) if now - self.at >= ASK_AGAIN => {
                Confirmation::Unasked
            }
            Some(answer) => answer.clone(),
            None => Confirmation::Unasked,
        }
    }
}

impl RemovalGuard {
    /// Learns which cluster answers. `cluster`: the one that is remembered; the first one to answer is.
    pub(in super::super) fn identify_cluster(&mut self, observation: &Observation, cluster: &mut Option<String>) {
        self.cluster.observe(observation, cluster);
    }

    /// Takes the answers that have come.
    pub(in super::super) fn observe(&mut self, observation: &Observation, definitions: &ApiDefinitions) {
        if let Some(api) = observation.snapshot() {
            self.etcd_rollback.observe(api);
        }
        // A confirmed absence says nothing about the next one, once the object has been back.
        self.confirmations.retain(|key, asked| asked.about == definitions.version(key));
        for reply in &observation.replies {
            match reply {
                Reply::RemovalConfirmed { key, about, confirmation, .. } => {
                    // An answer to a question that is not asked any more is dropped.
                    if let Some(asked) = self.confirmations.get_mut(key).filter(|asked| asked.about == *about) {
                        let answer = Some(confirmation.clone());
                        *asked = ConfirmationAnswer { about: *about, at: observation.now, answer };
                    }
                }
                Reply::Relisting { lists } => {
                    if let Some(second) = &mut self.second_list {
                        second.beyond = Some(*lists);
                    }
                }
                _ => {}
            }
        }
    }

    /// The clock was set back: answers are asked for anew, and nothing waits until it gets there again.
    pub(in super::super) fn clock_set_back(&mut self, now: Timestamp, removals_delay: Span) {
        self.confirmations.clear();
        if let Some(second) = &mut self.second_list {
            second.at = second.at.min(now + removals_delay);
        }
    }

    /// Whether nothing waits for a GET or for another list.
    pub(in super::super) fn is_idle(&self) -> bool {
        self.confirmations.is_empty() && self.second_list.is_none()
    }

    /// The answer to a GET for the daemon, if one was asked for.
    pub(in super::super) fn confirmation(&self, key: &ObjectKey, about: u64, now: Timestamp) -> Confirmation {
        let asked = self.confirmations.get(key).filter(|asked| asked.about == about);
        asked.map_or(Confirmation::Unasked, |asked| asked.confirmation(now))
    }

    /// The connection behind which `known`, the cluster that is remembered, is known to be, 0 if there is none; `None`:
    /// none is remembered.
    pub(in super::super) fn identified_on(&self, known: Option<&String>) -> Option<u64> {
        let is_ours = !self.is_view_foreign(known);
        known.map(|_| self.cluster.linked_on.filter(|_| is_ours).unwrap_or_default())
    }

    /// Whether another cluster than the one that is remembered answers.
    pub(in super::super) fn is_another_cluster(&self) -> bool {
        self.cluster.other.is_some()
    }

    /// Whether what the API server has shown may be of another cluster than `known`, the one that is remembered.
    pub(in super::super) fn is_view_foreign(&self, known: Option<&String>) -> bool {
        self.has_foreign_view() || self.is_unidentified(known)
    }

    /// Whether what the API server has shown is of another cluster than the one that is remembered, or was.
    pub(in super::super) fn has_foreign_view(&self) -> bool {
        self.cluster.other.is_some() || self.cluster.is_back
    }

    /// Whether a cluster is remembered, and the one that answers has yet to identify itself as this one. One that forbids
    /// the question is believed.
    pub(in super::super) fn is_unidentified(&self, known: Option<&String>) -> bool {
        known.is_some() && self.cluster.may_yet_say()
    }

    /// Whether the cluster behind `connection` has identified itself as `known`, by earlier answers and by `replies`.
    pub(in super::super) fn is_identified(&self, known: Option<&String>, connection: u64, replies: &[Reply]) -> bool {
        known.is_none_or(|known| self.cluster.has_said(known, connection, replies))
    }

    /// Whether a second complete list, over a fresh connection, shows the same.
    pub(in super::super) fn has_second_list(&self, api: Option<&Snapshot>) -> bool {
        let beyond = self.second_list.and_then(|second| second.beyond);
        beyond.zip(api).is_some_and(|(beyond, api)| api.lists(&Scope::DaemonSets) > beyond)
    }

    /// Whether a complete list of `api` has been compared with what runs, by `plan`, and nothing waits for another one. Without
    /// the pods nothing counts as missing.
    pub(in super::super) fn has_compared(&self, api: Option<&Snapshot>, plan: &Plan) -> bool {
        let is_known = |api: &Snapshot| {
            api.lists(&Scope::DaemonSets) > 0 && api.is_current(&Scope::Pods) && api.etcd_rollback_detection.is_known
        };
        api.is_some_and(is_known) && !plan.removals_held && !self.has_second_list(api)
    }

    /// The questions that are due after a pass was planned.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        plan: &Plan,
        known: &QuestionInputs<'_>,
        log: &mut Log,
    ) -> Vec<Request> {
        let QuestionInputs { records, definitions, cluster, removals_delay } = *known;
        let now = observation.now;
        let api = observation.snapshot();
        self.etcd_rollback.planned(self.has_compared(api, plan));
        let known: BTreeSet<&ObjectKey> = plan.daemons.iter().map(|d| &d.key).collect();
        // An answer that counts no more is asked for again only if a removal waits for it: else the loop would not rest.
        let counts =
            |asked: &ConfirmationAnswer| asked.answer.is_none() || asked.confirmation(now) != Confirmation::Unasked;
        self.confirmations.retain(|key, asked| known.contains(key) && counts(asked));
        let mut requests = Vec::new();
        let confirms = |a: &Action| matches!(a, Action::Confirm { .. });
        for daemon in plan.daemons.iter().filter(|d| d.actions.iter().any(confirms)) {
            let (key, about) = (&daemon.key, definitions.version(&daemon.key));
            let asked = self.confirmations.get(key).filter(|asked| asked.about == about);
            if observation.api.is_none() || asked.is_some() {
                continue;
            }
            log.info("asking the API server itself whether it is gone").daemonset(key);
            self.confirmations.insert(key.clone(), ConfirmationAnswer { about, at: now, answer: None });
            let api_uid = records.get(key).and_then(|record| record.api_uid.clone());
            requests.push(Request::ConfirmRemoval { key: key.clone(), about, api_uid, cluster: cluster.cloned() });
        }
        requests.extend(self.cluster.ask(now));
        if std::mem::take(&mut self.cluster.is_back) {
            (self.second_list, self.confirmations) = (None, BTreeMap::new());
            requests.push(Request::ForgetApiView);
        }
        requests.extend(self.hold_removals(plan.removals_held, now, removals_delay));
        requests
    }

    fn hold_removals(&mut self, held: bool, now: Timestamp, delay: Span) -> Option<Request> {
        if !held {
            self.second_list = None;
            return None;
        }
        let second = self.second_list.get_or_insert(SecondList { at: now + delay, asked: false, beyond: None });
        if second.asked || now < second.at {
            return None;
        }
        second.asked = true;
        Some(Request::RelistDaemonSets)
    }

    /// When to ask again.
    pub(in super::super) fn due(&self) -> Option<Timestamp> {
        let passing = |asked: &&ConfirmationAnswer| {
            matches!(asked.answer, Some(Confirmation::Failed(_) | Confirmation::StillThere))
        };
        let again = self.confirmations.values().filter(passing).map(|asked| asked.at + ASK_AGAIN);
        let second = self.second_list.filter(|second| !second.asked).map(|second| second.at);
        again.chain(second).chain(self.cluster.due()).min()
    }

    /// What is wrong at `now`. `cluster`: the one that is remembered, in the file `inputs`.
    pub(in super::super) fn problems(&self, cluster: Option<&String>, inputs: &Path, now: Timestamp) -> Vec<Problem> {
        let other = self.cluster.other.as_ref().zip(cluster).map(|(other, known)| Problem {
            object: "API".to_owned(),
            reason: format!(
                "another cluster answers (namespace kube-system has UID {other}, not {known}): \
                 nothing that is missing there is removed here"
            ),
            hint: Some(format!(
                "if this node belongs to that cluster now, first apply the DaemonSets there: after the start every \
                 daemon of the API that this cluster does not have ends after `removals-delay`. Then stop the agent, \
                 move {} away and start it",
                inputs.display()
            )),
        });
        let silent = || self.cluster.is_silent(now).then(|| "no answer".to_owned());
        let why = self.cluster.unsaid().map(|why| why.to_string()).or_else(silent);
        let unsaid = why.filter(|_| self.is_unidentified(cluster)).map(|why| Problem {
            object: "API".to_owned(),
            reason: format!(
                "the API server does not say which cluster it is (GET namespace kube-system: {why}): \
                 until it does, nothing else that it says counts, and what runs stays"
            ),
            hint: None,
        });
        let rollback = if other.is_none() { self.etcd_rollback.problem() } else { None };
        other.into_iter().chain(unsaid).chain(rollback).collect()
    }
}

#[cfg(test)]
mod tests;
