//! What happens to a node: the moves of a life, drawn from a seed, kept as a list, printed as a story.
//!
//! Owns which moves there are and how often each is drawn. Must not know what follows from them.

use serde::Deserialize;
use serde::Serialize;

use super::api::Reach;
use super::api::Refusal;
use super::bridges::Binding;
use super::kubelet::RuntimeState;

mod counting;
mod disk;
mod draw;
mod drawn;
mod late;

pub(crate) use disk::Damage;
pub(crate) use disk::Fault;
pub(crate) use disk::Hurt;
pub(crate) use disk::OwnFile;
pub(crate) use disk::Piece;
pub(crate) use disk::Place;
pub(crate) use draw::Draw;

/// Where a daemon is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Home {
    Api,
    Folder,
    /// Both: the API's is newer.
    Both,
}

/// What the runtime says of a pod that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blur {
    /// Its container is in a state that the runtime does not know.
    UnknownContainer,
    /// Its sandbox is not ready, and its container runs.
    SandboxNotReady,
    /// The same, and its container is in a state that the runtime does not know.
    Both,
}

/// How a node gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Renaming {
    /// In its configuration; the agent and the kubelet start anew.
    Restarted,
    /// With a reboot.
    Rebooted,
    /// The machine is a copy, with its disk; the original lives on elsewhere.
    Cloned,
}

/// Which version of the agent wrote the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    /// A newer one, in a format that this one does not know.
    NewFormat,
    /// A newer one, with fields that this one does not know.
    NewFields,
    /// An older one, without the fields that came later.
    Older,
}

/// What a tenant's DaemonSet is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tenant {
    /// It has no label.
    Unlabelled,
    /// It asks to be run, from a namespace that nothing runs from.
    Outside,
    /// The same, and is no DaemonSet that a static pod can be made of.
    Impossible,
    /// It asks to be run from a namespace of the policy, with what only trusted ones may have.
    Untrusted,
    /// It goes.
    Gone,
}

/// Why a Node is not Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotReady {
    /// Its kubelet says so.
    Unwell,
    /// Its kubelet does not report.
    Unreachable,
}

/// What becomes of a ConfigMap with overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OverlayChange {
    Newer,
    /// No list.
    Damaged,
    /// It is not there.
    Lost,
}

