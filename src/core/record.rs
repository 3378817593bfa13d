//! What a node remembers of a daemon: its instances, each with its revision, and the incarnation counter.
//!
//! Owns the record on disk (`state-dir`). Its invariants:
//! * `next_incarnation` is above every number ever used here, so the pod UID of a removed manifest is never used
//!   again;
//! * it is saved before a manifest is removed, so a crash in between cannot reuse a UID;
//! * an instance keeps the DaemonSet it was rendered from until it ends, so an old revision can be rendered beside a
//!   new one.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::rendering::RenderResult;
use crate::core::time::Timestamp;

mod answer;
mod fingerprint;
mod forget;
mod hand_over;
mod noted;
mod order;
mod phase;
mod progress;
mod this_boot;
mod times;

pub use answer::AdmissionAnswer;
pub use answer::AdmissionVerdict;
pub use fingerprint::Fingerprint;
pub use forget::Forgotten;
pub use forget::MAX_BARE;
pub use forget::forget;
pub use hand_over::FailedHandOver;
pub use hand_over::HandOver;
pub use noted::Mirror;
pub use noted::Noted;
pub use noted::NotedEvent;
pub use order::MAX_BACKOFF;
pub use order::RestartCause;
pub use order::RestartOrder;
pub use order::RetryBackoff;
pub use phase::EndConfirmation;
pub use phase::Phase;
pub use progress::AcceptanceConditions;
pub use progress::AcceptedRevision;
pub use progress::Cause;
pub use progress::DataCandidate;
pub use progress::FailedRevision;
pub use progress::Failure;
pub use progress::Good;
pub use progress::KnownRelease;
pub use progress::LastRun;
pub use progress::Progress;
pub use progress::Retried;
pub use this_boot::ThisBoot;

/// Everything this node remembers of one daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonRecord {
    /// The DaemonSet's namespace and name.
    pub key: ObjectKey,
    /// The number that the next instance gets.
    pub next_incarnation: u64,
    /// What runs or still ends here, oldest first.
    pub instances: Vec<Instance>,
    /// Instances that have ended and whose folders are not cleared yet: UID, and when they ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<String, Timestamp>,
    /// The DaemonSet's UID in the API, once it was seen there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_uid: Option<String>,
    /// Fingerprint of the folder's file when the API's DaemonSet was deleted: the file is ignored until it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_file: Option<String>,
    /// The hand-over of a `bootstrap` instance to the DaemonSet controller's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<HandOver>,
    /// The last hand-over that did not help the DaemonSet controller's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_hand_over: Option<FailedHandOver>,
    /// The revision that waits for `update-jitter`, and since when it is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_update: Option<PendingUpdate>,
    /// What a roll-back returns to: the last revision that was available here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<Good>,
    /// The last revision of which the kubelet accepted an instance here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedRevision>,
    /// The wanted revision, if none of its instances became available in time, or the kubelet did not accept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRevision>,
    /// Since when the wanted revision is tried, over all its instances: its deadline counts from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The revision that an administrator asked to try here now; it needs no permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
    /// The revision that replaces what runs at the next boot: its approval is claimed, and its images were here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// The images of that revision's pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub staged_images: Vec<String>,
    /// The last order of the cluster to try a revision again (`daemonlet.dev/retry`) that was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// What last ran here and ended without being replaced by a new revision: it returns while the wanted revision is
    /// not permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRun>,
    /// Whether all instances have ended, the last of them to return: none has begun since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// The revision that ran here before the wanted one: a withdrawn rollout returns to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<LastRun>,
    /// The API server's last answer about the pod of a new instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AdmissionAnswer>,
    /// How often in a row an instance had to be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<RetryBackoff>,
    /// The revision that the kubelet itself last reported as rejected: it has read the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// The revision that the DaemonSet last said to be released: it counts while its status says nothing of that, as after
    /// its mode was taken away and put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_release: Option<KnownRelease>,
    /// Since when a first instance waits only for objects that no source has shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed_since: Option<Timestamp>,
    /// What has happened to it since the node booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub this_boot: Option<ThisBoot>,
    /// Whether it was last run in mode `bootstrap`: what is held goes on in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bootstrap: bool,
    /// Whether an administrator has released it: it ends although its absence is not certain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

