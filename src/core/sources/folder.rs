//! What the folders want of a daemon, while the API server's state is not known.
//!
//! Owns which file counts, and which one must not bring back what was deleted. Must not read folders.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::record::DaemonRecord;
use crate::core::rendering::Revision;

use super::ApiState;
use super::Desired;
use super::DesiredNote;
use super::DesiredReason;
use super::FolderState;
use super::Hold;
use super::KnownDefinition;
use super::hold;
use super::of_the_api;
use super::wanted;

/// Whether something runs of which only the manifest is known, and a folder defines another revision.
pub fn may_be_older(folder: FolderState<'_>, record: &DaemonRecord) -> bool {
    matches!(folder, FolderState::Present { daemon_set, .. } if differs_from_unknown(daemon_set, record))
}

/// Whether something runs of which only the manifest is known, and that is of another revision.
pub fn differs_from_unknown(daemon_set: &DaemonSet, record: &DaemonRecord) -> bool {
    let mut unknown = record.live().filter(|instance| instance.daemon_set.is_none()).peekable();
    unknown.peek().is_some() && {
        let revision = Revision::of(daemon_set).hash;
        unknown.any(|instance| instance.revision != revision)
    }
}

/// What the folders alone want. `api`: why the API server's state is not known.
pub(super) fn resolve_folder(known: &KnownDefinition<'_>, record: &DaemonRecord, api: DesiredReason) -> Desired {
    match known.folder {
        FolderState::Present { daemon_set, fingerprint } => {
            if record.ignored_file.as_deref() == Some(fingerprint) {
                return Desired::Gone {
                    reason: DesiredReason::FileIgnored(daemon_set.source.clone()),
                    by_list: false,
                    ignore_file: Some(fingerprint.to_owned()),
                };
            }
            wanted(daemon_set, daemon_set.mode_label().unwrap_or(Mode::Static), None)
        }
        FolderState::Absent if record.api_uid.is_none() => {
            let has_file = known.has_file || record.definition().is_some_and(|d| d.source != Source::Api);
            Desired::Gone { reason: DesiredReason::Undefined { has_file }, by_list: false, ignore_file: None }
        }
        FolderState::Absent if is_unknown(known) => Desired::Unsure { reason: api },
        FolderState::Absent => kept(known, record, api),
        FolderState::Unsure { reason } => hold::without_folder(known, record, reason, DesiredReason::OfFolder)
            .unwrap_or_else(|| kept(known, record, DesiredReason::NoEvidence(reason, Box::new(api)))),
    }
}

/// The running instance stays; one that was ended to return, or that another is to replace, comes back as it was. What
/// bridges until the DaemonSet controller's pod runs is needed again at a boot, by the API's last word.
fn kept(known: &KnownDefinition<'_>, record: &DaemonRecord, reason: DesiredReason) -> Desired {
    let bridges = || known.remembered.filter(|_| record.bootstrap && record.instances.is_empty());
    let is_ordered = record.live().any(|instance| instance.restart.is_some());
    match record.definition().filter(|_| is_ordered || record.has_ended_to_return()).or_else(bridges) {
        Some(daemon_set) => {
            let mode = if record.bootstrap { Mode::Bootstrap } else { Mode::Static };
            Desired::Held { daemon_set: Arc::clone(daemon_set), mode, why: Hold::Undefined(reason), ask: false }
        }
        None => Desired::Kept { reason },
    }
}

/// What is wanted of a daemon of the folders whose namespace the policy does not select: DaemonSets of
/// its name in that namespace do not affect it, neither their creation nor their deletion.
pub(super) fn resolve_unselected(known: &KnownDefinition<'_>, record: &DaemonRecord) -> Desired {
    let why = DesiredReason::NamespaceNotSelected(record.key.namespace.clone());
    let is_there =
        matches!(known.api, ApiState::Present(_) | ApiState::Invalid(_) | ApiState::TooLarge(_) | ApiState::Unread);
    match folder_of(known, record) {
        Some(folder) => match of_the_api(record, folder) {
            Some(running) => wanted(running, folder_mode(folder), Some(DesiredNote::Running(why))),
            // It may have been selected when that started.
            None if is_unknown(known) && may_be_older(known.folder, record) => Desired::Unsure { reason: why },
            None => wanted(folder, folder_mode(folder), is_there.then_some(DesiredNote::Folder(why))),
        },
        None => resolve_folder(known, record, why),
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
pub(super) fn folder_mode(folder: &Arc<DaemonSet>) -> Mode {
    folder.mode_label().unwrap_or(Mode::Static)
}

/// The file that must not bring the daemon back: the one that is there, and while that is not known, the same as before.
pub(super) fn ignored_from_now(known: &KnownDefinition<'_>, record: &DaemonRecord) -> Option<String> {
    match known.folder {
        FolderState::Present { fingerprint, .. } => Some(fingerprint.to_owned()),
        FolderState::Unsure { .. } => record.ignored_file.clone(),
        FolderState::Absent => None,
    }
}

/// Whether it is not known what the API defines.
fn is_unknown(known: &KnownDefinition<'_>) -> bool {
    matches!(known.api, ApiState::Unknown | ApiState::Unread)
}
