//! What planning asks of the world: a trait that the shell answers, and the words of the answers.
//!
//! Owns the questions. Must not answer any.

use std::sync::Arc;

use crate::core::dry_run::DryRunAnswer;
use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::dry_run::Unanswered;
use crate::core::model::DaemonSet;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::placement::NamespaceSelector;
use crate::core::policy::Admission;
use crate::core::ports::HostPort;
use crate::core::record::Failure;
use crate::core::record::HandOver;
use crate::core::record::Instance;
use crate::core::rendering::RenderResult;
use crate::core::time::Timestamp;

/// What the manifest folder holds for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFact<'a> {
    /// No file of this instance.
    Missing,
    /// Its file, with the SHA-256 of the bytes.
    Present(&'a str),
}

/// Whether anything of an instance still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Trusted: nothing of it runs.
    Gone,
    /// Its sandbox is there.
    Running,
    /// Nothing can be said; why.
    Unknown(String),
}

/// Whether an instance is ready to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Ready.
    Ready {
        /// Since when.
        since: Timestamp,
    },
    /// Nobody tells, and all its containers have run since then.
    Steady {
        /// When the youngest of them was made.
        since: Timestamp,
    },
    /// Not ready; the reason as the kubelet gives it.
    NotReady(String),
    /// Nobody can say; why.
    Unknown(String),
}

/// Which data an instance is rendered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    /// What ConfigMaps and Secrets hold now.
    Current,
    /// What was kept of the daemon's good revision ([`Action::Keep`]).
    Rollback,
}

/// Whether the kubelet has taken an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It has: a sandbox was seen, or its mirror pod.
    Yes,
    /// It has not said so, and its time is not over.
    NotYet,
    /// It has not, and will not: rejected at admission, or no sandbox within the bound although the
    /// kubelet is at work. The kubelet's words, or ours.
    No(String),
    /// Nobody can say, or the kubelet itself is away; why.
    Unknown(String),
}

/// Whether the images of a rendering are on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// They are, or nothing has to be pulled before the kubelet does it.
    Present,
    /// They are being pulled; how far, for people.
    Pulling(String),
    /// It goes on without: nobody can pull here, or pulling is the kubelet's; the risk, for people.
    Handed(String),
    /// One cannot be pulled; it is tried again. The runtime's words.
    Failed(String),
}

/// Whether an instance may be replaced by one of the wanted revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nobody coordinates: each node by itself, after its delay (`update-jitter`).
    Free,
    /// The coordinator approves; the agent has to claim that first.
    Approved,
    /// The approval is claimed.
    Claimed,
    /// Not yet; why.
    Withheld(String),
}

/// A pod of the stock controller that has this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether anything of it has run: its images are here.
    pub runs: bool,
}

/// What is known of the stock controller's pod for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stock {
    /// It is bound to this node, or the scheduler could not bind it while the instance is here.
    Here(StockPod),
    /// The API server answers and has none.
    Absent,
    /// The API server answers and has not told the pods of this node yet.
    Unlisted,
    /// No API server answers: whether anything of the pod that was handed over to runs.
    Lost(Evidence),
}

/// What the shell has observed, and what it can compute without effects.
pub trait Facts {
    /// Renders (cached) `incarnation` of a DaemonSet.
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, data: Data) -> Arc<RenderResult>;
    /// The hash of the revision that a DaemonSet defines (cached).
    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String;
    /// The instance's manifest in the folder.
    fn manifest(&self, uid: &str) -> ManifestFact<'_>;
    /// Whether the data on disk is what `rendering` says.
    fn volumes_current(&self, rendering: &RenderResult) -> bool;
    /// Whether anything of the instance still runs.
    fn sandbox(&self, instance: &Instance) -> Evidence;
    /// Whether the instance is ready.
    fn readiness(&self, instance: &Instance) -> Readiness;
    /// The stock controller's pod for this daemon on this node; `known`: the one that was handed over to.
    fn stock(&self, daemon_set: &DaemonSet, known: Option<&HandOver>) -> Stock;
    /// Whether the kubelet has taken the instance.
    fn accepted(&self, instance: &Instance) -> Accepted;
    /// Why the instance is not available, if somebody knows.
    fn failure(&self, instance: &Instance) -> Option<Failure>;
    /// Whether the images for `rendering` are on the node; `replaces`: an instance ends for it.
    fn images(&self, rendering: &RenderResult, replaces: bool) -> Images;
    /// Host ports of instances of other daemons than `key` on this node, with whose they are; `only_desired`: only
    /// those that they will still have when they have followed their definitions.
    fn held_ports(&self, key: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)>;
    /// Whether the instance of an API DaemonSet may be replaced by one of `revision`.
    fn permission(&self, daemon_set: &DaemonSet, revision: &str) -> Permission;
    /// The revision that `daemon_set` may be replaced by here, if the cluster says so.
    fn approved(&self, daemon_set: &DaemonSet) -> Option<&str> {
        let _ = daemon_set;
        None
    }
    /// A fingerprint of what the kubelet's admission depends on beside the pod: when it changes, what
    /// was rejected is tried again at once.
    fn surroundings(&self) -> &str;
    /// Whether a new instance of a DaemonSet may start, by policy and by what its namespace enforces.
    fn admission(&self, daemon_set: &DaemonSet) -> Admission {
        let _ = daemon_set;
        Admission::FREE
    }
    /// The node selector of a DaemonSet's namespace.
    fn namespace_selector(&self, daemon_set: &DaemonSet) -> Option<NamespaceSelector> {
        let _ = daemon_set;
        None
    }
    /// Whether the API server is asked about the pod of each new instance (`policy.admission`).
    fn asks_admission(&self) -> bool {
        false
    }
    /// Where the question about the pod of `incarnation` of a DaemonSet stands; only while
    /// [`Facts::asks_admission`].
    fn admission_dry_run(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64) -> (Question, RequestState) {
        let question = Question::new(daemon_set, &self.revision(daemon_set), "", incarnation, Lookup::Unknown);
        let answer = DryRunAnswer::Unanswered(Unanswered::passing("nobody is asked"));
        (question, RequestState { answer, due: false, again: None })
    }
    /// Whether the API has yet to be told that an instance ends, and a successor waits for that.
    fn mirror_pod_deletion_pending(&self, instance: &Instance) -> bool {
        let _ = instance;
        false
    }
}