/// Which part of what is selected a configuration leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fewer {
    /// The folder that is mounted late.
    Folders,
    /// The namespace of the daemons.
    Namespaces,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Move {
    // The API's users.
    Apply {
        daemon: u8,
    },
    Delete {
        daemon: u8,
    },
    Label {
        daemon: u8,
        is_static: bool,
    },
    MistypeLabel {
        daemon: u8,
    },
    DeletePod {
        daemon: u8,
        force: bool,
    },
    ChangeConfigMap {
        daemon: u8,
    },
    ChangeSecret {
        daemon: u8,
    },
    DropConfigMap {
        daemon: u8,
        seconds: u16,
    },
    RecreateNode,
    // The owner of the node's folders.
    Write {
        daemon: u8,
    },
    WriteSlowly {
        daemon: u8,
    },
    WriteObjects {
        daemon: u8,
    },
    HurtFile {
        daemon: u8,
        hurt: Hurt,
        seconds: u16,
    },
    RemoveFile {
        daemon: u8,
    },
    Mask {
        daemon: u8,
    },
    SecondFile {
        daemon: u8,
        seconds: u16,
    },
    UnmountFolder {
        seconds: u16,
    },
    RemoveManifest {
        daemon: u8,
    },
    EmptyManifest {
        daemon: u8,
    },
    RemoveData {
        daemon: u8,
    },
    // The API server.
    Reach {
        reach: Reach,
        seconds: u16,
    },
    Refuse {
        resource: u8,
        refusal: Refusal,
        seconds: u16,
    },
    EndWatches,
    Compact,
    RestartServer,
    OtherCluster {
        seconds: u16,
        /// Whether it has objects with the names of ours.
        #[serde(default)]
        alike: bool,
    },
    // The machine and its processes.
    Kill {
        seconds: u16,
    },
    KillAt {
        effect: u16,
    },
    RestartAgent,
    PowerLoss {
        kept: u8,
        effect: Option<u16>,
        reach: Reach,
    },
    /// A planned reboot.
    Shutdown {
        reach: Reach,
    },
    RestartKubelet,
    Runtime {
        state: RuntimeState,
        seconds: u16,
    },
    Clock {
        seconds: i64,
    },
    Damage {
        piece: Piece,
        damage: Damage,
    },
    DiskFault {
        fault: Fault,
        seconds: u16,
    },
    OpenState {
        seconds: u16,
    },
    CopyState {
        seconds: u16,
    },
    Rename {
        renaming: Renaming,
        reach: Reach,
    },
    Wipe {
        place: Place,
        seconds: u16,
    },
    OtherVersion {
        version: Version,
    },
    // Others in the cluster.
    Tenant {
        number: u8,
        tenant: Tenant,
    },
    /// A DaemonSet controller that acts on one of ours: its pod comes, and goes.
    StockPod {
        daemon: u8,
        seconds: u16,
    },
    /// What seals cannot be run, or refuses to.
    Unseal {
        seconds: u16,
        #[serde(default)]
        refused: bool,
    },
    /// A daemon is to start after another one, or after none; its DaemonSet changes with that.
    After {
        daemon: u8,
        before: Option<u8>,
    },
    /// A node is to carry the startup taint for a daemon, or not any more; its DaemonSet changes with that.
    AskTaint {
        daemon: u8,
        is_asked: bool,
    },
    /// The policy that holds the agent to the startup taint is not there.
    DropTaintPolicy {
        seconds: u16,
    },
    /// The overlays of a daemon change, or are lost or damaged for a while.
    Overlay {
        daemon: u8,
        change: OverlayChange,
        seconds: u16,
    },
    /// The label of the Node changes that overlays are for.
    LabelNode {
        is_big: bool,
    },
    /// Another pod takes the host port of a daemon, as soon as that does not run.
    Occupy {
        daemon: u8,
        seconds: u16,
    },
    /// The Node is not Ready and has the taints of that.
    EndReady {
        why: NotReady,
        seconds: u16,
    },
    /// The runtime knows less of the pods of a daemon than it should.
    Blur {
        daemon: u8,
        blur: Blur,
        seconds: u16,
    },
    /// An operator opens a file of the agent to other users, or gives it away.
    Open {
        daemon: u8,
        file: OwnFile,
        is_given: bool,
    },
    /// The machine is suspended for so long, and goes on; its connections are gone, and it may not know that.
    Suspend {
        seconds: u32,
        is_cut: bool,
    },
    /// The clock is set while no agent runs.
    ClockWhileDown {
        seconds: i64,
    },
    /// The owner's folder is moved away for a while.
    FolderAway {
        seconds: u16,
    },
    /// The Node is registered anew, and has its label so much later.
    Register {
        seconds: u16,
    },
    /// The owner's file overrides what the API server says, for a while.
    Override {
        daemon: u8,
        seconds: u16,
    },
    /// etcd is restored so much later from a backup of now.
    CopyEtcd {
        seconds: u16,
    },
    /// A revision whose container ends at once, until a better one follows so much later.
    ApplyBad {
        daemon: u8,
        seconds: u16,
    },
    /// The configuration selects less for a while; the agent starts anew before and after.
    SelectFewer {
        fewer: Fewer,
        seconds: u16,
    },
}

/// The resources that a refusal may be about.
pub(crate) const RESOURCES: [&str; 7] =
    ["daemonsets", "configmaps", "secrets", "serviceaccounts", "namespaces", "pods", "nodes"];

/// A life: what there is at its beginning, and what happens when, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) daemons: Vec<Home>,
    pub(crate) one_journal: bool,
    /// Which daemon starts after which other one, at the beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<(u8, u8)>,
    /// Whether Secrets and tokens are sealed on the disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sealed: bool,
    /// Daemons that the node carries the startup taint for, if agents write it; and those that have overlays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tainted: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) overlaid: Vec<u8>,
    /// Daemons that name a condition of the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditioned: Vec<u8>,
    /// Whether each daemon has a host port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) crowded: bool,
    /// Daemons that a vendor's folder defines, too, in a file that the owner's hides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) vendored: Vec<u8>,
    /// Daemons that run on a big node alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) selective: Vec<u8>,
    /// Daemons that return from a revision that fails; and those of which the next instance starts beside the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cautious: Vec<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) surging: Vec<u8>,
    /// Daemons in mode `bootstrap`: what the scheduler does with the DaemonSet controller's pod of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bridged: Vec<Binding>,
    pub(crate) moves: Vec<(i64, Move)>,
}

/// How long a life lasts, in milliseconds, without its end, at which all faults are over.
pub(crate) const HOUR: i64 = 3_600_000;
