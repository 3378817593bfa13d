//! DaemonSets of the API that are not ours on this node.
//!
//! Owns what follows from its labels alone. Must not look at what it defines.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::MODE_LABEL;
use crate::core::policy::Covered;
use crate::core::policy::NotCovered;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;

use super::Confirmation;
use super::Desired;
use super::DesiredNote;
use super::DesiredReason;
use super::FolderState;
use super::Hold;
use super::KnownDefinition;
use super::folder_mode;
use super::folder_of;
use super::held;
use super::hold;
use super::is_narrowed;
use super::last_known;
use super::may_be_older;
use super::of_the_api;
use super::wanted;

/// What follows from a DaemonSet of the API that is not ours for `reason`, whatever it defines.
pub(super) fn resolve_uncovered(
    known: &KnownDefinition<'_>,
    reason: NotCovered,
    record: &DaemonRecord,
    policy: &Policy,
) -> Desired {
    match folder_of(known, record) {
        Some(folder) => match of_the_api(record, folder) {
            // The folder's version would be an unapproved step back, on all nodes at once.
            Some(running) => wanted(running, folder_mode(folder), Some(DesiredNote::RunningNotApi(reason))),
            // Such as before its Namespace is read.
            None if may_be_older(known.folder, record) => Desired::Unsure { reason: DesiredReason::NotCovered(reason) },
            None => wanted(folder, folder_mode(folder), Some(DesiredNote::FolderNotApi(reason))),
        },
        None if is_narrowed(known, record, policy) => {
            held(known, record, None, Hold::Narrowed(DesiredReason::NotCovered(reason)))
        }
        None if let (true, FolderState::Unsure { reason }) = (known.has_file, known.folder) => {
            hold::without_folder(known, record, reason, DesiredReason::ModeOfFile)
                .unwrap_or(Desired::Kept { reason: DesiredReason::ModeOfFile(reason) })
        }
        None if may_be_narrowed(known, record, policy) => {
            Desired::Kept { reason: DesiredReason::MayBeNarrowed(reason) }
        }
        None => {
            let reason = DesiredReason::NotCovered(reason);
            match &known.confirmation {
                _ if record.instances.is_empty() => {
                    Desired::Left { reason, taken_away: is_taken_away(known, record, policy) }
                }
                Confirmation::NotCovered | Confirmation::Gone => {
                    Desired::Gone { reason, by_list: false, ignore_file: None }
                }
                Confirmation::Failed(why) => {
                    Desired::Unsure { reason: DesiredReason::Unconfirmed(Box::new(reason), why.clone()) }
                }
                Confirmation::Unasked | Confirmation::StillThere => Desired::Confirm { reason },
            }
        }
    }
}

/// Whether nothing is remembered of what runs, and the policy does not contain its namespace, which no DaemonSet leaves: then
/// the configuration alone may have changed.
fn may_be_narrowed(known: &KnownDefinition<'_>, record: &DaemonRecord, policy: &Policy) -> bool {
    record.runs() && last_known(known.remembered, record).is_none() && !policy.allows_namespace(&record.key.namespace)
}

/// Whether the API server has taken away labels by which this configuration selected it. A typing error takes nothing
/// away.
fn is_taken_away(known: &KnownDefinition<'_>, record: &DaemonRecord, policy: &Policy) -> bool {
    let is_typo = |now: &Arc<DaemonSet>| now.labels.contains_key(MODE_LABEL) && now.mode_label().is_none();
    let was_ours = |last: &Arc<DaemonSet>| matches!(policy.covers(last, None), Covered::Yes(_));
    !known.api.daemon_set().is_some_and(is_typo) && last_known(known.remembered, record).is_some_and(was_ours)
}