/// A template change that has been seen but not yet rolled out here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingUpdate {
    /// Hash of the wanted revision.
    pub revision: String,
    /// When it was first wanted.
    pub since: Timestamp,
}

/// One incarnation of a daemon on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The pod UID, pinned in the manifest.
    pub uid: String,
    /// The pod's name without the node's.
    pub pod_name: String,
    /// Its incarnation number.
    pub incarnation: u64,
    /// The name of the node that the UID contains. `None`: it was made before names were noted, or its template is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The hash of its revision.
    pub revision: String,
    /// The DaemonSet at the time when the instance was made, with its revision. `None` for an adopted instance whose
    /// template is unknown.
    #[serde(default)]
    pub daemon_set: Option<Arc<DaemonSet>>,
    /// Version of the data it was made with (compared for `restart-on: config`).
    pub data_version: String,
    /// The volume data that was last written for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<WrittenData>,
    /// When its manifest was first written; of one that was adopted, when that was.
    pub created: Timestamp,
    /// Whether its manifest was found without a record of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_adopted: bool,
    /// Its phase of life.
    pub phase: Phase,
    /// Its mirror pod as last seen. It survives a restart of the agent, so events during the restart count too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// An event on its mirror pod that has not been judged yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<Noted>,
    /// Whether a sandbox of it has ever been seen.
    #[serde(default)]
    pub started: bool,
    /// Whether the container runtime, or the kubelet in its place, has listed it: then it is the kubelet's own runtime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    /// Set when the DaemonSet was deleted and its pods were to stay (orphan).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// When it first was available: ready for `minReadySeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Timestamp>,
    /// The order to replace it with a new incarnation, at the revision permitted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartOrder>,
    /// Parts that keep their last data because of something missing or refused, by volume (see [`crate::core::status::StaleVolume`]), and
    /// since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stale: BTreeMap<String, Timestamp>,
    /// Containers that the kubelet has not been given the environment of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub waiting: BTreeSet<String>,
    /// Whether the kubelet, which worked, did not accept its manifest: nothing of it has run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_accepted: bool,
    /// Whether the kubelet rejected it for want of room: nothing of it has run, and nothing of it will.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_room: bool,
    /// Whether it runs with the rollback data of the good revision instead of the current data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// Volume data as it was last written: a new agent compares with it before it reads the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenData {
    /// Digest of all of it.
    pub digest: String,
    /// The volumes that have data.
    pub volumes: Vec<String>,
}

impl WrittenData {
    /// The data of a rendering, but for the volumes that keep what they have.
    pub fn of(rendering: &RenderResult, kept: &BTreeSet<String>) -> Self {
        let names = rendering.volumes().iter().map(|volume| &volume.name);
        Self {
            digest: rendering.data.without(kept),
            volumes: names.filter(|name| !kept.contains(*name)).cloned().collect(),
        }
    }
}

impl Instance {
    /// A new instance, before its manifest is written.
    pub fn new(uid: &str, pod_name: &str, incarnation: u64, revision: &str, created: Timestamp) -> Self {
        Self {
            uid: uid.to_owned(),
            pod_name: pod_name.to_owned(),
            incarnation,
            node_name: None,
            revision: revision.to_owned(),
            daemon_set: None,
            data_version: String::new(),
            data: None,
            created,
            is_adopted: false,
            phase: Phase::Live,
            mirror: None,
            noted: None,
            started: false,
            listed: false,
            orphaned: false,
            available: None,
            restart: None,
            stale: BTreeMap::new(),
            waiting: BTreeSet::new(),
            not_accepted: false,
            no_room: false,
            pinned: false,
        }
    }
}

