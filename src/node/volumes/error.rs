//! Why volume data could not be written or cleared.

use crate::node::fsx::FsError;

/// Volume data that could not be written or cleared.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A pod UID that is not a valid folder name.
    #[error("pod UID {uid:?} cannot name a folder")]
    Uid { uid: String },
    /// A volume or file name that would leave the volume.
    #[error("volume {volume} of pod UID {uid}: {path:?} is no relative path inside a volume")]
    Path { uid: String, volume: String, path: String },
    /// The data could not be written; the previous data is still in force.
    #[error("cannot write volume {volume} of pod UID {uid}")]
    Write {
        uid: String,
        volume: String,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// The pod's folder could not be created or opened.
    #[error("cannot prepare the folder of pod UID {uid}")]
    Pod {
        uid: String,
        /// The step that failed.
        #[source]
        source: FsError,
    },
    /// The remains of an ended pod could not be removed.
    #[error("cannot clear the folder of the ended pod UID {uid}")]
    Clear {
        uid: String,
        /// The step that failed.
        #[source]
        source: FsError,
    },
}

impl VolumeError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            VolumeError::Uid { .. } | VolumeError::Path { .. } => None,
            VolumeError::Write { source, .. } | VolumeError::Pod { source, .. } | VolumeError::Clear { source, .. } => {
                source.hint()
            }
        }
    }
}
