//! Daemons held at their definitions: a newer one is refused, or this node's configuration selects less than before.
//!
//! Owns telling a narrower configuration, which alone ends nothing, from a changed DaemonSet, and what lets go of what
//! is held.

use std::fmt;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::model::joined;
use crate::core::policy::Covered;
use crate::core::policy::Judge;
use crate::core::policy::Policy;
use crate::core::policy::Releases;
use crate::core::policy::TooLarge;
use crate::core::record::DaemonRecord;

use super::ApiState;
use super::Desired;
use super::DesiredNote;
use super::DesiredReason;
use super::FolderState;
use super::KnownDefinition;
use super::PolicyAndObjects;
use super::RefusedVersion;
use super::Unproven;
use super::covers;
use super::folder_of;
use super::has_given_way;
use super::is_override;
use super::last_known;
use super::may_be_older;
use super::resolve_uncovered;
use super::wanted;

/// Why the instance is held at its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The newest definition is refused; why.
    Refused(RefusedVersion),
    /// The configuration of this node no longer selects it, which alone ends nothing; why it does not.
    Narrowed(DesiredReason),
    /// Its overlays cannot be applied to the newest definition; why not.
    Overlays(Vec<FieldError>),
    /// `[policy]` no longer lets such a pod start, which ends nothing, either; the violations.
    Forbidden(Vec<FieldError>),
    /// No source defines it now, and there is no evidence that it is gone; why.
    Undefined(DesiredReason),
}

/// In one line, without what to do about it.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "the API's version is refused: {why}"),
            Self::Overlays(errors) => {
                let (first, others) = errors.split_at(errors.len().min(1));
                write!(f, "the overlays cannot be applied: {}", joined(first))?;
                if others.is_empty() { Ok(()) } else { write!(f, " (and {} more errors)", others.len()) }
            }
            Self::Forbidden(errors) => f.write_str(&joined(errors)),
            Self::Narrowed(reason) | Self::Undefined(reason) => reason.fmt(f),
        }
    }
}

/// `desired`, unless it stays only because its absence is not certain, and it was released.
pub(super) fn unless_released(desired: Desired, record: &DaemonRecord, policy: &Policy) -> Desired {
    let key = &record.key;
    let is_released = record.released
        || match &desired {
            Desired::Held { why: Hold::Narrowed(_), .. } => policy.releases(key, Releases::Pattern),
            // Missing evidence may come: a pattern that was meant for another daemon ends nothing here.
            Desired::Kept { .. } | Desired::Held { why: Hold::Forbidden(_) | Hold::Undefined(_), .. } => {
                policy.releases(key, Releases::Name)
            }
            _ => false,
        };
    let reason = match desired {
        Desired::Held { why: why @ (Hold::Narrowed(_) | Hold::Forbidden(_) | Hold::Undefined(_)), .. }
            if is_released =>
        {
            DesiredReason::Hold(Box::new(why))
        }
        Desired::Kept { reason } if is_released => reason,
        _ => return desired,
    };
    Desired::Gone { reason: DesiredReason::Released(Box::new(reason)), by_list: false, ignore_file: None }
}

/// `desired`, unless its overlays cannot be applied: then the instance that runs, or is to return, is held.
pub(super) fn unless_overlays_refused(desired: Desired, known: &KnownDefinition<'_>, record: &DaemonRecord) -> Desired {
    let Desired::Wanted { daemon_set, .. } = &desired else { return desired };
    let errors = daemon_set.overlays.as_ref().map_or(&[][..], |overlays| overlays.refused());
    match !errors.is_empty() && record.definition().is_some() {
        true => held(known, record, None, Hold::Overlays(errors.to_vec())),
        false => desired,
    }
}

/// Whether the configuration alone keeps what runs, or is to return, from being selected: it would not select the version
/// that it last selected, either. A label that was taken away is no such thing. A daemon that a file defines has its mode
/// from there: only the configured selector hides the API's version of it.
pub(super) fn is_narrowed(known: &KnownDefinition<'_>, record: &DaemonRecord, policy: &Policy) -> bool {
    let last = last_known(known.remembered, record);
    let is_left = |last: &Arc<DaemonSet>| match known.has_file {
        true => policy.hides(last),
        false => matches!(policy.covers(last, None), Covered::No(_)),
    };
    (record.runs() || record.has_ended_to_return()) && last.is_some_and(is_left)
}

/// What runs, or is to return, and came from a folder that is no longer configured, by `reason`: that alone ends nothing. Before
/// the API server has answered, not even a pattern for many releases it: the API may have it, too.
pub(super) fn without_folder(
    known: &KnownDefinition<'_>,
    record: &DaemonRecord,
    reason: Unproven,
    why: impl FnOnce(Unproven) -> DesiredReason,
) -> Option<Desired> {
    let is_there = (record.runs() || record.has_ended_to_return()) && record.definition().is_some();
    let is_known = !matches!(known.api, ApiState::Unknown | ApiState::Unread);
    let hold = if is_known { Hold::Narrowed } else { Hold::Undefined };
    (is_there && reason == Unproven::FolderNotConfigured).then(|| held(known, record, None, hold(why(reason))))
}