impl DaemonRecord {
    /// An empty record. `floor`: where a name without a record starts ([`forget`]).
    pub fn new(key: ObjectKey, floor: u64) -> Self {
        Self {
            key,
            next_incarnation: floor,
            instances: Vec::new(),
            ended: BTreeMap::new(),
            api_uid: None,
            ignored_file: None,
            hand_over: None,
            failed_hand_over: None,
            pending_update: None,
            good: None,
            accepted: None,
            failed: None,
            progress: None,
            by_hand: None,
            staged: None,
            staged_images: Vec::new(),
            retry: None,
            last: None,
            returns: false,
            previous: None,
            answer: None,
            backoff: None,
            rejected: None,
            known_release: None,
            unconfirmed_since: None,
            this_boot: None,
            bootstrap: false,
            released: false,
        }
    }

    /// Whether an instance runs, or one has ended to return.
    pub fn runs(&self) -> bool {
        self.staying().next().is_some()
    }

    /// The instances that run or end to return, oldest first.
    pub fn staying(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|i| matches!(i.phase, Phase::Live | Phase::Ending { returns: true, .. }))
    }

    /// Whether there is an instance, of which something may run, or one is to return.
    pub fn runs_or_returns(&self) -> bool {
        !self.instances.is_empty() || self.has_ended_to_return()
    }

    /// Whether nothing runs, and the last instance has ended to return.
    pub fn has_ended_to_return(&self) -> bool {
        let has_ended = self.instances.is_empty() && (self.returns || self.last.is_some());
        self.live().next().is_none() && (self.runs() || has_ended)
    }

    /// The definition of the newest instance that runs, or else is to return, or else of what last ran and is to return.
    pub fn definition(&self) -> Option<&Arc<DaemonSet>> {
        let mut newest = self.instances.iter().rev();
        let of_it = |i: &&Instance| i.daemon_set.as_ref().is_some_and(|d| d.key == self.key);
        let live = newest.clone().filter(of_it).find(|i| i.phase == Phase::Live);
        let of_instance = live.or_else(|| newest.find(of_it)).and_then(|instance| instance.daemon_set.as_ref());
        of_instance.or_else(|| Some(&self.last.as_ref()?.daemon_set))
    }

    /// The instances whose manifests should be in the folder.
    pub fn live(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|i| i.phase == Phase::Live)
    }

    /// The instances that are ending.
    pub fn ending(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|i| i.phase != Phase::Live)
    }

    pub fn instance(&self, uid: &str) -> Option<&Instance> {
        self.instances.iter().find(|i| i.uid == uid)
    }

    /// A sandbox of `uid` was seen.
    pub fn mark_started(&mut self, uid: &str) {
        self.instances.iter_mut().filter(|instance| instance.uid == uid).for_each(|instance| instance.started = true);
    }

    /// Marks `uid` as ending in the way that `phase` says, and retires its number.
    pub fn end(&mut self, uid: &str, phase: &Phase) {
        for instance in &mut self.instances {
            if instance.uid == uid && instance.phase == Phase::Live {
                instance.phase = phase.clone();
                self.next_incarnation = self.next_incarnation.max(instance.incarnation.saturating_add(1));
                if let Some(good) = self.good.as_mut().filter(|g| g.revision == instance.revision) {
                    // Its definition outlives it: a roll-back needs it.
                    good.daemon_set = instance.daemon_set.clone().or(good.daemon_set.take());
                }
                if let Some(accepted) = self.accepted.as_mut().filter(|a| a.revision == instance.revision) {
                    accepted.daemon_set = instance.daemon_set.clone().or(accepted.daemon_set.take());
                }
            }
        }
    }

    /// Whether nothing in it is worth keeping: no instance, and no number above `floor` to protect.
    pub fn is_empty(&self, floor: u64) -> bool {
        self.instances.is_empty()
            && self.next_incarnation <= floor
            && self.ignored_file.is_none()
            && self.hand_over.is_none()
            && self.answer.is_none()
            && self.this_boot.is_none()
    }
}
