//! A daemon that the API does not have, or has not listed yet.
//!
//! Owns what absence means: it is no deletion.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;

use super::Confirmation;
use super::Desired;
use super::DesiredNote;
use super::DesiredReason;
use super::FolderState;
use super::Hold;
use super::KnownDefinition;
use super::PolicyAndObjects;
use super::by_rules;
use super::covers;
use super::folder_mode;
use super::held;
use super::ignored_from_now;
use super::is_narrowed;
use super::of_the_api;
use super::resolve_folder;
use super::wanted;

pub(super) fn resolve_absent(
    known: &KnownDefinition<'_>,
    by_event: bool,
    record: &DaemonRecord,
    policy: &Policy,
) -> Desired {
    if record.api_uid.is_none() {
        // The API never had it: the folder alone decides.
        return resolve_folder(known, record, DesiredReason::NotInApi);
    }
    if let FolderState::Present { fingerprint, .. } = known.folder
        && record.ignored_file.as_deref().is_some_and(|ignored| ignored != fingerprint)
    {
        // The file changed after the deletion: the node's owner wants it again.
        return resolve_folder(known, record, DesiredReason::NotInApi);
    }
    if known.confirmation != Confirmation::Gone && is_narrowed(known, record, policy) {
        // The configured selector may hide it.
        let why = Hold::Narrowed(DesiredReason::MayBeHidden);
        return match held(known, record, None, why) {
            Desired::Held { daemon_set, mode, why, .. } => {
                Desired::Held { daemon_set, mode, why, ask: known.confirmation == Confirmation::Unasked }
            }
            other => other,
        };
    }
    let reason = if by_event { DesiredReason::Deleted } else { DesiredReason::Unlisted };
    match &known.confirmation {
        Confirmation::Gone => {
            Desired::Gone { reason, by_list: !by_event, ignore_file: ignored_from_now(known, record) }
        }
        _ if record.instances.is_empty() && record.ignored_file.is_some() => {
            Desired::Gone { reason, by_list: false, ignore_file: ignored_from_now(known, record) }
        }
        // Nothing of it runs or has run just now, and no file defines it: no caution is needed.
        _ if record.instances.is_empty()
            && known.remembered.is_none()
            && matches!(known.folder, FolderState::Absent) =>
        {
            Desired::Gone { reason, by_list: false, ignore_file: None }
        }
        Confirmation::Failed(why) => {
            Desired::Unsure { reason: DesiredReason::Unconfirmed(Box::new(reason), why.clone()) }
        }
        // The configured selector hides it from the watch: it exists and is not ours.
        Confirmation::NotCovered => {
            Desired::Gone { reason: DesiredReason::NotSelected, by_list: false, ignore_file: None }
        }
        Confirmation::StillThere => Desired::Unsure { reason: DesiredReason::StillThere(Box::new(reason)) },
        Confirmation::Unasked => Desired::Confirm { reason },
    }
}

/// Whether a folder decides alone of a daemon whose pods were to stay when the API deleted it: its file has changed since,
/// and has adopted them.
pub(super) fn is_adopted_by_file(known: &KnownDefinition<'_>, record: &DaemonRecord) -> bool {
    if let FolderState::Present { fingerprint, .. } = known.folder
        && record.ignored_file.as_deref().is_some_and(|ignored| ignored != fingerprint)
    {
        return true;
    }
    let is_known = record.live().all(|instance| instance.daemon_set.is_some() && !instance.orphaned);
    let is_of_a_file = record.definition().is_some_and(|runs| runs.source != Source::Api);
    let is_over = record.api_uid.is_none() && is_known;
    is_over && (is_of_a_file || matches!(known.folder, FolderState::Present { .. }))
}

/// The newest version that the API is known to have had. The checkpoint may be behind: where it could not be
/// saved, what runs here was made from a later one, and does not go back. Nor does what has ended to be replaced. What
/// ends for good says nothing: it was deleted, or is not ours any more.
pub(super) fn last_known<'a>(
    remembered: Option<&'a Arc<DaemonSet>>,
    record: &'a DaemonRecord,
) -> Option<&'a Arc<DaemonSet>> {
    let has_ended = record.last.iter().chain(&record.previous).map(|run| &run.daemon_set);
    let made_from = record.staying().filter_map(|i| i.daemon_set.as_ref()).chain(has_ended);
    let of_the_api = made_from.filter(|d| d.source == Source::Api && d.uid.is_some() && d.uid == record.api_uid);
    let is_later = |d: &&Arc<DaemonSet>| {
        remembered.is_none_or(|remembered| d.uid != remembered.uid || d.generation > remembered.generation)
    };
    of_the_api.filter(is_later).max_by_key(|d| d.generation).or(remembered)
}

pub(super) fn resolve_remembered(
    known: &KnownDefinition<'_>,
    daemon_set: &Arc<DaemonSet>,
    record: &DaemonRecord,
    rules: PolicyAndObjects<'_>,
) -> Desired {
    let policy = rules.0;
    let folder = match known.folder {
        FolderState::Present { daemon_set, .. } => Some(daemon_set),
        _ => None,
    };
    match (covers(rules, daemon_set, folder, record), folder) {
        (Covered::Yes(mode), None) => match by_rules(daemon_set, record, policy) {
            Some(errors) => held(known, record, Some(mode), Hold::Forbidden(errors)),
            None => wanted(daemon_set, mode, None),
        },
        (Covered::Yes(mode), Some(_)) => wanted(daemon_set, mode, None),
        (Covered::No(reason), Some(folder)) => match of_the_api(record, folder) {
            Some(running) => wanted(running, folder_mode(folder), Some(DesiredNote::RunningNotRemembered(reason))),
            // The instance may be of the API's version; the folder's would be a step back.
            None if record.live().any(|instance| instance.daemon_set.is_none()) => {
                Desired::Unsure { reason: DesiredReason::NotCovered(reason) }
            }
            None => wanted(folder, folder_mode(folder), None),
        },
        (Covered::No(reason), None) => {
            let reason = DesiredReason::NotCovered(reason);
            match record.runs() {
                true if known.has_file => Desired::Unsure { reason },
                true => held(known, record, None, Hold::Narrowed(reason)),
                false => Desired::Left { reason, taken_away: false },
            }
        }
    }
}