/// What runs by the override of a file that shows nothing now, such as an empty one: it is held, until the API has
/// something newer.
pub(super) fn held_override(known: &KnownDefinition<'_>, record: &DaemonRecord) -> Option<Desired> {
    let FolderState::Unsure { reason } = known.folder else { return None };
    // Only the manifest is known of what may be of a newer version of the file: no definition holds it.
    let may_be_made = reason == Unproven::FileUnread { overrides: true };
    let is_held = known.api != ApiState::None && !has_given_way(known);
    let why = DesiredReason::OverrideUnread(reason);
    let unread = || held(known, record, None, Hold::Undefined(why.clone()));
    match is_made_by_override(record) {
        _ if !is_held => None,
        _ if may_be_made => Some(Desired::Unsure { reason: why.clone() }),
        true => Some(without_folder(known, record, reason, DesiredReason::OverrideUnread).unwrap_or_else(unread)),
        false => None,
    }
}

/// Whether a file's override made what runs, or is to return: what ends for another definition does not.
pub fn is_made_by_override(record: &DaemonRecord) -> bool {
    let next = record.last.as_ref().filter(|_| record.live().next().is_none()).map(|last| &last.daemon_set);
    let made_from = next.or_else(|| record.definition());
    made_from.is_some_and(|made_from| made_from.source != Source::Api && is_override(made_from))
}

/// The violations that both the instance and the newest definition have.
pub(super) fn by_rules(
    daemon_set: &Arc<DaemonSet>,
    record: &DaemonRecord,
    judge: Judge<'_>,
) -> Option<Vec<FieldError>> {
    let running = record.definition().filter(|running| running.source == Source::Api)?;
    let why = judge.forbids(running)?;
    (record.runs() && !judge.allows(daemon_set)).then_some(why)
}

/// The instance, held at its own definition. `mode`: the one that it has by the sources.
pub(super) fn held(known: &KnownDefinition<'_>, record: &DaemonRecord, mode: Option<Mode>, why: Hold) -> Desired {
    let last = last_known(known.remembered, record);
    let Some(daemon_set) = record.definition().or(last) else {
        return Desired::Unsure { reason: DesiredReason::Hold(Box::new(why)) };
    };
    let last = if record.bootstrap { Mode::Bootstrap } else { Mode::Static };
    let mode = mode.or(daemon_set.mode_label()).unwrap_or(last);
    Desired::Held { daemon_set: Arc::clone(daemon_set), mode, why, ask: false }
}

/// What follows from a version of the API that is too large. It ends nothing. A DaemonSet that is too large by the rules for
/// pods can be released like one with other violations.
pub(super) fn resolve_too_large(
    known: &KnownDefinition<'_>,
    too_large: &TooLarge,
    record: &DaemonRecord,
    rules: PolicyAndObjects<'_>,
) -> Desired {
    let mode = match &too_large.covered {
        Covered::Yes(mode) => *mode,
        Covered::No(reason) => return resolve_uncovered(known, reason.clone(), record, &rules.0),
    };
    let running = record.definition().filter(|running| record.runs() && running.source == Source::Api);
    if let Some(errors) = running.and_then(|running| rules.0.forbids(running)) {
        return held(known, record, Some(mode), Hold::Forbidden(errors));
    }
    match resolve_invalid(known, RefusedVersion::TooLarge(too_large.errors.clone()), record, rules) {
        Desired::Unsure { .. } => Desired::Refused { mode, errors: too_large.errors.clone() },
        desired => desired,
    }
}

/// What follows from a version of the API that is refused.
pub(super) fn resolve_invalid(
    known: &KnownDefinition<'_>,
    refusal: RefusedVersion,
    record: &DaemonRecord,
    rules: PolicyAndObjects<'_>,
) -> Desired {
    let folder = folder_of(known, record);
    if let (None, Some(folder), None) = (known.remembered, folder, &record.api_uid) {
        // The instance may be of the API's version; the folder's would be a step back.
        if may_be_older(known.folder, record) {
            return Desired::Unsure { reason: DesiredReason::Hold(Box::new(Hold::Refused(refusal))) };
        }
        let note = DesiredNote::FolderNotRefused(refusal);
        return wanted(folder, folder.mode_label().unwrap_or(Mode::Static), Some(note));
    }
    let mode = last_known(known.remembered, record).and_then(|last| match covers(rules, last, folder, record) {
        Covered::Yes(mode) => Some(mode),
        Covered::No(_) => None,
    });
    let is_mistyped = matches!(refusal, RefusedVersion::Mistyped(_));
    match held(known, record, mode, Hold::Refused(refusal)) {
        // Where nothing of it is or returns, it is left alone as on a node that has never known it.
        Desired::Unsure { reason } if is_mistyped && !record.runs_or_returns() => {
            Desired::Left { reason, taken_away: false }
        }
        desired => desired,
    }
}
