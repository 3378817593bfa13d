//! What failed on this node: a source could not be read, or an effect not be carried out.
//!
//! Owns the texts, of which recordings consist. Must not decide anything.

use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LocalFailure {
    /// With the words of the operating system, the container runtime, the kubelet or the API server.
    #[error("{0}")]
    Reported(String),
    #[error("the container runtime has not answered yet: is it running well?")]
    RuntimeOverdue,
    /// With the error of the task that asks.
    #[error("the container runtime could not be asked: {0}")]
    RuntimeNotAsked(String),
    #[error("tokens are bound to the Node, which the API server has not shown yet")]
    NodeNotRegistered,
    #[error("the state folder cannot be used: nothing is changed")]
    NoStateFolder,
    #[error("the manifest folder cannot be used: nothing is changed")]
    NoManifestFolder,
    #[error(
        "by {} the manifest folder is {}, and no kubelet that was started since has run for 10 s, so the pods are those of {}: \
         nothing is changed until one has",
        .by.display(), .configured.display(), .former.display()
    )]
    ManifestFolderMoved { by: PathBuf, configured: PathBuf, former: PathBuf },
    #[error("the manifest cannot be read")]
    ManifestUnreadable,
    #[error("the manifest is not ours")]
    ForeignManifest,
    #[error("the old instance stays, as the disk does not take the new one: {0}")]
    NoRoom(Box<Self>),
    #[error("{0}; until it can be used, nothing is ended or replaced, and nothing is remembered")]
    StateFolderUnused(Box<Self>),
}

impl From<String> for LocalFailure {
    fn from(words: String) -> Self {
        Self::Reported(words)
    }
}

impl From<LocalFailure> for String {
    fn from(failure: LocalFailure) -> Self {
        failure.to_string()
    }
}
