//! Asking again before something is removed: a GET for one daemon, a second list for many.

use std::path::Path;

use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;
use crate::core::sources::Confirmation;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Link;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::Agent;
use super::Answer;
use super::Removals;
use super::definitions;
use super::now;
use super::remembered_inputs::INPUTS;

/// Until the cluster has said which one it is, it is asked no more often than this.
const ASK_AGAIN: Span = Span::from_secs(5);

/// Which cluster answers: another one under the same address proves nothing about what runs here.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    asked_at: Option<Timestamp>,
    /// How many connections had been opened when it last said who it is: behind a new one there may be
    /// another cluster, and its watches need not tell (resource versions of the old one mean nothing there).
    met_at: Option<u64>,
    asked_on: u64,
    /// The UID of another cluster than the one that is remembered.
    other: Option<String>,
}

impl Cluster {
    /// A cluster has said who it is; the first one is remembered.
    pub(super) fn answered(&mut self, uid: Option<String>, known: &mut Option<String>) {
        let Some(uid) = uid else { return };
        self.met_at = Some(self.asked_on);
        match known {
            Some(known) => self.other = (*known != uid).then_some(uid),
            None => *known = Some(uid),
        }
    }

    /// Whether another cluster than the one that is remembered answers.
    pub(super) fn is_another(&self) -> bool {
        self.other.is_some()
    }

    /// What is wrong with it.
    pub(super) fn problem(&self, known: Option<&String>, state: &Path) -> Option<Problem> {
        let (other, known) = self.other.as_ref().zip(known)?;
        Some(Problem {
            object: "API".to_owned(),
            reason: format!(
                "another cluster answers (namespace kube-system has UID {other}, not {known}): \
                 nothing that is missing there is removed here"
            ),
            hint: Some(format!(
                "if this node belongs to that cluster now, stop the agent, remove {} and start it",
                state.join(INPUTS).with_extension("json").display()
            )),
        })
    }
}

impl Agent {
    /// Learns which cluster this is as soon as it has listed its DaemonSets, long before anything is
    /// missing, and asks again on every new connection.
    pub(super) fn meet_cluster(&mut self, snapshot: Option<&Snapshot>) {
        let listed = snapshot.is_some_and(|snapshot| snapshot.lists(&Scope::DaemonSets) > 0);
        let due = self.cluster.asked_at.is_none_or(|at| now() - at >= ASK_AGAIN);
        let (true, true, Some(api)) = (listed, due, self.api.clone()) else { return };
        let opened = api.connector().counters().connections_opened;
        if self.cluster.met_at == Some(opened) || *api.connector().link().borrow() != Link::Up {
            return;
        }
        self.cluster.asked_at = Some(now());
        self.cluster.asked_on = opened;
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let cluster_uid = api.cluster_uid().await.ok();
            let _ = answers.send(Answer { cluster_uid, daemon: None, published: None });
        });
    }

    /// Asks the API server itself about a daemon that its view lacks or does not cover any more.
    pub(super) fn ask(&mut self, key: &ObjectKey, record: Option<&DaemonRecord>, at: Timestamp) {
        let (Some(api), Some(about)) = (self.api.clone(), self.definitions.ask(key, at)) else { return };
        tracing::info!(daemonset = %key, "asking the API server itself whether {key} is gone");
        let record = record.cloned().unwrap_or_else(|| self.disk.new_record(key));
        let (policy, known, answers) =
            (self.policy.clone(), self.remembered_inputs.cluster_uid.clone(), self.answers.clone());
        tokio::spawn(async move {
            let (cluster_uid, confirmation) = match api.cluster_uid().await {
                Err(failure) => (None, Confirmation::Failed(failure.to_string())),
                Ok(uid) if known.as_ref().is_some_and(|known| *known != uid) => {
                    (Some(uid), Confirmation::Failed("another cluster answers".to_owned()))
                }
                Ok(uid) => {
                    let live = api.get_daemon_set(&record.key).await;
                    (Some(uid), definitions::confirm(live, &record, &policy))
                }
            };
            let _ =
                answers.send(Answer { cluster_uid, daemon: Some((record.key, about, confirmation)), published: None });
        });
    }

    pub(super) fn hold_removals(&mut self, held: bool, at: Timestamp) {
        if !held {
            self.removals = None;
            return;
        }
        let removals =
            self.removals.get_or_insert(Removals { at: at + self.config.removals_delay.into(), asked: None });
        if removals.asked.is_none()
            && at >= removals.at
            && let Some(api) = &self.api
        {
            removals.asked = Some(api.relist_fresh());
        }
    }

    pub(super) fn has_second_list(&self, api: Option<&Snapshot>) -> bool {
        let asked = self.removals.and_then(|r| r.asked);
        asked.zip(api).is_some_and(|(asked, api)| api.lists(&Scope::DaemonSets) > asked)
    }
}
