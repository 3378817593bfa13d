//! Taking everything of ours off the node: the agent's own passes with nothing wanted any more.
//!
//! The passes do all that an end needs: the number is on the disk before the manifest goes, the runtime says that the
//! sandbox is gone, the folder is cleared. So the next teardown completes one that was interrupted, and an agent that starts
//! undoes it. Must not touch what is not ours.

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::record::DaemonRecord;
use crate::core::record::Phase;
use crate::core::status::Problem;

use super::last_pass::LastPass;
use super::outcome::EffectOutcome;
use super::state::AgentState;

/// What a teardown found, and what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teardown {
    pub node: String,
    /// The pods that were on the node.
    pub found: Vec<Leftover>,
    /// Those of them that still are; empty: nothing is left.
    pub left: Vec<Leftover>,
    /// Why the taint of a node that waits for its daemons, or conditions, may be left on the Node.
    pub on_node: Vec<Problem>,
    /// What went wrong beside single pods.
    pub problems: Vec<Problem>,
}

/// One pod of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its DaemonSet.
    pub daemon: ObjectKey,
    /// Its name, without the node's; empty where that is not known any more.
    pub pod: String,
    pub uid: String,
    /// What it does, for people.
    pub what: String,
}

pub(super) fn cleared(daemon: &ObjectKey, uid: &str) -> Leftover {
    let what = "has ended, and its folder is to be cleared".to_owned();
    Leftover { daemon: daemon.clone(), pod: String::new(), uid: uid.to_owned(), what }
}

/// Whether nothing of ours runs on the node any more, as far as the manifest folder tells.
pub(super) fn is_done(state: &AgentState, last: &LastPass) -> bool {
    remaining(state, &last.plan, &last.outcome).is_empty() && last.observation.manifests.current().is_some()
}

/// The pods that still run or whose folders are still there.
pub(super) fn remaining(state: &AgentState, plan: &Plan, outcome: &EffectOutcome) -> Vec<Leftover> {
    let failure = |key: &ObjectKey| outcome.failures.get(key).map(|failure| failure.message.clone());
    let summary = |key: &ObjectKey| {
        let plan = plan.daemons.iter().find(|daemon| daemon.key == *key);
        plan.map(|daemon| daemon.summary.reason.clone()).filter(|reason| !reason.is_empty())
    };
    let of_record = |record: &'_ DaemonRecord| {
        let instances = record.instances.iter().map(|instance| Leftover {
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
    state.records.values().flat_map(of_record).collect()
}
