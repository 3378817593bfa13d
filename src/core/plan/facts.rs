//! What planning asks about the world: a trait that the shell implements, and the types of the answers.
//!
//! Owns the questions. Must not answer any.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Hint;
use super::image_reason::ImageReason;
use super::unseen::ShownNothing;
use super::unseen::Unobservable;
use super::unseen::Unready;
use super::unseen::Unseen;
use crate::core::cluster::released::Released;
use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::local_failure::LocalFailure;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::placement::NamespaceSelector;
use crate::core::policy::Admission;
use crate::core::ports::HostPort;
use crate::core::record::AcceptanceConditions;
use crate::core::record::EndConfirmation;
use crate::core::record::Failure;
use crate::core::record::Fingerprint;
use crate::core::record::HandOver;
use crate::core::record::Instance;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

/// What the manifest folder holds for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFact<'a> {
    /// No file of this instance.
    Missing,
    /// Its file was lost with the disk and not removed.
    Lost,
    /// Its file, with the SHA-256 of the bytes.
    Present(&'a str),
}

/// How volume data on disk compares with a rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumesFact {
    /// It is the same.
    Current,
    /// It was the same when it was written, by an earlier process.
    Unverified,
    Differ,
}

/// Whether anything of an instance still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Confirmed: nothing of it runs.
    Gone,
    /// Its sandbox is there.
    Running,
    Unknown(Unseen),
}

/// Whether it can be observed that an instance has ended, if it ends now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndObservable {
    /// It can, or need not be; what confirms it.
    By(EndConfirmation),
    /// The container runtime has to be asked first.
    AskRuntime,
    /// It cannot.
    No(Unobservable),
}

/// Which pass of the boot or process this is, for an instance that has a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassPhase {
    /// The first pass of a boot: neither a kubelet nor anything of the instance has run.
    BeforeKubelet,
    /// The first pass of a process; gates that an earlier process of this boot left closed are opened.
    First,
    Later,
}

/// Whether an instance is ready to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready {
        /// Since when.
        since: Timestamp,
    },
    /// Readiness is not reported; all its containers have run since then.
    Steady {
        /// When the most recent of them was started.
        since: Timestamp,
    },
    NotReady(Unready),
    Unknown(Unseen),
}

/// Which data an instance is rendered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Data {
    /// What ConfigMaps and Secrets contain now.
    Current,
    /// The rollback data of the daemon's good revision ([`Action::Keep`]).
    Rollback,
    /// Only its tokens, while its template is held back because of its cost.
    TokensAlone,
}

/// Whether the kubelet has accepted an instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Accepted {
    /// Yes: a sandbox or its mirror pod was seen.
    Yes,
    /// Not yet, and the time bound has not passed.
    NotYet,
    /// Rejected at admission: the kubelet's reason.
    Rejected(String),
    /// Rejected because the node has no room for it: the kubelet's reason. The kubelet never starts it.
    NoRoom(String),
    /// No: the kubelet, which works, has shown nothing of its manifest within the bound.
    No(ShownNothing),
    /// Unknown, or the kubelet is down.
    Unknown(Unseen),
}

/// What the kubelet's admission of an instance depends on besides the pod. Both are of the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprints<'a> {
    /// When the kubelet was given the instance.
    pub then: &'a Fingerprint,
    pub now: &'a Fingerprint,
}

impl Fingerprints<'_> {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { then: &Fingerprint::Unknown, now: &Fingerprint::Unknown };
}

/// Whether the images of a rendering are on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// They are, or only the kubelet can pull them.
    Present,
    /// They are being pulled.
    Pulling(ImageReason),
    /// The instance starts without them: nothing here can pull them, or the kubelet does it.
    Handed(ImageReason),
    /// One cannot be pulled, and is retried.
    Failed(ImageReason),
}

/// Whether an instance may be replaced by one of the wanted revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// No coordinator: each node by itself, after its delay (`update-jitter`).
    Free,
    /// The coordinator approved it; the agent must claim the approval first.
    Approved,
    /// The same, and it is claimed only once its trigger comes.
    Standing(UpdateTrigger),
    /// Such an approval is claimed for the next boot.
    Staged,
    /// The approval is claimed.
    Claimed,
    /// It waits.
    Withheld(Withheld),
}

