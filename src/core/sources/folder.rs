//! What the folders want of a daemon, where the API server does not say.
//!
//! Owns which file counts, and which one must not bring back what was deleted. Must not read folders.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::rendering::Revision;

use super::ApiState;
use super::Desired;
use super::FolderState;
use super::KnownDefinition;
use super::wanted;

/// Whether something runs of which only the manifest is known, and a folder defines another revision.
pub(super) fn may_be_older(folder: FolderState<'_>, record: &DaemonRecord) -> bool {
    let mut unknown = record.live().filter(|instance| instance.daemon_set.is_none()).peekable();
    match folder {
        FolderState::Present { daemon_set, .. } if unknown.peek().is_some() => {
            let revision = Revision::of(daemon_set).hash;
            unknown.any(|instance| instance.revision != revision)
        }
        _ => false,
    }
}

/// What the folders alone want. `api`: why the API server does not say.
pub(super) fn resolve_folder(known: &KnownDefinition<'_>, record: &DaemonRecord, api: &str) -> Desired {
    match known.folder {
        FolderState::Present { daemon_set, fingerprint } => {
            if record.ignored_file.as_deref() == Some(fingerprint) {
                return Desired::Gone {
                    reason: format!("it was deleted in the API; {} counts again when it changes", daemon_set.source),
                    by_list: false,
                    ignore_file: Some(fingerprint.to_owned()),
                };
            }
            wanted(daemon_set, daemon_set.mode_label().unwrap_or(Mode::Static), None)
        }
        FolderState::Absent if record.api_uid.is_none() => {
            Desired::Gone { reason: "its file is gone".to_owned(), by_list: false, ignore_file: None }
        }
        FolderState::Absent if known.api == ApiState::Unknown => Desired::Unsure { reason: api.to_owned() },
        FolderState::Absent => Desired::Kept { reason: api.to_owned() },
        FolderState::Unsure { reason } => Desired::Kept { reason: format!("{reason}; {api}") },
    }
}

/// The folder's definition, unless it was deleted in the API and its file has not changed since.
pub(super) fn folder_of<'a>(known: &KnownDefinition<'a>, record: &DaemonRecord) -> Option<&'a Arc<DaemonSet>> {
    match known.folder {
        FolderState::Present { daemon_set, fingerprint } if record.ignored_file.as_deref() != Some(fingerprint) => {
            Some(daemon_set)
        }
        _ => None,
    }
}

/// The mode of a daemon that a folder defines.
pub(super) fn folder_mode(policy: &Policy, folder: &Arc<DaemonSet>) -> Mode {
    match policy.covers(folder, Some(folder)) {
        Covered::Yes(mode) => mode,
        Covered::No(_) => Mode::Static,
    }
}

/// The file that must not bring the daemon back: the one that is there, and while that cannot be told, the same as before.
pub(super) fn ignored_from_now(known: &KnownDefinition<'_>, record: &DaemonRecord) -> Option<String> {
    match known.folder {
        FolderState::Present { fingerprint, .. } => Some(fingerprint.to_owned()),
        FolderState::Unsure { .. } => record.ignored_file.clone(),
        FolderState::Absent => None,
    }
}
