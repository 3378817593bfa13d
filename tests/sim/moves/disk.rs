//! What may happen to files and disks.

use serde::Deserialize;
use serde::Serialize;

/// How a file of a folder is hurt without a word about what it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hurt {
    Empty,
    Half,
    Zeros,
    DanglingLink,
    LinkLoop,
    Unreadable,
    StaleHandle,
}

/// What of the state folder is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Piece {
    Inputs,
    Floor,
    Record,
    /// The sealed secrets.
    Seal,
}

/// How it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Damage {
    Gone,
    Empty,
    Zeros,
    Half,
    Folder,
    /// Others may write to it, or it is another user's.
    Open,
    Foreign,
}

/// What fails on the disk for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    StateReadOnly,
    StateFull,
    ManifestsFull,
    ManifestsUnreadable,
    PodsFull,
    FolderUnreadable,
    /// What is written is lost, and a sync says so.
    StateBroken,
    ManifestsReadOnly,
    ManifestsBroken,
    PodsReadOnly,
    PodsBroken,
}

/// A file of the agent whose mode and owner an operator changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnFile {
    Manifest,
    Data,
}

/// What an operator removes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The folders of DaemonSets and of manifests.
    Etc,
    /// The agent's run folder.
    Run,
    /// The agent's state folder, and nothing else.
    State,
    /// The disk with the state folder and the kubelet's root, while the machine is off.
    Var,
    /// The disk with the kubelet's root alone, while the machine is off.
    Kubelet,
}
