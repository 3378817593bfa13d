//! Why a daemon is in its state, and why an action is planned.
//!
//! Owns the texts. Must not decide anything.

use crate::core::local_failure::LocalFailure;
use crate::core::model::AFTER;
use crate::core::model::AFTER_TIMEOUT;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::joined;
use crate::core::placement::Misfit;
use crate::core::ports::HostPort;
use crate::core::record::Failure;
use crate::core::record::RestartCause;
use crate::core::render::Missing;
use crate::core::set_aside::HeldBack;
use crate::core::sources::DesiredReason;
use crate::core::status::StaleVolume;
use crate::core::status::WaitingContainer;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Hint;
use super::ImageReason;
use super::Reasons;
use super::Unobservable;
use super::Unready;
use super::Unseen;
use super::Withheld;

/// One reason; its text is a clause about the daemon.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    // What its sources and the policy say.
    #[error("its manifest cannot be read: {0}")]
    ManifestsUnreadable(LocalFailure),
    #[error("{0}")]
    Desired(DesiredReason),
    #[error("asking the API server")]
    AsksApi,
    #[error("kept until a second complete list agrees (`max-removals`)")]
    AwaitsSecondList,
    #[error("deleted in the API; {0} counts again when it changes")]
    FileIgnored(Source),
    #[error("the DaemonSet is deleted and its pods are kept (orphan)")]
    Orphaned,
    #[error("its DaemonSet is gone and its pods were to be kept; to stop it, remove its manifest")]
    OrphanStays,
    #[error("this node's configuration may hide it")]
    MayBeHidden,
    #[error("the DaemonSet that its file overrides is not in the API any more")]
    OverriddenUnlisted,
    #[error("this node's configuration no longer selects it: {0}")]
    NoLongerSelected(DesiredReason),
    #[error("[policy] would not let it start any more: {}", joined(.0))]
    NoLongerAllowed(Vec<FieldError>),
    #[error("it stays as it is")]
    StaysAsItIs,
    #[error("what runs stays as it is")]
    RunsOn,
    #[error("{0}")]
    SetAside(HeldBack),
    #[error("what runs stays as it is, and gets no new data but tokens")]
    RunsOnWithTokens,
    #[error("{}", joined(.0))]
    Refused(Vec<FieldError>),

    // Placement.
    #[error("{0}")]
    Misplaced(Misfit),
    #[error("the Node is new, and may get labels until {0}")]
    LabelsMayCome(Timestamp),
    #[error("the Node has not been read yet")]
    NodeUnread,
    #[error("without an API server, labels of the Node that are not configured end nothing")]
    LabelsUnknown,
    #[error("the rollout goes back to revision {revision}, which is not for this node ({misfit}){}", after_colon(.waits))]
    WayBackElsewhere { revision: String, misfit: Misfit, waits: Reasons },

    // The DaemonSet controller's pod.
    #[error("the API server has not listed the pods of this node: the DaemonSet controller's may be among them")]
    StockUnlisted,
    #[error(
        "its record is lost, so it may have been handed over to the DaemonSet controller in this boot: it starts when \
         the API server answers, or at the next boot"
    )]
    HandOverForgotten,
    #[error("the API server has not been connected to yet, and the DaemonSet controller's pod may be on this node")]
    StockUnconnected,
    #[error("pod {0} of a DaemonSet controller is here too")]
    StockPodBeside(String),
    #[error("the DaemonSet controller's pod {0} is here")]
    StockPodHere(String),
    #[error("it was handed over to the DaemonSet controller in this boot")]
    HandedOver,
    #[error("it was handed over to the DaemonSet controller's pod {0} in this boot")]
    HandedOverTo(String),
    #[error("it was handed over to the DaemonSet controller's pod {pod}, and {missing}")]
    HandOverWaits { pod: String, missing: StockMissing },
    #[error("the DaemonSet controller's pod {pod} has never been ready, and {missing}")]
    HandOverFailed { pod: String, missing: StockMissing },

    // Ends.
    #[error("{0} has ended; its mirror pod is being deleted")]
    MirrorPodGoes(String),
    #[error("{pod} ends: {why}")]
    Ends { pod: String, why: String },
    #[error("{pod} ends ({why}); unknown whether it is gone: {unknown}")]
    EndUnknown { pod: String, why: String, unknown: Unseen },
    /// Why it ends, as the record has it.
    #[error("{0}")]
    Recorded(String),
    #[error("its manifest is not in the manifest folder any more")]
    ManifestRemoved,
    #[error("a newer instance is here")]
    NewerHere,
    #[error("a newer instance of the same revision is here")]
    NewerOfRevisionHere,
    #[error("the new instance took over")]
    TookOver,
    #[error("it is not ready and a new instance is here")]
    BrokenBesideNew,
    #[error("it is replaced by revision {0}")]
    Replaced(String),
    #[error("it is replaced by revision {0} at this boot")]
    ReplacedAtBoot(String),
    #[error("its data changed")]
    DataChanged,
    #[error("{}", .0.words())]
    Ordered(RestartCause),
    #[error("a new instance is tried in {} s", .0.as_secs())]
    TriedIn(Span),
    #[error("the node was named {0} when it was made")]
    FormerNode(String),
    #[error("its UID is that of a node with another name")]
    ForeignUid,
    #[error("its data is not on this disk, and what it was made from is not known here")]
    DataUnknown,
    #[error("its data is not on this disk, which does not take it: {0}")]
    DataUnwritable(LocalFailure),
    #[error("{lost}: it starts anew when that {}", until(.lost))]
    ReturnsWithData { lost: Box<Self> },
    #[error("{0}, and no new one starts here: {1}")]
    NotReturning(Box<Self>, Misfit),

    // Starts, and gates that open.
    #[error("it should run here and does not{}", though(.0))]
    NotRunning(Option<WaitedInVain>),
    #[error("a new revision, beside the old one")]
    BesideOld,
    #[error("a new revision, at this boot")]
    NewAtBoot,
    #[error("it is its turn{}", though(.0))]
    ItsTurn(Option<WaitedInVain>),
    #[error("the agent has started again")]
    AgentRestarted,

    // What a start waits for.
    #[error(
        "waits until {} is Ready here ({AFTER}), since {since} and at most until {until} ({AFTER_TIMEOUT})",
        list(.names), AFTER = AFTER, AFTER_TIMEOUT = AFTER_TIMEOUT
    )]
    AwaitsDaemons { names: Vec<ObjectKey>, since: Timestamp, until: Timestamp },
    #[error("waits for {}", objects(.0))]
    WaitsFor(Vec<Missing>),
    #[error("{0}")]
    Images(ImageReason),
    #[error("asks the API server whether it accepts the pod")]
    AsksAdmission,
    #[error("the container runtime is asked first whether one runs here already")]
    AsksRuntime,
    #[error("its first instance here waits for the coordinator's approval ({FIRST_INSTALL}): {0}", FIRST_INSTALL = FIRST_INSTALL)]
    AwaitsFirstApproval(Reasons),
    #[error("its approval is being claimed")]
    BeingClaimed,
    #[error("{}", .0.words())]
    Withheld(Withheld),
    #[error("it needs an object that does not exist ({0})")]
    LacksObjects(String),
    #[error("its images are on the node")]
    ImagesHere,
    #[error("a new instance would not be started here: {0}")]
    NotHere(Misfit),
    #[error("no record knows what runs: the API server is asked first")]
    Unrecorded,
    #[error("the update strategy is OnDelete: the pod keeps its revision until it is deleted")]
    OnDelete,
    #[error("its turn on this node comes in {} s (`update-jitter`)", .0.as_secs())]
    TurnIn(Span),
    #[error("revision {revision} waits: {waits}")]
    RevisionWaits { revision: String, waits: Reasons },
    #[error("revision {revision} cannot start, the old instance stays: {lacks}")]
    CannotStart { revision: String, lacks: Reasons },
    #[error("its replacement waits ({cause}): {why}")]
    EndUnobservable { cause: Box<Self>, why: Unobservable },
    #[error("the old instance ends first")]
    OldEndsFirst,
    #[error("the old instance stays until the new one is available")]
    OldStays,
    #[error("maxSurge would run it alongside {pod}, but both use host port {port}")]
    PortClash { pod: String, port: HostPort },
    #[error("host port {port} belongs to {by}")]
    PortTaken { port: HostPort, by: String },
    #[error(
        "revision {revision} is held, and the released one, {released}, is not for this node ({misfit}): it starts once \
         the rollout is open to nodes that join"
    )]
    ReleasedElsewhere { revision: String, released: String, misfit: Misfit },
    #[error(
        "revision {revision} is held and the released one, ControllerRevision {name}, is gone or holds something else"
    )]
    ReleasedGone { revision: String, name: String },
    #[error(
        "revision {revision} is held, and the released one, ControllerRevision {name}, has not been read yet; rbac.yaml \
         of this version lets agents read it"
    )]
    ReleasedUnread { revision: String, name: String },

    // The state of what runs.
    #[error("its manifest is written")]
    ManifestWritten,
    #[error("its manifest is not written: the manifest folder lost it, and something that it needs is missing")]
    ManifestLost,
    #[error("{0}")]
    NotReady(Unready),
    #[error("{0}")]
    ReadinessUnknown(Unseen),
    #[error("running, readiness unknown")]
    ReadinessUnreported,
    #[error("{0}")]
    NotAccepted(String),
    #[error("it stays so {UNTIL}", UNTIL = UNTIL)]
    StaysNotAccepted,
    #[error("revision {revision} is not accepted ({message}): back to {back} {UNTIL}", UNTIL = UNTIL)]
    BackFromNotAccepted { revision: String, message: String, back: String },
    #[error(
        "revision {revision} did not become available in time ({}: {}){fallback}",
        .failure.cause.as_str(),
        .failure.message
    )]
    Unavailable { revision: String, failure: Failure, fallback: Fallback },
    #[error("its manifest stays as it is until the API server tells the kubelet's version")]
    AwaitsKubeletVersion,
    #[error("keeps its last data: missing {}", objects(.0))]
    KeepsDataWithout(Vec<Missing>),
    #[error("keeps its last data until this is known: {}", objects(.0))]
    KeepsDataUntil(Vec<Missing>),
    #[error("container {} waits for {}", .0.container, objects(&.0.missing))]
    ContainerWaits(WaitingContainer),
    #[error("{0}")]
    Stale(StaleVolume),
    /// The beginning of a text that is too long to be kept.
    #[error("{0}")]
    Shortened(String),
}