/// Why a changed template waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The coordinator has not approved it.
    NotApproved,
    /// The approval has not been read yet.
    NotRead,
    /// Nothing withholds it but the trigger that its owner wrote.
    Until(UpdateTrigger),
    /// The cluster's NodeDaemons, with the approvals, are not served or cannot be read.
    NotServed,
    /// The cluster's NodeDaemons drop which overlays apply, so that no coordinator can approve them.
    OlderResource,
    /// It cannot be read whether the coordinator that approved it still holds the Lease.
    LeaseNotRead,
    /// Its approval names no Lease, though others did: it is not known whether its coordinator still holds it.
    NoLease,
    /// People have paused it.
    Paused,
    /// Its rollout is halted, or people have taken it back.
    Halted,
    /// No coordinator was ever seen, and its first instance waits for one.
    NoCoordinator,
}

impl Withheld {
    pub fn words(self) -> &'static str {
        match self {
            Self::NotApproved => "the coordinator has not approved it for this node yet",
            Self::NotRead => "it has not been read yet whether the coordinator has approved it for this node",
            Self::Until(trigger) => trigger.words(),
            Self::NotServed => {
                "the API server does not serve NodeDaemons, which hold the coordinator's approvals, or they cannot be read"
            }
            Self::OlderResource => {
                "the NodeDaemons in the cluster are older than this agent and drop which overlays apply to this node, so \
                 that no coordinator can approve them"
            }
            Self::LeaseNotRead => {
                "it is approved, and the coordinator's Lease cannot be read, as it is before each change"
            }
            Self::NoLease => {
                "its approval does not name the coordinator's Lease, as others have: who gave it may not coordinate any more"
            }
            Self::Paused => "the annotation daemonlet.dev/paused holds it",
            Self::Halted => "its rollout is halted or aborted; `kubectl daemonlet retry` lets it go on",
            Self::NoCoordinator => "the cluster has no NodeDaemons, which hold the coordinator's approvals",
        }
    }

    /// What to do about it, if the rollout does not go on by itself and the text does not say it.
    pub fn hint(self) -> Option<Hint> {
        match self {
            Self::NotServed => Some(Hint::ServeNodeDaemons),
            Self::OlderResource => Some(Hint::UpdateNodeDaemons),
            Self::NoLease => Some(Hint::UpdateCoordinator),
            Self::NoCoordinator => Some(Hint::InstallCoordinator),
            Self::NotApproved | Self::NotRead | Self::Until(_) | Self::LeaseNotRead | Self::Paused | Self::Halted => {
                None
            }
        }
    }
}

/// A released revision as the API has it.
#[derive(Clone, Debug, PartialEq)]
pub enum ReleasedDefinition {
    /// The DaemonSet with its template.
    Known(Arc<DaemonSet>),
    /// Nothing is known of its ControllerRevision yet.
    Unknown,
    /// Its ControllerRevision does not exist, or holds something else.
    Gone,
}

/// A pod of the DaemonSet controller that has this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockPod {
    pub name: String,
    pub uid: String,
    pub ready: bool,
    /// Whether any of its containers has run: its images are here.
    pub runs: bool,
    /// If the scheduler could not bind it.
    pub unbound: Option<Unbound>,
}

/// Why the scheduler could not bind a pod that is for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// The scheduler's own words.
    pub message: String,
    /// Whether that may end with the instance, which is here in its place.
    pub may_end_with_instance: bool,
}

/// What is known of the DaemonSet controller's pod for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stock {
    /// It is bound to this node, or for this node and unschedulable.
    Here(StockPod),
    /// The API server answers and has none.
    Absent,
    /// The API server answers, but the pods of this node cannot be read, or have not been listed yet.
    Unlisted,
    /// No API server answers; whether anything of the pod that took over runs.
    Lost(Evidence),
}

