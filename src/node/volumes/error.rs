//! Why volume data could not be written or cleared.

use std::path::Component;
use std::path::PathBuf;

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
    /// A volume that cannot be written.
    pub(super) fn write(uid: &str, volume: &str, source: FsError) -> Self {
        Self::Write { uid: uid.to_owned(), volume: volume.to_owned(), source: without_version(source) }
    }

    /// A pod whose folder cannot be made ready.
    pub(super) fn pod(uid: &str, source: FsError) -> Self {
        Self::Pod { uid: uid.to_owned(), source: without_version(source) }
    }

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

/// The error without the folder of the version, which has another name at each try: what fails again is no news.
fn without_version(mut error: FsError) -> FsError {
    let is_version = |part: &Component<'_>| {
        let name = part.as_os_str().as_encoded_bytes();
        name.strip_prefix(b"..").and_then(|stamp| stamp.first()).is_some_and(u8::is_ascii_digit)
    };
    error.path = error.path.components().filter(|part| !is_version(part)).collect::<PathBuf>();
    error
}
