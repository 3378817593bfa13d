//! What goes wrong with the manifest folder and its files, in words.

use std::path::PathBuf;

use crate::node::fsx::FsError;
use crate::node::fsx::watch_hint;

/// A manifest folder that cannot be used, or a manifest that could not be written or removed. The report of
/// an error of the folder names it as the manifest folder.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The folder is not safe to use.
    #[error("{} {why}: nothing is written there", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        hint: String,
    },
    /// Another agent writes there, with another state folder.
    #[error("{}: another daemonlet{} writes manifests there", path.display(), process(*holder))]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Its process, if that is known.
        holder: Option<u32>,
    },
    /// The folder could not be opened, created or listed.
    #[error("{}", path.display())]
    ManifestFolder {
        /// The folder.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// The file is not ours.
    #[error("{} is not daemonlet's ({why}): it is left alone", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it is not ours.
        why: String,
    },
    /// The folder was opened read-only.
    #[error("{} was opened for reading only", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
    },
    /// A name that the kubelet ignores, or that is not a file name.
    #[error("{name:?} cannot be the file name of a manifest")]
    Name { name: String },
    /// The manifest to be updated was removed in the meantime, not by us.
    #[error("manifest {} was removed by another program: it is not written again", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The staged file does not read back as intended; it was not put in place.
    #[error("manifest {} was not written correctly ({why}): the previous one stays", path.display())]
    Check {
        /// The file it was meant for.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// A manifest could not be put in place; its predecessor is unchanged.
    #[error("cannot write manifest {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// A manifest could not be removed.
    #[error("cannot remove manifest {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// The mode or owner of a manifest was changed, and they cannot be changed back.
    #[error(
        "manifest {} has another mode or owner than the agent gave it, so that others may read or change it",
        path.display()
    )]
    Attributes {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// The folder cannot be watched; changes are only seen at the next pass.
    #[error("{} cannot be watched and is polled every few seconds", path.display())]
    Watch {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

fn process(holder: Option<u32>) -> String {
    holder.map(|process| format!(" (process {process})")).unwrap_or_default()
}

impl ManifestError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            ManifestError::Unsafe { hint, .. } => Some(hint.clone()),
            ManifestError::Locked { .. } => {
                Some("two agents end each other's pods: stop one, or give it another manifest-dir".to_owned())
            }
            ManifestError::ManifestFolder { source, .. }
            | ManifestError::Write { source, .. }
            | ManifestError::Remove { source, .. } => source.hint(),
            ManifestError::Attributes { path, source } => {
                let by_hand = || format!("chown 0 {0} && chmod 0600 {0}", path.display());
                source.hint().or_else(|| Some(by_hand()))
            }
            ManifestError::Foreign { path, .. } => Some(format!("move {} out of the folder", path.display())),
            ManifestError::Watch { source, .. } => watch_hint(source).map(str::to_owned),
            ManifestError::ReadOnly { .. }
            | ManifestError::Name { .. }
            | ManifestError::Gone { .. }
            | ManifestError::Check { .. } => None,
        }
    }
}
