//! Why the sources want what they want of a daemon.
//!
//! Owns the texts. Must not decide anything.

use std::fmt;

use crate::core::model::Source;
use crate::core::orders::NoAnswer;
use crate::core::policy::NotCovered;

use super::Hold;
use super::RefusedVersion;
use super::Unproven;

/// Why the sources want of a daemon what they want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredReason {
    NotInApi,
    Unanswered,
    NoApiServer,
    /// `policy.namespaces` does not contain this namespace, which a folder's daemon is in.
    NamespaceNotSelected(String),
    /// The API server has a DaemonSet of its name and has not been asked what it defines.
    BeingRead,
    /// Only the manifest of what runs is known, and the API server has not answered.
    MayBeOfApi,
    /// There is no API server to ask, and what runs is its last version, which the folder's is not.
    FolderPassedOver,
    /// Only the manifest of what runs is known, and it may be made from a change of its file that is not read yet.
    FileChanging,
    DeletedInForeground,
    AwaitsFinalizers,
    /// A watch reported its deletion.
    Deleted,
    /// A complete list does not contain it.
    Unlisted,
    /// This, which a GET was to confirm; why it did not.
    Unconfirmed(Box<Self>, NoAnswer),
    /// This, and a GET shows it all the same.
    StillThere(Box<Self>),
    /// The configured selector hides it from the watch, and a GET shows it.
    NotSelected,
    /// The configured selector may hide it from the watch.
    MayBeHidden,
    /// This node's configuration does not cover it; why.
    NotCovered(NotCovered),
    /// The same, and an earlier configuration may have covered it.
    MayBeNarrowed(NotCovered),
    /// That nothing defines it is no evidence, for a reason of its folder and for one of the API server.
    NoEvidence(Unproven, Box<Self>),
    /// Its folder does not define it, which is no evidence that it is gone, for this reason.
    OfFolder(Unproven),
    /// Its file gave it its mode and may still be there, for this reason.
    ModeOfFile(Unproven),
    /// What its file last defined overrides the API server's, and the file shows nothing now, for this reason.
    OverrideUnread(Unproven),
    /// It was deleted in the API, and its file, which must not bring it back, has not changed since.
    FileIgnored(Source),
    /// Nothing defines it.
    Undefined {
        /// Whether a file did.
        has_file: bool,
    },
    /// What would hold it, if what runs were known; or what held it.
    Hold(Box<Hold>),
    /// It was released, though this is no evidence that it is gone.
    Released(Box<Self>),
    /// The Node has not been read, and its labels decide which overlays apply.
    LabelsUnread,
    /// The Node may have yet to get labels, which decide which overlays apply.
    LabelsIncomplete,
    TornDown,
}

impl fmt::Display for DesiredReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInApi => "the API does not have it",
            Self::Unanswered => "what the API has is not known yet",
            Self::NoApiServer => "there is no API server to ask",
            Self::NamespaceNotSelected(namespace) => {
                let what = "the API server's DaemonSet says nothing here";
                return write!(f, "policy.namespaces does not contain {namespace}: {what}");
            }
            Self::BeingRead => "the API server has a DaemonSet of this name, which is being read",
            Self::MayBeOfApi => "what runs may be of the API server, and what that has is not known yet",
            Self::FolderPassedOver => {
                let what = "what runs is the version that it last had: the folder's is passed over";
                return write!(f, "{}, and {what}", Self::NoApiServer);
            }
            Self::FileChanging => "what runs may be made from a change of its file, which is being read",
            Self::DeletedInForeground => "the DaemonSet is being deleted in the foreground",
            Self::AwaitsFinalizers => "the DaemonSet is being deleted and waits for its finalizers",
            Self::Deleted => "the DaemonSet was deleted",
            Self::Unlisted => "the DaemonSet is not in the API any more",
            Self::Unconfirmed(what, why) => return write!(f, "{what}, but that could not be confirmed: {why}"),
            Self::StillThere(what) => return write!(f, "{what}, but a direct look still shows it"),
            Self::NotSelected => "it is not selected any more",
            Self::MayBeHidden => "the DaemonSets that this node's configuration selects do not contain it",
            Self::NotCovered(why) => return why.fmt(f),
            Self::MayBeNarrowed(why) => {
                return write!(f, "what runs may have been selected by an earlier configuration: {why}");
            }
            Self::NoEvidence(of_folder, of_api) => return write!(f, "{of_folder}; {of_api}"),
            Self::OfFolder(why) => return why.fmt(f),
            Self::ModeOfFile(why) => return write!(f, "its file gave it its mode, and {why}"),
            Self::OverrideUnread(why) => return write!(f, "{why}; what it last defined overrides the API server's"),
            Self::FileIgnored(source) => {
                return write!(f, "it was deleted in the API; {source} counts again when it changes");
            }
            Self::Undefined { has_file: true } => "no file defines it any more",
            Self::Undefined { has_file: false } => "nothing defines it any more",
            Self::Hold(hold) => return hold.fmt(f),
            Self::Released(what) => return write!(f, "it is released: {what}"),
            Self::LabelsUnread => "what runs may have overlays for labels of the Node, which has not been read yet",
            Self::LabelsIncomplete => {
                "what runs may have overlays for labels that others may have yet to add to the Node"
            }
            Self::TornDown => "this node is torn down",
        })
    }
}

/// Which version of a daemon counts, where the API server's newest one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredNote {
    /// The folder's: the API server's DaemonSet says nothing here.
    Folder(DesiredReason),
    /// What runs, which came from the API server, whose DaemonSet says nothing here.
    Running(DesiredReason),
    /// The folder's: the API's is refused.
    FolderNotRefused(RefusedVersion),
    /// The folder's: this node's configuration does not cover the API's.
    FolderNotApi(NotCovered),
    /// What runs: this node's configuration does not cover the API's.
    RunningNotApi(NotCovered),
    /// What runs: this node's configuration does not cover what the API server last had.
    RunningNotRemembered(NotCovered),
}

impl fmt::Display for DesiredNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(why) => write!(f, "the folder's stays in force: {why}"),
            Self::Running(why) => write!(f, "what runs stays: {why}"),
            Self::FolderNotRefused(why) => {
                write!(f, "the API's version is refused, the folder's stays in force: {}", why.with_hints())
            }
            Self::FolderNotApi(why) => write!(f, "the API's version is not used, the folder's stays in force: {why}"),
            Self::RunningNotApi(why) => write!(f, "the API's new version is not used, what runs stays: {why}"),
            Self::RunningNotRemembered(why) => why.fmt(f),
        }
    }
}
