//! Taking everything of ours off the node: the agent's own passes with nothing wanted any more.
//!
//! Owns when that is done. Whatever an end takes is the passes' (number on disk before the manifest
//! goes, sandbox gone by the runtime's word, folder cleared), so that a drain that is cut short is gone on
//! with by the next one, or undone by an agent that starts. Must not touch what is not ours.

use std::time::Duration;

use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::record::Phase;
use crate::core::sources::Desired;
use crate::core::status::Problem;

use super::Agent;
use super::AgentError;
use super::api_change;
use super::offline;
use super::sleep_until;

/// What a drain found, and what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// The node.
    pub node: String,
    /// The pods that were on the node.
    pub found: Vec<Draining>,
    /// Those of them that still are; empty: the node is drained.
    pub left: Vec<Draining>,
    /// What went wrong beside single pods.
    pub problems: Vec<Problem>,
}

/// One pod of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Its DaemonSet.
    pub daemon: ObjectKey,
    /// Its name, without the node's; empty if nobody knows it any more.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// What it does, for people.
    pub what: String,
}

/// What is said of every daemon while the node is drained.
pub(super) fn desired() -> Desired {
    Desired::Gone { reason: "this node is torn down".to_owned(), by_list: false, ignore_file: None }
}

/// What a drain would find. Changes nothing, and may be asked while an agent runs.
///
/// # Errors
/// When the state folder cannot be read.
pub fn drain_offline(config: Config) -> Result<Drain, AgentError> {
    let mut agent = offline::offline(config)?;
    agent.draining = true;
    agent.look();
    let found = agent.plan.daemons.iter().flat_map(|daemon| {
        let ending = daemon.record.ending().map(|i| Draining {
            daemon: daemon.key.clone(),
            pod: i.pod_name.clone(),
            uid: i.uid.clone(),
            what: "runs".to_owned(),
        });
        ending.chain(daemon.record.ended.keys().map(|uid| cleared(&daemon.key, uid)))
    });
    let (found, problems) = (found.collect(), agent.problems.clone());
    Ok(Drain { node: agent.config.node_name.clone(), found, left: Vec::new(), problems })
}

fn cleared(daemon: &ObjectKey, uid: &str) -> Draining {
    let what = "has ended, and its folder is to be cleared".to_owned();
    Draining { daemon: daemon.clone(), pod: String::new(), uid: uid.to_owned(), what }
}

impl Agent {
    /// Removes every manifest of ours, waits until nothing of their pods runs any more and clears
    /// their folders; gives up waiting after `patience`.
    ///
    /// What is given up is said in [`Drain::left`], and another drain goes on with it.
    pub async fn drain(mut self, patience: Duration) -> Drain {
        self.draining = true;
        for record in self.disk.records.values_mut() {
            // Whoever drains a node means the pods that outlived their DaemonSet too.
            if record.instances.iter().any(|i| i.orphaned) {
                record.instances.iter_mut().for_each(|i| i.orphaned = false);
                self.disk.unsaved.insert(record.key.clone());
            }
        }
        let until = tokio::time::Instant::now() + patience;
        self.pass().await;
        let found = self.remaining();
        self.start_api();
        let mut changed = self.api.as_ref().map(|api| api.store().changed());
        loop {
            let left = self.remaining();
            let problems = self.problems.clone();
            if (left.is_empty() && self.disk.manifests.is_some()) || tokio::time::Instant::now() >= until {
                return Drain { node: self.config.node_name.clone(), found, left, problems };
            }
            let next = self.next_wake();
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = api_change(&mut changed) => {}
                () = self.wake.notified() => {}
                Some(answer) = self.answered.recv() => self.take_answer(answer),
                () = sleep_until(next) => {}
            }
            self.pass().await;
        }
    }

    /// The pods that still run or whose folders are still there.
    fn remaining(&self) -> Vec<Draining> {
        let failure = |key: &ObjectKey| self.failures.get(key).map(|failure| failure.message.clone());
        let summary = |key: &ObjectKey| {
            let plan = self.plan.daemons.iter().find(|daemon| daemon.key == *key);
            plan.map(|daemon| daemon.summary.reason.clone()).filter(|reason| !reason.is_empty())
        };
        let of_record = |record: &'_ crate::core::record::DaemonRecord| {
            let instances = record.instances.iter().map(|instance| Draining {
                daemon: record.key.clone(),
                pod: instance.pod_name.clone(),
                uid: instance.uid.clone(),
                what: failure(&record.key).or_else(|| summary(&record.key)).unwrap_or_else(|| match &instance.phase {
                    Phase::Live => "its manifest is still there".to_owned(),
                    Phase::Ending { .. } => "it ends".to_owned(),
                }),
            });
            let ended = record.ended.keys().map(|uid| cleared(&record.key, uid));
            instances.chain(ended).collect::<Vec<_>>()
        };
        self.disk.records.values().flat_map(of_record).collect()
    }
}