/// Why nothing of the DaemonSet controller's pod can run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StockMissing {
    #[error("the API server shows no such pod")]
    NotShown,
    /// With the scheduler's own words.
    #[error("the scheduler cannot bind it: {0}")]
    Unbound(String),
    #[error("nothing of it runs and no API server answers")]
    NothingRuns,
}

/// What runs in place of a revision that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fallback {
    #[error("")]
    NoRollback,
    #[error(", and no other revision has been good here")]
    NoOtherGood,
    #[error(", and no revision has been good here")]
    NoneGood,
    #[error(": back to {0} until the template or its overlays change, or you run `daemonlet retry`")]
    Good(String),
}

/// Daemons that were waited for, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitedInVain {
    pub names: Vec<ObjectKey>,
    pub timeout: Span,
}

macro_rules! recorded_as_text {
    ($($reason:ty),*) => {$(
        impl serde::Serialize for $reason {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

recorded_as_text!(Hint, ImageReason, Reason, Reasons);

/// Until when a revision that the kubelet does not accept is not tried again.
const UNTIL: &str =
    "until its template, the kubelet's version or the configuration changes, or you run `daemonlet retry`";

fn until(lost: &Reason) -> &'static str {
    if *lost == Reason::DataUnknown { "is known" } else { "can be written" }
}

fn though(waited: &Option<WaitedInVain>) -> String {
    waited.as_ref().map_or_else(String::new, |WaitedInVain { names, timeout }| {
        let (names, timeout) = (list(names), timeout.as_secs_ceil());
        format!(", though {names} is not Ready here after {timeout} s ({AFTER_TIMEOUT})")
    })
}

fn after_colon(reasons: &Reasons) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {reasons}") }
}

pub(super) fn list<'a>(keys: impl IntoIterator<Item = &'a ObjectKey>) -> String {
    keys.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn objects(missing: &[Missing]) -> String {
    missing.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// The text for something that is waited for.
pub(super) fn describe(missing: &Missing) -> String {
    let name = if missing.namespace.is_empty() {
        missing.name.clone()
    } else {
        format!("{}/{}", missing.namespace, missing.name)
    };
    match (missing.kind.as_str(), missing.key.as_str()) {
        ("KubeletVersion", _) => format!("the kubelet's version, from Node {name} or node.kubelet-version"),
        ("APIEndpoint", _) => {
            format!("the API server's address (key {name}, or a kubeconfig whose server has no path)")
        }
        ("ServiceAccountToken", "") => format!("a token of ServiceAccount {name}"),
        ("ServiceAccountToken", audience) => format!("a token of ServiceAccount {name} for {audience}"),
        (kind, "") => format!("{kind} {name}"),
        (kind, key) => format!("key {key} of {kind} {name}"),
    }
}
