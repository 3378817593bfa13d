//! What goes wrong with the state folder and its records, in words.

use std::path::PathBuf;

use crate::node::fsx::FsError;

/// A state folder that cannot be used, or a record that could not be written or removed. The report of an
/// error of the folder names it as the state folder.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Others could write to the state folder.
    #[error("{} {why}: nothing in it can be trusted", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        hint: String,
    },
    /// The state folder cannot be opened, made or listed.
    #[error("{}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        #[source]
        source: FsError,
    },
    /// A record could not be written; its predecessor is unchanged.
    #[error("cannot write {}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// A record could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// A value that cannot be encoded as JSON.
    #[error("{} cannot be put in JSON", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl CheckpointError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            CheckpointError::Unsafe { hint, .. } => Some(hint.clone()),
            CheckpointError::Folder { source, .. }
            | CheckpointError::Save { source, .. }
            | CheckpointError::Remove { source, .. } => source.hint(),
            CheckpointError::Encode { .. } => None,
        }
    }
}

/// A record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {why}: it is not used{}", path.display(), kept_as(kept))]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
    /// Where its bytes are kept; `None` if the file could not be renamed.
    pub kept: Option<PathBuf>,
    pub cause: DamageCause,
}

/// Why a record cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageCause {
    /// Its bytes are not those that were written.
    Broken,
    /// It is whole, and of another version of the agent.
    OtherVersion,
    /// Others may have written it.
    Untrusted,
    /// It cannot be read now.
    Unreadable,
    /// It is whole, and not where it belongs.
    Misplaced,
}

impl Damaged {
    /// Whether it could be read.
    pub fn is_read(&self) -> bool {
        self.cause != DamageCause::Unreadable
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        const DISK: &str = "look for errors of the disk in the kernel's log";
        let first = match self.cause {
            DamageCause::Broken => DISK,
            DamageCause::OtherVersion => "another version of the agent wrote it, as before a downgrade",
            DamageCause::Untrusted => "see who owns it and who may write to it: only this agent's user should",
            DamageCause::Misplaced => "see who copied or moved it",
            DamageCause::Unreadable => return Some(format!("{DISK}; the next save sets it aside")),
        };
        let then = "remove what is kept; `daemonlet doctor` names it until then";
        self.kept.as_ref().map(|_| format!("what runs goes on: {first}; {then}"))
    }
}

fn kept_as(kept: &Option<PathBuf>) -> String {
    kept.as_ref().map_or_else(String::new, |kept| format!(", its bytes are kept in {}", kept.display()))
}
