//! Removes everything of ours from the node: ordinary passes of the agent that want no daemon.
//!
//! The passes do all that an end needs: the number is on the disk before the manifest goes, the runtime says that the
//! sandbox is gone, the folder is cleared. So the next teardown completes one that was interrupted, and an agent that starts
//! undoes it. Must not touch what is not ours.

use crate::core::manifest;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::status::Problem;
use crate::node::manifests::Scan;

use super::last_pass::LastPass;
use super::outcome::EffectOutcome;
use super::state::AgentState;

/// The findings of a teardown, and what is left of them.
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
    /// Whether the manifest folder cannot be read: then what is found need not be all.
    pub is_unread: bool,
}

impl Teardown {
    /// Whether nothing of ours is known to be left.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.on_node.is_empty() && !self.is_unread
    }
}

/// One pod of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its DaemonSet.
    pub daemon: ObjectKey,
    /// Its name, without the node's; empty where that is not known any more.
    pub pod: String,
    pub uid: String,
    /// The name of its manifest; `None`: it is not there, or that is not looked at.
    pub manifest: Option<String>,
    /// What it does, for people.
    pub what: String,
}

pub(super) fn leftover(daemon: &ObjectKey, instance: &Instance) -> Leftover {
    let (pod, uid) = (instance.pod_name.clone(), instance.uid.clone());
    Leftover { daemon: daemon.clone(), pod, uid, manifest: None, what: "runs".to_owned() }
}

pub(super) fn cleared(daemon: &ObjectKey, uid: &str) -> Leftover {
    let what = "has ended, and its folder is to be cleared".to_owned();
    Leftover { daemon: daemon.clone(), pod: String::new(), uid: uid.to_owned(), manifest: None, what }
}

/// The name of the manifest of an instance; `scan`: the folder, `None` if it cannot be read and the file may be there.
pub(super) fn manifest_of(daemon: &ObjectKey, instance: &Instance, scan: Option<&Scan>) -> Option<String> {
    let name = manifest::file_name(&daemon.namespace, &instance.pod_name);
    let Some(scan) = scan else { return Some(name) };
    let of_uid = scan.ours.values().find(|manifest| manifest.uid == instance.uid).map(|found| found.file.clone());
    let is_there = |name: &String| scan.ours.contains_key(name) || scan.unreadable.contains_key(name);
    of_uid.or_else(|| scan.foreign.get(&instance.uid).cloned()).or_else(|| Some(name).filter(is_there))
}

/// Whether nothing of ours runs on the node any more, as far as the manifest folder tells.
pub(super) fn is_done(state: &AgentState, last: &LastPass) -> bool {
    remaining(state, &last.plan, &last.outcome).is_empty() && last.observation.manifests.current().is_some()
}

/// The pods that still run or whose folders are still there.
pub(super) fn remaining(state: &AgentState, plan: &Plan, outcome: &EffectOutcome) -> Vec<Leftover> {
    let failure = |key: &ObjectKey| outcome.failures.get(key).map(|failure| failure.cause.to_string());
    let summary = |key: &ObjectKey| {
        let plan = plan.daemons.iter().find(|daemon| daemon.key == *key);
        plan.map(|daemon| &daemon.summary.reasons).filter(|reasons| !reasons.is_empty()).map(ToString::to_string)
    };
    let of_record = |record: &'_ DaemonRecord| {
        // The reason of a daemon is about one of its pods.
        let of_daemon = || summary(&record.key).filter(|_| record.instances.len() == 1);
        let instances = record.instances.iter().map(|instance| Leftover {
            what: failure(&record.key).or_else(of_daemon).unwrap_or_else(|| match &instance.phase {
                Phase::Live => "its manifest is still there".to_owned(),
                Phase::Ending { reason, .. } => format!("it ends: {reason}"),
            }),
            ..leftover(&record.key, instance)
        });
        let ended = record.ended.keys().map(|uid| cleared(&record.key, uid));
        instances.chain(ended).collect::<Vec<_>>()
    };
    state.records.values().flat_map(of_record).collect()
}