/// What the shell has observed, and what it can compute without side effects. No method has a default: a missing answer
/// must not permit anything.
pub trait Facts {
    /// Renders (cached) `incarnation` of a DaemonSet.
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, data: Data) -> Arc<RenderResult>;
    /// The hash of the revision that a DaemonSet defines (cached).
    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String;
    /// The instance's manifest in the folder.
    fn manifest(&self, uid: &str) -> ManifestFact<'_>;
    /// Why the manifests in the folder cannot be read, if so: then nothing starts and nothing ends.
    fn unreadable_manifests(&self) -> Option<&LocalFailure>;
    /// How the data on disk compares with what `rendering` says, but for the volumes `kept`.
    fn volumes(&self, rendering: &RenderResult, kept: &BTreeSet<String>) -> VolumesFact;
    /// Whether something of the daemon may run that no record knows: the container runtime has to be asked first, at that
    /// time.
    fn may_run_unrecorded(&self) -> Option<Timestamp>;
    /// The volumes of the instance that have no data on this disk, if the kubelet, which does not run yet, would start it so.
    fn empty_volumes(&self, instance: &Instance) -> Option<&BTreeSet<String>>;
    /// Why the disk takes no data for them, if so.
    fn unwritable_volumes(&self) -> Option<&LocalFailure>;
    /// Whether anything of the instance still runs.
    fn sandbox(&self, instance: &Instance) -> Evidence;
    /// The name that the node had when the instance was made, if it has another now.
    fn former_node(&self, instance: &Instance) -> Option<&str>;
    /// Which pass of the boot or process this is, for the instance.
    fn moment(&self, instance: &Instance) -> PassPhase;
    /// Whether it can be observed that the instance has ended, if it ends now.
    fn end_observable(&self, instance: &Instance) -> EndObservable;
    /// Whether the instance's pod is ready, whatever the Node is: a Node without a pod network is not ready, and what
    /// makes that network may start after others.
    fn pod_readiness(&self, instance: &Instance) -> Readiness;
    /// Whether the instance is ready.
    fn readiness(&self, instance: &Instance) -> Readiness;
    /// The DaemonSet controller's pod for this daemon on this node; `known`: the one that took over.
    fn stock(&self, daemon_set: &DaemonSet, known: Option<&HandOver>) -> Stock;
    /// Until when the API server is waited for before a first instance starts beside a kubelet that may run the DaemonSet
    /// controller's pod; `None`: it is not, or not any more.
    fn stock_awaited_until(&self) -> Option<Timestamp>;
    /// The optional objects that `rendering` is without only because the API server, which is being asked, has not answered yet.
    fn unanswered(&self, rendering: &RenderResult) -> Vec<Missing>;
    /// Whether the kubelet has accepted the instance.
    fn accepted(&self, instance: &Instance) -> Accepted;
    /// Why the instance is not available, if that is known.
    fn failure(&self, instance: &Instance) -> Option<Failure>;
    /// Whether the images for `rendering` are on the node; `replaces`: an instance ends for it.
    fn images(&self, rendering: &RenderResult, replaces: bool) -> Images;
    /// Host ports of other daemons' instances on this node, with their daemons; `only_desired`: only those that they
    /// will still use once they follow their definitions.
    fn held_ports(&self, key: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)>;
    /// Whether the instance of an API DaemonSet may be replaced by one of `revision`.
    fn permission(&self, daemon_set: &DaemonSet, revision: &str) -> Permission;
    /// Whether an API DaemonSet changes only by a coordinator's approval.
    fn is_coordinated(&self, daemon_set: &DaemonSet) -> bool;
    /// Whether its owner, or the configuration, lets each node change by itself.
    fn coordination_is_off(&self, daemon_set: &DaemonSet) -> bool;
    /// `daemon_set` with the template of its released revision (cached).
    fn released(&self, daemon_set: &Arc<DaemonSet>, released: &Released) -> ReleasedDefinition;
    /// The revision that the coordinator has approved for this node, if any.
    fn approved(&self, daemon_set: &DaemonSet) -> Option<String>;
    /// Whether the definition is the remembered one of the API: no API server has shown DaemonSets to this process.
    fn is_remembered(&self, daemon_set: &DaemonSet) -> bool;
    /// What the kubelet's admission of an instance depends on besides the pod; when it changes, a rejected instance is
    /// retried at once.
    fn surroundings(&self, instance: &Instance) -> Fingerprints<'_>;
    /// What decides whether the kubelet takes a manifest, beside the manifest.
    fn acceptance_conditions(&self) -> AcceptanceConditions;
    /// Whether a new instance of a DaemonSet may start, by policy and by what its namespace enforces.
    fn admission(&self, daemon_set: &Arc<DaemonSet>) -> Admission;
    /// Whether annotations of a DaemonSet about other daemons take precedence over those of tenants.
    fn trusts_annotations(&self, daemon_set: &DaemonSet) -> bool;
    /// Until when the Node may lack labels that it gets from others once it is registered; `None`: it has all.
    fn lacks_labels_until(&self) -> Option<Timestamp>;
    /// When a Node with another UID than the one before was first seen.
    fn node_since(&self) -> Option<Timestamp>;
    /// The node selector of a DaemonSet's namespace.
    fn namespace_selector(&self, daemon_set: &DaemonSet) -> Option<NamespaceSelector>;
    /// Whether new instances' pods are dry-run at the API server (`policy.admission`).
    fn asks_admission(&self) -> bool;
    /// The state of the dry run for the pod of `incarnation` of a DaemonSet; only if [`Facts::asks_admission`].
    fn admission_dry_run(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64) -> (Question, RequestState);
    /// Whether the instance's mirror pod has yet to be deleted, and a successor waits for that.
    fn mirror_pod_deletion_pending(&self, instance: &Instance) -> bool;
}
